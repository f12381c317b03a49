"""The file locks of a data folder. The system takes them from a process that ends, however it does.

lock              of the process that holds the folder, such as the one that serves it, with its process id
backup-lock, forwarding-lock
                  by which a backup pauses forwarding (twinbus.server.data.forwarding_pause)

Whoever looks whether a lock is held has it for a moment, so whoever wants to have it tries for a little longer than that.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Final

from twinbus.errors import StoreInUse, StoreUnavailable
from twinbus.store.folder.journal import give_to_owner

LOCK_NAME: Final = "lock"
BACKUP_LOCK: Final = "backup-lock"
FORWARDING_LOCK: Final = "forwarding-lock"
LOOK_PATIENCE_S = 0.2
POLL_S = 0.01
TEXT_BYTES: Final = 20


class FolderNotWritten(StoreUnavailable):
    """For whoever wants to serve from it."""

    def __init__(self, folder: Path, fault: OSError) -> None:
        self.reason = fault.strerror
        super().__init__(f"The data folder {folder} cannot be written: {self.reason}. Choose another one with --data.")


def hold(folder: Path) -> int:
    """A descriptor, which holds the folder until it is closed. Raises StoreInUse while another process holds it, and StoreUnavailable if
    it cannot be written."""
    lock = open_lock(folder, LOCK_NAME)
    try:
        if not take_within(lock, fcntl.LOCK_EX, LOOK_PATIENCE_S):
            raise StoreInUse(
                f"The data folder {folder} is in use by process {_text(lock) or 'unknown'}. Stop it, or serve from another "
                "folder with --data."
            )
        # The whole line at once, over what is there: on a disk that is full there is room for that.
        os.pwrite(lock, f"{os.getpid()}\n".ljust(TEXT_BYTES).encode(), 0)
        os.ftruncate(lock, TEXT_BYTES)
    except OSError as fault:
        os.close(lock)
        raise FolderNotWritten(folder, fault) from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def holder_of(folder: Path) -> int | None:
    """The id of the process that holds the folder, as that process sees it; None if nobody does, or somebody has only just begun to.

    Not asked of the process id: another process may have it by now, or it may be of another container.
    """
    try:
        lock = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if take(lock, fcntl.LOCK_SH):
            return None
        text = _text(lock)
        return int(text) if text.isdecimal() else None
    finally:
        os.close(lock)


def open_lock(folder: Path, name: str) -> int:
    """Raises StoreUnavailable. It belongs to whom the folder does, even if root runs a command there: that user has to open it next."""
    try:
        lock = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        give_to_owner(lock, folder)
    except OSError as fault:
        raise FolderNotWritten(folder, fault) from None
    return lock


def take(lock: int, kind: int) -> bool:
    """Whether it was free for that kind of lock, and is ours now."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take_within(lock: int, kind: int, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while not (is_taken := take(lock, kind)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return is_taken


def _text(lock: int) -> str:
    return os.pread(lock, TEXT_BYTES, 0).decode(errors="replace").strip()
