"""The lines of a node to all others, on sockets: bytes of a socket go to a `Line`, and what it has to say goes back in one write.

The supervisor makes the sockets and hands them out when a node comes. A line that is missing while both nodes live, because one stood
still for too long or could not be handed its end, is asked for by the lower of the two numbers until it is there.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from twinbus.clock import Clock, Millis
from twinbus.cluster.lines.frames import Hello
from twinbus.cluster.lines.line import Line, Listener

log = logging.getLogger(__name__)

SOCKET_BYTES = 1 << 20
"""Of what is under way on a line: a burst of messages in one piece."""
AGAIN_S = 0.2
"""After a line broke; most often the supervisor makes another one by itself, for a node that was started again."""
STILL_MISSING_S = 2.0
"""Between two times that a line is asked for."""


class Mesh:
    """Lives on the event loop and ticks with everything else. `missing` is called with the number of a node whose line has to be made again."""

    def __init__(self, me: Hello, listener: Listener, clock: Clock, missing: Callable[[int], None]) -> None:
        self._me = me
        self._listener = listener
        self._clock = clock
        self._missing = missing
        self._sockets: dict[int, LineSocket] = {}
        self._asking: dict[int, asyncio.TimerHandle] = {}
        self._is_closed = False
        self._opened = asyncio.Event()

    def open(self) -> None:
        """Somebody listens to what comes on the lines: before that there are none."""
        self._opened.set()

    @property
    def lines(self) -> dict[int, Line]:
        """By the number of the node; also those that are not open yet."""
        return {peer: each.line for peer, each in self._sockets.items()}

    async def connect(self, peer: int, sock: socket.socket) -> None:
        """A line to this node; it takes the place of one that was there."""
        await self._opened.wait()
        before = self._sockets.pop(peer, None)
        if before is not None:
            before.line.end("another line takes its place", self._clock.now())
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        shell = LineSocket(self._me, self._listener, self._clock, peer, self._broken)
        self._sockets[peer] = shell
        await asyncio.get_running_loop().create_unix_connection(lambda: shell, sock=sock)

    def tick(self, now: Millis) -> None:
        for each in list(self._sockets.values()):
            each.line.tick(now)

    def close(self) -> None:
        self._is_closed = True
        for each in list(self._sockets.values()):
            each.say_goodbye()

    def _broken(self, shell: "LineSocket") -> None:
        peer = shell.peer
        log.info("line_broken", extra={"fields": {"peer": peer, "reason": shell.line.fault}})
        if self._sockets.get(peer) is shell:
            del self._sockets[peer]
            if not self._is_closed and self._me.node < peer:
                self._ask_in(AGAIN_S, peer)

    def _ask_in(self, seconds: float, peer: int) -> None:
        before = self._asking.pop(peer, None)
        if before is not None:
            before.cancel()
        self._asking[peer] = asyncio.get_running_loop().call_later(seconds, self._ask_again, peer)

    def _ask_again(self, peer: int) -> None:
        if peer not in self._sockets and not self._is_closed:
            self._missing(peer)
            self._ask_in(STILL_MISSING_S, peer)


class LineSocket(asyncio.Protocol):
    def __init__(
        self, me: Hello, listener: Listener, clock: Clock, peer: int, broken: Callable[["LineSocket"], None]
    ) -> None:
        self.peer = peer
        self._clock = clock
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._is_flush_due = False
        self._is_over = False
        self.sent_bytes = self.received_bytes = 0
        self.line = Line(me, listener, clock.now(), self._wake, peer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface without the base class.
        self._transport = cast(asyncio.Transport, transport)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self.line.receive(data, self._clock.now())

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self.line.end(f"node {self.peer} has closed the connection", self._clock.now())
        self._over()

    def say_goodbye(self) -> None:
        self.line.say_goodbye()
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _wake(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        transport = self._transport
        if transport is None:
            return
        if self.line.is_broken:
            transport.abort()
        elif output := self.line.take_output():
            self.sent_bytes += sum(map(len, output))
            transport.writelines(output)

    def _over(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._broken(self)
