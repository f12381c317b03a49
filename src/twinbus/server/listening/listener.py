"""AMQP on sockets: bytes of a transport go to a connection's gateway, and its answers go back in one write.

Everything that one read causes is written together. Answers that come later, from a store, ask for a flush (`_wake`), and the
first one schedules it for the end of the loop's turn, so all answers of a turn share one write.

What a client sends is worked on in slices (`gateway/turns.py`): reading stops until the last one is done, and a connection that
is lost meanwhile is given up after it, because what was sent before counts.

Three limits keep memory bounded, and they are independent of each other:

    client reads too slowly   the socket's buffer passes WRITE_BUFFER_HIGH; the gateway hands over no more messages until
                              it has drained. Answers to what the client sends are still written, because some clients
                              read nothing while they send.
    client does not read      with those answers the buffer passes the gateway's `unread_size_max`; reading stops until it
                              has drained.
    stores are too slow       more has arrived than the stores have taken; reading from the socket stops (`is_flooded`),
                              so TCP makes the client wait.

For both, reading stops and resumes only in `_flush`. That is enough because settling deliveries is what ends a flood, and every answer
calls `_wake`; one that did not would keep its answer, and a client that waits to be read from, until the next tick.
"""

import asyncio
import socket
from typing import cast

from twinbus.clock import Clock, Millis
from twinbus.gateway.connection_gateway import STRANGER_UNREAD_SIZE_MAX, ConnectionGateway
from twinbus.gateway.connections import Connections, MakeGateway
from twinbus.gateway.turns import Share, Turns

WRITE_BUFFER_HIGH = 1024 * 1024
LONG_READ = 128 * 1024
"""The loop reads again and again from a socket whose data filled its buffer, before it looks at any other."""
CLOSE_WAIT_S = 10.0
"""How long a client has to read the rest, after the connection was closed."""


class AmqpTransport(asyncio.Protocol):
    """One TCP or TLS connection."""

    def __init__(
        self,
        make_gateway: MakeGateway,
        connections: Connections,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        turns: Turns,
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._loop = loop
        self._turns = turns
        self._share = Share()
        self._unread = b""
        self._is_waiting = False
        self._make_gateway = make_gateway
        self._gateway: ConnectionGateway | None = None
        self._transport: asyncio.Transport | None = None
        self._is_in_receive = False
        self._is_flush_due = False
        self._is_writing_paused = False
        self._is_buffer_small = True
        self.is_reading_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface without the base class.
        transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=STRANGER_UNREAD_SIZE_MAX)
        self._transport = transport
        self._gateway = self._make_gateway(self._wake)
        self._gateway.refusal = self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._gateway is None:
            return
        if self._is_waiting:
            self._unread += data
        elif self._turns.is_open_to(self._share):
            self._work(data)
        else:
            self._unread = data
            self._wait()
            self._flush()

    def take_turn(self) -> None:
        if not self._is_waiting:
            return
        self._is_waiting = False
        data, self._unread = self._unread, b""
        try:
            self._work(data)
        except Exception:
            self.cut()
            raise

    def _work(self, data: bytes) -> None:
        """One slice of what the client has sent."""
        gateway, turns, share = self._gateway, self._turns, self._share
        if gateway is None:
            return
        start = turns.work_time()
        self._is_in_receive = True
        try:
            gateway.receive(data, self._clock.now(), share.size)
        finally:
            self._is_in_receive = False
        is_behind = gateway.is_behind
        if (is_behind or len(data) >= LONG_READ) and not gateway.is_closed:
            self._wait()
        self._flush()
        turns.used(share, turns.work_time() - start, is_behind=is_behind)
        if share.is_stranger and not gateway.is_stranger:
            self._connections.proved(self)
        share.is_stranger = gateway.is_stranger
        if self._transport is None and not self._is_waiting:
            self._give_up()

    def _wait(self) -> None:
        self._is_waiting = True
        self._turns.wait(self._share, self)

    @property
    def unread_size(self) -> int:
        transport, gateway = self._transport, self._gateway
        if transport is None or gateway is None or transport.is_closing():
            return 0
        return transport.get_write_buffer_size() + gateway.held_back_size

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        if self._gateway is not None:
            self._gateway.pause()
            if self._is_buffer_small and not self._gateway.is_stranger and self._transport is not None:
                self._is_buffer_small = False
                self._transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH)

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        if self._gateway is not None:
            self._gateway.resume(self._clock.now())
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        if not self._is_waiting:
            self._give_up()

    def _give_up(self) -> None:
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.lost(self._clock.now())

    def tick(self, now: Millis) -> None:
        if self._gateway is not None:
            self._gateway.tick(now)
            self._flush()

    def clock_stepped(self, by: Millis) -> None:
        if self._gateway is not None:
            self._gateway.clock_stepped(by)

    def close(self) -> None:
        if self._gateway is not None:
            self._gateway.shut_down(self._clock.now())
            self._flush()
        self._forget_unread()
        if self._transport is not None:
            self._end(self._transport)

    def cut(self) -> None:
        self._forget_unread()
        if self._transport is not None:
            self._transport.abort()

    def force_detach(self, path: str, now: Millis) -> int:
        count = self._gateway.force_detach(path, now) if self._gateway is not None else 0
        self._flush()
        return count

    def _forget_unread(self) -> None:
        """It does not matter any more what the client has sent: the connection ends now."""
        self._is_waiting = False
        self._unread = b""

    def _wake(self) -> None:
        if not self._is_in_receive and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        gateway, transport = self._gateway, self._transport
        if gateway is None or transport is None or transport.is_closing():
            return
        pieces = gateway.connection.pieces_to_send()
        if len(pieces) == 1:
            transport.write(pieces[0])
        elif pieces:
            transport.writelines(pieces)
        if gateway.connection.should_disconnect:
            self._end(transport)
            return
        is_full = gateway.is_flooded or self._is_waiting
        if self._is_writing_paused and not is_full:
            is_full = transport.get_write_buffer_size() > gateway.unread_size_max
        if is_full != self.is_reading_paused:
            self.is_reading_paused = is_full
            if self.is_reading_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _end(self, transport: asyncio.Transport) -> None:
        if transport.is_closing():
            return
        if transport.get_write_buffer_size():
            self._loop.call_later(CLOSE_WAIT_S, self.cut)
        transport.close()
