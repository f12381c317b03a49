"""Stopping a job: the driver gets a signal, its tasks see a file that appears.

A task checks for the file between pages, finishes what it has taken and returns. Executors that do not share a file system with the
driver end with the budget of the round.
"""

import threading
from contextlib import suppress
from pathlib import Path


class StopRequest:
    """The driver checks `file` too: creating it by hand stops the job."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()
        if self.file is not None:
            with suppress(OSError):  # signal handlers call this: an error would end the job in the middle
                self.file.touch()

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set() or (self.file is not None and self.file.exists())

    def wait(self, seconds: float) -> None:
        """Returns early if the job is to stop."""
        self._asked.wait(seconds)
