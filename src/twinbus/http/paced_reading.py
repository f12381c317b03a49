"""What a client has sent, handed over in slices: bytes of a socket in, calls of its protocol out.

A read brings up to a quarter of a megabyte. That is one request, or six thousand of them, or forty thousand pings of a WebSocket,
and the server works through all of it at once, while everybody else waits. So a protocol gets the first slice at once, which is
all that most clients ever send together; the rest is handed over slice by slice, those of all connections in turn, for a short time
in each turn of the loop. A socket is not read from while something of it is held, or while its protocol does not want more: of
requests that were sent together, no more than a slice's are queued.

    socket --read--> held --slice--> protocol        nothing held, and wanted: the socket is read from
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

log = logging.getLogger(__name__)

SLICE_BYTES = 2_048
TURN_S = 0.003


class ReadingTurns:
    """Of all connections for HTTP. `later` is the loop's `call_soon`."""

    def __init__(
        self, later: Callable[[Callable[[], None]], object], now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._later = later
        self._now = now
        self._waiting: deque[PacedReading] = deque()
        self._is_planned = False

    def add(self, connection: "PacedReading") -> None:
        self._waiting.append(connection)
        self._plan()

    def _plan(self) -> None:
        if self._waiting and not self._is_planned:
            self._is_planned = True
            self._later(self._turn)

    def _turn(self) -> None:
        self._is_planned = False
        end = self._now() + TURN_S
        for _ in range(len(self._waiting)):
            connection = self._waiting.popleft()
            if connection.take_turn():
                self._waiting.append(connection)
            if self._now() >= end:
                break
        self._plan()


class PacedReading(asyncio.Protocol):
    """Stands between a socket and the protocol that reads from it, which may be replaced by another one."""

    def __init__(self, protocol: asyncio.Protocol, turns: ReadingTurns) -> None:
        self.protocol = protocol
        self._turns = turns
        self._transport: asyncio.Transport | None = None
        self._held = bytearray()
        self._is_waiting = self._is_paused = False
        self._is_unwanted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.protocol.connection_made(cast(asyncio.BaseTransport, _PacedTransport(self, self._transport)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._held.clear()
        # Nothing else ends the circle of these and the transport that the protocol has.
        protocol, self.protocol = self.protocol, asyncio.Protocol()
        protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()

    def eof_received(self) -> bool | None:
        return self.protocol.eof_received()

    def data_received(self, data: bytes) -> None:
        self._held += data
        if not self._is_waiting:
            self._go_on()

    def want(self, is_wanted: bool) -> None:
        """Whether the protocol takes more."""
        self._is_unwanted = not is_wanted
        if is_wanted and self._held and not self._is_waiting:
            self._wait()
        self._pause_or_resume()

    def take_turn(self) -> bool:
        """Hand over a slice. Whether it waits for its next turn."""
        self._is_waiting = False
        self._hand_over()
        if self._is_waiting:
            return False  # its protocol wanted more meanwhile: it stands in line already
        self._is_waiting = self._can_go_on
        return self._is_waiting

    def _go_on(self) -> None:
        self._hand_over()
        if self._can_go_on and not self._is_waiting:
            self._wait()

    def _wait(self) -> None:
        self._is_waiting = True
        self._turns.add(self)

    @property
    def _can_go_on(self) -> bool:
        return bool(self._held) and not self._is_unwanted

    def _hand_over(self) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            self._held.clear()
        elif self._can_go_on:
            data = bytes(self._held[:SLICE_BYTES])
            del self._held[:SLICE_BYTES]
            try:
                self.protocol.data_received(data)
            except Exception:  # a bug, which must not keep others from their turn
                log.exception("reading_broken")
                self._transport.abort()
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        assert self._transport is not None
        is_paused = bool(self._held) or self._is_unwanted
        if is_paused is not self._is_paused and not self._transport.is_closing():
            self._is_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()


class _PacedTransport:
    """The socket as the protocol sees it."""

    def __init__(self, reading: PacedReading, transport: asyncio.Transport) -> None:
        self._reading = reading
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        self._reading.want(False)

    def resume_reading(self) -> None:
        self._reading.want(True)

    def is_reading(self) -> bool:
        return not self._reading._is_unwanted

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._reading.protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._reading.protocol
