"""Checkpoints in a thread beside the commits: sealed layers in, the same layers back when the tables hold them.

After a checkpoint the thread gives the space of deleted rows back to the disk, in steps of a few megabytes, until little is
left or the next checkpoint is wanted. Readers see the tables as before, and commits go to the journal meanwhile.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from twinbus.store.layers.overlay import Layer
from twinbus.store.layers.pace import CommitTraffic, Pace
from twinbus.store.medium import Tables


class Task(Protocol):
    """Work in progress, with the interface of `threading.Thread`."""

    def is_alive(self) -> bool: ...

    def join(self) -> None: ...


StartTask: TypeAlias = Callable[[Callable[[], None]], Task]


def start_thread(work: Callable[[], None]) -> Task:
    thread = threading.Thread(target=work, name="twinbus-checkpoint")
    thread.start()
    return thread


class CheckpointThread:
    """Runs at most one checkpoint at a time. All methods are called by the one thread that uses the store.

    The checkpoint's own thread reads sealed layers, which never change again, and the tables write by a connection of
    their own. `_written` and `_failure` are written by that thread and read only once it is not alive anymore, so nothing here
    needs a lock.
    """

    def __init__(
        self,
        tables: Tables,
        start_task: StartTask,
        traffic: CommitTraffic,
        is_lack_of_space: Callable[[BaseException], bool],
        is_short: Callable[[], bool],
    ) -> None:
        self._tables = tables
        self._is_lack_of_space = is_lack_of_space
        self._is_short = is_short
        self._traffic = traffic
        self._start_task = start_task
        self._layers: Sequence[Layer] = ()
        self._written: list[Layer] = []
        self.is_out_of_space = False
        """There was no space for the last checkpoint: it waits for the next rest. Over when one has reached the tables."""
        self._task: Task | None = None
        self._failure: BaseException | None = None
        self._is_hurried = False

    @property
    def is_running(self) -> bool:
        return self._task is not None and self._task.is_alive()

    def start(self, sealed: Sequence[Layer]) -> None:
        """Bottom first."""
        assert not self._layers, "take the result of the previous checkpoint first"
        self._layers = sealed
        self._written = []
        self._is_hurried = False
        self._task = self._start_task(lambda: self._run(sealed))

    def tidy(self) -> None:
        """Give space back without a checkpoint."""
        assert not self.is_running
        self._is_hurried = False
        self._task = self._start_task(self._tidy)

    def hurry(self) -> None:
        """The next checkpoint is wanted: leave what can wait."""
        self._is_hurried = True

    def wait(self) -> None:
        self.hurry()
        if self._task is not None:
            self._task.join()

    def take_result(self) -> Sequence[Layer]:
        """The layers that have reached the tables, once. Raises the error of a failed checkpoint, unless there was no space."""
        if self._task is None or self._task.is_alive():
            return ()
        if self._failure is not None and not self._is_lack_of_space(self._failure):
            raise self._failure
        if self._layers:
            self.is_out_of_space = len(self._written) < len(self._layers)
        self._layers, self._task, self._failure = (), None, None
        done, self._written = self._written, []
        return done

    def _pace(self) -> Pace:
        return Pace(self._traffic, lambda: self._is_hurried)

    def _tidy(self) -> None:
        try:
            self._tables.tidy(self._pace(), is_short=self._is_short())
        except BaseException as error:
            self._failure = error

    def _run(self, sealed: Sequence[Layer]) -> None:
        try:
            pace = self._pace()
            for layer in sealed:
                self._tables.write_checkpoint(layer, pace)
                self._written.append(layer)
            self._tables.tidy(pace, is_short=self._is_short())
        except BaseException as error:
            # Whatever it is, the layers stay where they are: `take_result` raises this in the thread that uses the store.
            self._failure = error
