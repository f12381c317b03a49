"""Files that SQLite keeps keys and messages in are for their owner alone, as the journals are."""

import os
from contextlib import suppress
from pathlib import Path

OWNER_ALONE = 0o600
BESIDE = ("", "-wal", "-shm")


def make_private(file: Path) -> None:
    """To be called before SQLite opens the file: what it puts beside one gets the mode of that one.

    A file that is there is not opened: to close it again would end the locks of all connections that this process has to
    it, and the next program that looks into it would take its log away.
    """
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ALONE))
    for suffix in BESIDE:
        # Those that are there already may be open to others, or of a folder that several owners share.
        with suppress(FileNotFoundError, PermissionError):
            file.with_name(file.name + suffix).chmod(OWNER_ALONE)
