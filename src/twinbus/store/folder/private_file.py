"""SQLite files with keys and messages are readable by their owner only, as the journals are."""

import os
from contextlib import suppress
from pathlib import Path

OWNER_ALONE = 0o600
BESIDE = ("", "-wal", "-shm")


def make_private(file: Path) -> None:
    """Call this before SQLite opens the file: the files that SQLite creates beside it get the same mode.

    A file that exists is not opened: closing it again would release the locks of all connections that this process has to
    it (POSIX locks belong to the process), and the next program that opens it would remove its log.
    """
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ALONE))
    for suffix in BESIDE:
        # Existing files may be readable by others, or belong to another owner of a shared folder.
        with suppress(FileNotFoundError, PermissionError):
            file.with_name(file.name + suffix).chmod(OWNER_ALONE)
