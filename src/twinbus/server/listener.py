"""AMQP on sockets: bytes of a transport go to a connection's gateway, and its answers go back in one write.

Everything that one read causes is written together. Answers that come later, from a store, ask for a flush (`_wake`), and the
first one schedules it for the end of the loop's turn, so all answers of a turn share one write.

Two limits keep memory bounded, and they are independent of each other:

    client reads too slowly   the socket's buffer passes WRITE_BUFFER_HIGH; the gateway hands over no more messages until
                              it has drained. Answers to what the client sends are still written: they are small, and
                              bounded by its credit.
    stores are too slow       more has arrived than the stores have taken; reading from the socket stops (`is_flooded`),
                              so TCP makes the client wait.

Reading stops and resumes only in `_flush`. That is enough because settling deliveries is what ends a flood, and every answer
calls `_wake`; one that did not would keep its answer, and a client that waits to be read from, until the next tick.
"""

import asyncio
import socket
from typing import cast

from twinbus.clock import Clock, Millis
from twinbus.gateway.connection_gateway import ConnectionGateway
from twinbus.gateway.connections import Connections, MakeGateway

WRITE_BUFFER_HIGH = 1024 * 1024


class AmqpTransport(asyncio.Protocol):
    """One TCP or TLS connection."""

    def __init__(
        self, make_gateway: MakeGateway, connections: Connections, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._loop = loop
        self._make_gateway = make_gateway
        self._gateway: ConnectionGateway | None = None
        self._transport: asyncio.Transport | None = None
        self._is_in_receive = False
        self._is_flush_due = False
        self.is_reading_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface without the base class.
        transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH)
        self._transport = transport
        self._gateway = self._make_gateway(self._wake)
        self._gateway.refusal = self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        gateway = self._gateway
        if gateway is None:
            return
        self._is_in_receive = True
        try:
            gateway.receive(data, self._clock.now())
        finally:
            self._is_in_receive = False
        self._flush()

    def pause_writing(self) -> None:
        if self._gateway is not None:
            self._gateway.pause()

    def resume_writing(self) -> None:
        if self._gateway is not None:
            self._gateway.resume(self._clock.now())
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        gateway, self._gateway, self._transport = self._gateway, None, None
        if gateway is not None:
            gateway.lost(self._clock.now())

    def tick(self, now: Millis) -> None:
        if self._gateway is not None:
            self._gateway.tick(now)
            self._flush()

    def close(self) -> None:
        if self._gateway is not None:
            self._gateway.shut_down()
            self._flush()
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def force_detach(self, path: str, now: Millis) -> int:
        count = self._gateway.force_detach(path, now) if self._gateway is not None else 0
        self._flush()
        return count

    def _wake(self) -> None:
        if not self._is_in_receive and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        gateway, transport = self._gateway, self._transport
        if gateway is None or transport is None or transport.is_closing():
            return
        chunk = gateway.data_to_send()
        if chunk:
            transport.write(chunk)
        if gateway.is_closed:
            transport.close()
        elif gateway.is_flooded != self.is_reading_paused:
            self.is_reading_paused = not self.is_reading_paused
            if self.is_reading_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()
