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


class CaptureLock:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    def take(cls, place: Path) -> "CaptureLock":
        """Raises CaptureRuns, or OSError where the file cannot be opened."""
        place.parent.mkdir(parents=True, exist_ok=True)
        file = place.open("ab")
        if not _lock(file):
            file.close()
            raise CaptureRuns(f"Another capture writes to the same lake. It holds {place}.")
        return cls(file)

    def release(self) -> None:
        """The file stays: whoever deletes it might delete one that another capture has just locked."""
        self._file.close()


if sys.platform == "win32":

    def _lock(file: IO[bytes]) -> bool:
        """There are no such locks."""
        return True

else:
    import fcntl

    def _lock(file: IO[bytes]) -> bool:
        """Whether nobody else has it. It ends when the file is closed, also by the end of the process."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
