"""Connections of a worker process: kept from task to task and from poll to poll, closed when nobody used them for a while.

Spark uses its Python processes again and again. To connect and to prove one's rights takes more round trips than a
small batch has pages.
"""

import atexit
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from typing import Any, TypeAlias, TypeVar

from twinbus.client.blocking import LoopThread
from twinbus.client.namespace import Namespace
from twinbus.errors import MessagingError
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.source.access.entity_access import EntityAccess

T = TypeVar("T")

IDLE_S = 60.0
Detect: TypeAlias = Callable[[Namespace, str], Coroutine[Any, Any, EntityAccess]]


class Connection:
    """One namespace on an event loop of its own, and how its entities are accessed. Any thread may use it."""

    def __init__(self, loop: LoopThread, namespace: Namespace) -> None:
        self._loop = loop
        self.namespace = namespace
        self.accesses: dict[str, EntityAccess] = {}

    @classmethod
    def open(cls, options: ConnectionOptions) -> "Connection":
        loop = LoopThread()
        try:
            return cls(loop, loop.run(options.connect()))
        except BaseException:
            loop.stop()
            raise

    @property
    def is_good(self) -> bool:
        return self.namespace.fault is None

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return self._loop.start(work)

    def close(self) -> None:
        with suppress(MessagingError):
            self._loop.run(self.namespace.close())
        self._loop.stop()


class ConnectionCache:
    def __init__(self, idle_s: float = IDLE_S, now: Callable[[], float] = time.monotonic) -> None:
        self._idle_s = idle_s
        self._now = now
        self._open: dict[ConnectionOptions, Connection] = {}
        self._used_at: dict[ConnectionOptions, float] = {}
        self._busy: Counter[ConnectionOptions] = Counter()
        self._timers: dict[ConnectionOptions, Timer] = {}
        self._lock = Lock()
        self._pid = os.getpid()

    def get(self, options: ConnectionOptions) -> Connection:
        """One that is open. It is closed once nobody has asked for it for the idle time: see `use`."""
        with self._lock:
            self._forget_parents()
            found = self._open.get(options)
            if found is not None and not found.is_good:
                del self._open[options]
                found.close()
                found = None
            if found is None:
                found = self._open[options] = Connection.open(options)
            self._used_at[options] = self._now()
            if options not in self._timers:
                self._look_after(options, self._idle_s)
            return found

    @contextmanager
    def use(self, options: ConnectionOptions) -> Iterator[Connection]:
        """One that is open and stays so, however long the block takes."""
        with self._lock:
            self._busy[options] += 1
        try:
            yield self.get(options)
        finally:
            with self._lock:
                self._busy[options] -= 1
                self._used_at[options] = self._now()

    def drop(self, options: ConnectionOptions, connection: Connection) -> None:
        """It does not answer; the next to ask gets another."""
        with self._lock:
            if self._open.get(options) is connection:
                del self._open[options]
                connection.close()

    def close_idle(self, options: ConnectionOptions) -> None:
        """Close it if nobody uses it or has used it for the idle time; else look again when that may be."""
        with self._lock:
            self._timers.pop(options, None)
            if options not in self._open:
                return
            left = self._idle_s if self._busy[options] else self._used_at[options] + self._idle_s - self._now()
            if left > 0:
                self._look_after(options, left)
            else:
                self._open.pop(options).close()

    def close(self) -> None:
        with self._lock:
            self._forget_parents()
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()
            while self._open:
                self._open.popitem()[1].close()

    @property
    def open_count(self) -> int:
        return len(self._open)

    def _look_after(self, options: ConnectionOptions, delay_s: float) -> None:
        timer = self._timers[options] = Timer(delay_s, self.close_idle, (options,))
        timer.daemon = True
        timer.start()

    def _forget_parents(self) -> None:
        """Threads and sockets do not survive a fork: a child must not use those of its parent."""
        if self._pid != os.getpid():
            self._open.clear()
            self._timers.clear()
            self._busy.clear()
            self._pid = os.getpid()


CONNECTIONS = ConnectionCache()
"""Those of this process."""
atexit.register(CONNECTIONS.close)
