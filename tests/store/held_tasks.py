"""Checkpoints that happen when a test says so."""

from collections.abc import Callable


class HeldTask:
    """Counts as running until somebody waits for it, and then it runs."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work

    def is_alive(self) -> bool:
        return self._work is not None

    def join(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work()

    def forget(self) -> None:
        """The process ended before it ran."""
        self._work = None


class HeldTasks:
    """A `start_task` for a store."""

    def __init__(self) -> None:
        self.newest: HeldTask | None = None

    def __call__(self, work: Callable[[], None]) -> HeldTask:
        self.newest = HeldTask(work)
        return self.newest

    def run(self) -> None:
        if self.newest is not None:
            self.newest.join()
