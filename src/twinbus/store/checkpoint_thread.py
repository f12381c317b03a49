"""Checkpoints aside from the commits: a sealed layer in, the same layer back when the tables hold it."""

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

from twinbus.store.checkpoint import write_checkpoint
from twinbus.store.overlay import Layer


class Task(Protocol):
    """Work under way, as `threading.Thread` has it."""

    def is_alive(self) -> bool: ...

    def join(self) -> None: ...


StartTask: TypeAlias = Callable[[Callable[[], None]], Task]


def start_thread(work: Callable[[], None]) -> Task:
    thread = threading.Thread(target=work, name="twinbus-checkpoint")
    thread.start()
    return thread


class CheckpointThread:
    """At most one checkpoint at a time. Used by the one thread that uses the store."""

    def __init__(self, connection: sqlite3.Connection, start_task: StartTask) -> None:
        self._connection = connection
        self._start_task = start_task
        self._layer: Layer | None = None
        self._task: Task | None = None
        self._failure: Exception | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and self._task.is_alive()

    def start(self, sealed: Layer) -> None:
        assert self._layer is None, "the result of the checkpoint before was not taken"
        self._layer = sealed
        self._task = self._start_task(lambda: self._run(sealed))

    def wait(self) -> None:
        if self._task is not None:
            self._task.join()

    def take_result(self) -> Layer | None:
        """The layer that is in the tables now, once; None if none is. Raises what a checkpoint failed with."""
        if self._layer is None or self.is_running:
            return None
        if self._failure is not None:
            raise self._failure
        done, self._layer, self._task = self._layer, None, None
        return done

    def close(self) -> None:
        self.wait()
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _run(self, sealed: Layer) -> None:
        try:
            write_checkpoint(self._connection, sealed)
            # The tables name the segment as theirs: if this is not reached, the next opening deletes it.
            sealed.segment.retire()
        except Exception as error:
            # Whatever it was, the layer is not in the tables: the thread that uses the store raises it.
            self._failure = error
