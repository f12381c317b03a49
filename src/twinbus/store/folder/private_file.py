"""Files with keys and messages are readable by their owner only, as the journals are: SQLite's, and small ones that are written whole."""

import os
from contextlib import suppress
from pathlib import Path

from twinbus.store.folder.journal import give_to_owner, sync_folder

OWNER_ALONE = 0o600
BESIDE = ("", "-wal", "-shm")
DRAFT_SUFFIX = ".draft"


def make_private(file: Path) -> None:
    """Call this before SQLite opens the file: the files that SQLite creates beside it get the same mode.

    A file that exists is not opened: closing it again would release the locks of all connections that this process has to
    it (POSIX locks belong to the process), and the next program that opens it would remove its log.
    """
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ALONE))
        give_to_owner(file, file.parent)
    for suffix in BESIDE:
        # Existing files may be readable by others, or belong to another owner of a shared folder.
        with suppress(FileNotFoundError, PermissionError):
            file.with_name(file.name + suffix).chmod(OWNER_ALONE)


def write_private(file: Path, text: str) -> None:
    """Whole or not at all, durable, and private before the first byte is in it. An OSError says which file could not be written."""
    draft = file.with_name(file.name + DRAFT_SUFFIX)
    try:
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ALONE), "wb") as opened:
            give_to_owner(opened.fileno(), file.parent)
            opened.write(text.encode())
            opened.flush()
            os.fsync(opened.fileno())
        draft.rename(file)
        sync_folder(file.parent)
    except OSError as error:
        # The system names no file when a disk is full.
        error.filename = error.filename or str(file)
        raise
