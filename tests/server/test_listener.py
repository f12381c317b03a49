"""Slices of what a client sends, over a socket in memory and a loop that the test turns."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.attack.attacker import frame, hello
from tests.gateway.front import ROOT, Front, payload
from twinbus.amqp.codec.performatives import SENDER, Attach, Begin, End, Transfer
from twinbus.amqp.codec.sasl import plain_credentials
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.connection import FRAME_COST, Connection, ConnectionSettings, Role
from twinbus.gateway.connection_gateway import ConnectionGateway
from twinbus.gateway.connections import Connections
from twinbus.gateway.turns import SHARE_FIRST, Turns
from twinbus.model.descriptions import QueueDescription
from twinbus.server.listening.listener import LONG_READ, AmqpTransport

BEGIN_AND_END = frame(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9), channel=1) + frame(
    End(), channel=1
)
SLICE = SHARE_FIRST // FRAME_COST
"""Frames of a slice."""


class SocketInMemory(asyncio.Transport):
    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__()
        self._lost = lost
        self.is_paused = self._is_closing = False
        self.written = b""
        self.unread_size = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return self.unread_size

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._lost()

    abort = close


class Bench:
    def __init__(self, folder: Path) -> None:
        self.front = Front(folder)
        self.front.sim.queue(QueueDescription("orders"))
        self._soon: list[Callable[[], None]] = []
        self.connections = Connections(10)
        turns = Turns(self._soon.append, lambda: 0.0, lambda: 0.0)
        loop = cast(asyncio.AbstractEventLoop, self)
        self.transport = AmqpTransport(self._gateway, self.connections, self.front.sim.clock, loop, turns)
        self.socket = SocketInMemory(lambda: self.transport.connection_lost(None))
        self.transport.connection_made(self.socket)
        self.transport.data_received(hello(plain_credentials(ROOT.name, ROOT.primary_key)))
        attach = Attach(
            name="s", handle=0, role=SENDER, source=Source(), target=Target(address="orders"), initial_delivery_count=0
        )
        self.transport.data_received(frame(attach))

    def _gateway(self, wake: Callable[[], None]) -> ConnectionGateway:
        server = Connection(Role.SERVER, ConnectionSettings(container_id="server"), self.front.sim.now)
        self.gateway = ConnectionGateway(server, self.front.view, self.front.sim.now, wake)
        return self.gateway

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def turn(self) -> None:
        calls = self._soon[:]
        self._soon.clear()
        for call in calls:
            call()
        self.front.sim.run()

    @property
    def stored_count(self) -> int:
        return self.front.sim.entities.queue("orders").main.counts().active


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def transfer(number: int) -> bytes:
    return frame(Transfer(handle=0, delivery_id=number, delivery_tag=b"t", settled=True), payload("x"))


def test_reading_is_paused_until_the_last_slice(bench: Bench) -> None:
    bench.transport.data_received(BEGIN_AND_END * SLICE)
    frame_count = bench.gateway.connection.frame_count
    assert bench.socket.is_paused
    bench.turn()
    assert bench.gateway.connection.frame_count == frame_count + SLICE
    bench.turn()
    assert not bench.socket.is_paused


def test_reading_is_paused_while_the_client_leaves_too_many_answers_unread(bench: Bench) -> None:
    bench.transport.pause_writing()
    for unread_size, is_paused in ((bench.gateway.unread_size_max, False), (bench.gateway.unread_size_max + 1, True)):
        bench.socket.unread_size = unread_size
        bench.transport.tick(bench.front.sim.now)
        assert bench.socket.is_paused is is_paused
    bench.transport.resume_writing()
    assert not bench.socket.is_paused


def test_after_a_long_read_the_others_are_looked_at_first(bench: Bench) -> None:
    bench.transport._share._size = 1 << 20
    bench.transport.data_received(b"".join(map(transfer, range(LONG_READ // len(transfer(0)) + 1))))
    assert bench.socket.is_paused
    bench.turn()
    assert not bench.socket.is_paused


def test_what_was_sent_before_the_connection_was_lost_counts(bench: Bench) -> None:
    bench.transport.data_received(BEGIN_AND_END * SLICE + transfer(0))
    bench.transport.connection_lost(None)
    assert len(bench.connections) == 0
    assert bench.stored_count == 0
    for _ in range(4):
        bench.turn()
    assert bench.stored_count == 1
    assert bench.gateway.is_closed


def test_what_waits_is_forgotten_when_the_connection_is_cut(bench: Bench) -> None:
    bench.transport.data_received(BEGIN_AND_END * SLICE + transfer(0))
    bench.transport.cut()
    for _ in range(4):
        bench.turn()
    assert bench.stored_count == 0
    assert bench.gateway.is_closed


def test_bytes_that_come_while_others_wait_are_behind_them(bench: Bench) -> None:
    bench.transport.data_received(BEGIN_AND_END * SLICE)
    bench.transport.data_received(transfer(0)[:20])
    bench.transport.data_received(transfer(0)[20:])
    assert bench.stored_count == 0
    for _ in range(4):
        bench.turn()
    assert bench.stored_count == 1
