"""Connections that wait at ports: listening sockets in, accepted ones out, a few in each turn of the loop.

The loop's own servers accept one in each turn. Turns take some milliseconds while clients keep the loop busy, and anybody can open
hundreds of connections in a second: everybody else would wait behind them in the queue of the port, for many seconds.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence

from twinbus.server.listening.ports import Door
from twinbus.server.listening.sockets import start_listening

log = logging.getLogger(__name__)

BACKLOG = 1_024
OUT_OF_DESCRIPTORS_PAUSE_S = 0.5


class Acceptor:
    def __init__(
        self,
        doors: Sequence[tuple[socket.socket, Door]],
        take: Callable[[socket.socket, Door], object],
        at_once_max: int,
    ) -> None:
        """`take` owns what it is given. `at_once_max`: of each port, in a turn."""
        self._doors = doors
        self._take = take
        self._at_once_max = at_once_max
        self._is_open = False

    def open(self) -> None:
        """Raises ArgumentError if another program listens on one of the ports by now."""
        for sock, _ in self._doors:
            sock.setblocking(False)
            start_listening(sock, BACKLOG)
        self._is_open = True
        self._listen()

    def close(self) -> None:
        """The sockets stay open: those that wait are not refused yet."""
        if self._is_open:
            self._is_open = False
            for sock, _ in self._doors:
                asyncio.get_running_loop().remove_reader(sock)

    def _listen(self) -> None:
        if self._is_open:
            for sock, door in self._doors:
                asyncio.get_running_loop().add_reader(sock, self._accept, sock, door)

    def _accept(self, listening: socket.socket, door: Door) -> None:
        for _ in range(self._at_once_max):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as fault:
                # Most likely no descriptor is left; the connection stays in the queue of the port meanwhile.
                log.warning("not_accepted", extra={"fields": {"reason": str(fault)}})
                asyncio.get_running_loop().remove_reader(listening)
                asyncio.get_running_loop().call_later(OUT_OF_DESCRIPTORS_PAUSE_S, self._listen)
                return
            self._take(connection, door)
