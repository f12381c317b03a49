"""Connections whose server has stopped answering in the middle of a statement are ended from outside.

libpq knows no timeout for an answer, and a frozen server is no broken connection: its machine acknowledges every probe. The
thread that asked would wait for good, even when a standby has been promoted meanwhile. So a thread counts for how many of its
ticks each connection has been in the same wait, and shuts the socket of one that has been for too many. The wait fails then, and
with it those of the other connections with the same name: a store has two, and cannot be closed while one of them waits. Ticks
and no clock: a process that was frozen itself has counted none.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar
from weakref import WeakSet

import psycopg

TICK_S: Final = 1.0
PATIENCE: Final = 15
"""Ticks. As long as a message broker waits for a store."""
PATIENCE_OF_CHECKPOINTS: Final = 600
PATIENCE_OF_LEASES: Final = 5

log = logging.getLogger(__name__)
Result = TypeVar("Result")


class WatchedConnection(psycopg.Connection[tuple[Any, ...]]):
    """Counts its waits for the server, which the watch looks at."""

    name = ""
    patience = PATIENCE
    wait_count = 0  # odd while it waits
    seen = 0
    ticks = 0  # for how many the watch has seen the same wait
    ending = threading.Lock()
    """So that no file descriptor is shut that has been closed and belongs to somebody else by now."""

    def wait(self, *arguments: Any, **options: Any) -> Any:
        self.wait_count += 1
        try:
            return super().wait(*arguments, **options)
        finally:
            self.wait_count += 1

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """A function of libpq that waits for the server; other threads run meanwhile."""
        self.wait_count += 1
        try:
            return function(*arguments)
        finally:
            self.wait_count += 1

    def close(self) -> None:
        with self.ending:
            super().close()

    def cut(self) -> None:
        """By another thread than the one that uses it."""
        with self.ending, suppress(OSError, psycopg.Error):
            descriptor = os.dup(self.pgconn.socket)
            with socket.socket(fileno=descriptor) as line:
                line.shutdown(socket.SHUT_RDWR)


class ConnectionWatch:
    def __init__(self, tick_s: float = TICK_S) -> None:
        self._tick_s = tick_s
        self._changing = threading.Lock()
        self._watched: WeakSet[WatchedConnection] = WeakSet()
        self._thread: threading.Thread | None = None

    def add(self, connection: WatchedConnection, name: str, patience: int) -> None:
        connection.name, connection.patience = name, patience
        with self._changing:
            self._watched.add(connection)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="postgresql-watch", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(self._tick_s):
            self.tick()

    def tick(self) -> None:
        with self._changing:
            connections = [each for each in self._watched if not each.closed]
        overdue = {each.name for each in connections if _is_overdue(each)}
        for connection in connections:
            if connection.name in overdue:
                connection.cut()
        for name in sorted(overdue):
            log.warning("database_silent", extra={"fields": {"connection": name}})


def _is_overdue(connection: WatchedConnection) -> bool:
    count = connection.wait_count
    is_same_wait = count % 2 == 1 and count == connection.seen
    connection.seen, connection.ticks = count, connection.ticks + 1 if is_same_wait else 0
    return connection.ticks >= connection.patience


WATCH = ConnectionWatch()
