"""One capture of an entity into a lake at a time: a file in, a lock that ends with this process out.

Two captures that have one checkpoint repeat each other's batches: each would replace what the other one has written, with what is
left of it in the entity, and remove what the other one is still reading.
"""

import sys
from pathlib import Path
from typing import IO

from twinbus.errors import MessagingError


class CaptureRuns(MessagingError):
    """Another capture of the same entity writes to the same lake."""

    is_transient = True


class NoLocks(OSError):
    """The file system has none."""


class CaptureLock:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    def take(cls, place: Path) -> "CaptureLock | None":
        """None where the file system has no locks. Raises CaptureRuns, or OSError where the file cannot be opened."""
        place.parent.mkdir(parents=True, exist_ok=True)
        file = place.open("ab")
        try:
            _lock(file)
        except BlockingIOError:
            file.close()
            raise CaptureRuns(f"Another capture writes to the same lake. It holds {place}.") from None
        except NoLocks:
            file.close()
            return None
        return cls(file)

    def release(self) -> None:
        """The file stays: whoever deletes it might delete one that another capture has just locked."""
        self._file.close()


if sys.platform == "win32":

    def _lock(file: IO[bytes]) -> None:
        raise NoLocks

else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        """Until the file is closed, also by the end of the process. Raises BlockingIOError where another one has it, or NoLocks."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as refused:  # which error it is depends on the file system
            raise NoLocks from refused
