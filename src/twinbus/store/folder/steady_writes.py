"""The files of a large checkpoint, synced again and again while it is written.

SQLite syncs at the end, its log first and then the tables: a hundred megabytes at once, with which a disk is busy for a tenth of a
second and more. A commit beside it waits for all of that. What was synced meanwhile is not left for the end, so a commit waits for a
few megabytes at most.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from twinbus.store.folder.journal import sync_data

PAUSE_S = 0.01
PACED_PAUSES = 5
"""While the checkpoint gives way to commits (`layers/pace`) it writes little, and a sync without much to do keeps the disk from
commits too: so there is one after so many pauses only."""


class SteadyWrites:
    """Of files that exist when the first large checkpoint begins. They stay open until `close`: to close any descriptor of a file
    ends all locks that the process has on it, so SQLite has to have closed it before."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._descriptors: list[int] = []

    @contextmanager
    def during(self, is_hurried: Callable[[], bool]) -> Iterator[None]:
        # One by one: if a file cannot be opened, those before it are kept for the next time, and for `close`.
        for file in self._files[len(self._descriptors) :]:
            self._descriptors.append(os.open(file, os.O_RDONLY | os.O_CLOEXEC))
        is_over = threading.Event()
        thread = threading.Thread(target=self._sync_until, args=(is_over, is_hurried), name="twinbus-steady-writes")
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _sync_until(self, is_over: threading.Event, is_hurried: Callable[[], bool]) -> None:
        # SQLite's own descriptors get the error of the disk too, and its sync at the end is the one that counts.
        with suppress(OSError):
            pauses = 0
            while not is_over.wait(PAUSE_S):
                pauses += 1
                if pauses % PACED_PAUSES and not is_hurried():
                    continue
                for descriptor in self._descriptors:
                    sync_data(descriptor)

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
