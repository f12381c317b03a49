"""What a client sends at once is handed over in slices, those of all connections in turn."""

import asyncio
from collections.abc import Callable

import pytest

from twinbus.http.paced_reading import SLICE_BYTES, TURN_S, PacedReading, ReadingTurns


class Socket(asyncio.Transport):
    is_read = True
    is_ended = False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return self.is_ended

    def abort(self) -> None:
        self.is_ended = True


class Reader(asyncio.Protocol):
    def __init__(self, log: list[str], name: str) -> None:
        self._log, self._name = log, name
        self.data = b""
        self.on_data: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._log.append(f"{self._name} made")

    def data_received(self, data: bytes) -> None:
        assert len(data) <= SLICE_BYTES
        self.data += data
        self._log.append(self._name)
        self.on_data()

    def connection_lost(self, exc: Exception | None) -> None:
        self._log.append(f"{self._name} lost")


class World:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.later: list[Callable[[], None]] = []
        self.now = 0.0
        self.turns = ReadingTurns(self.later.append, lambda: self.now)

    def connect(self, name: str) -> tuple[PacedReading, Reader, Socket]:
        reader, socket = Reader(self.log, name), Socket()
        reading = PacedReading(reader, self.turns)
        reading.connection_made(socket)
        self.log.clear()
        return reading, reader, socket

    def turn(self) -> None:
        calls, self.later[:] = list(self.later), []
        assert len(calls) <= 1, "one for all of them"
        for call in calls:
            call()


def test_what_is_short_is_handed_over_at_once() -> None:
    world = World()
    reading, reader, socket = world.connect("a")
    reading.data_received(b"x" * SLICE_BYTES)
    assert (reader.data, socket.is_read, world.later) == (b"x" * SLICE_BYTES, True, [])


def test_what_is_long_is_handed_over_in_slices_and_the_socket_is_left_alone_meanwhile() -> None:
    world = World()
    reading, reader, socket = world.connect("a")
    data = bytes(range(256)) * (3 * SLICE_BYTES // 256) + b"end"
    reading.data_received(data)
    assert reader.data == data[:SLICE_BYTES]
    for _ in range(3):
        assert not socket.is_read
        world.turn()
    assert reader.data == data
    assert socket.is_read
    assert not world.later


def test_connections_take_turns_and_a_turn_ends_in_time() -> None:
    world = World()
    first, second = world.connect("a"), world.connect("b")
    for reading, _, _ in (first, second):
        reading.data_received(b"x" * 3 * SLICE_BYTES)
    world.log.clear()
    world.turn()
    assert world.log == ["a", "b"]

    def take_long() -> None:
        world.now += TURN_S

    first[1].on_data = take_long
    world.turn()
    assert world.log == ["a", "b", "a"]
    world.turn()
    assert world.log == ["a", "b", "a", "b"]
    assert not world.later


def test_a_protocol_that_wants_no_more_gets_no_more_until_it_does() -> None:
    world = World()
    reading, reader, socket = world.connect("a")
    transport = reader.transport
    reader.on_data = transport.pause_reading  # type: ignore[attr-defined]
    reading.data_received(b"x" * 2 * SLICE_BYTES)
    world.turn()
    assert len(reader.data) == SLICE_BYTES
    assert not socket.is_read
    transport.resume_reading()  # type: ignore[attr-defined]
    transport.resume_reading()  # type: ignore[attr-defined]
    world.turn()
    assert len(reader.data) == 2 * SLICE_BYTES
    assert not socket.is_read, "nothing is held, but nothing is wanted either"
    transport.resume_reading()  # type: ignore[attr-defined]
    assert socket.is_read


def test_a_protocol_that_pauses_and_goes_on_while_it_reads_stands_in_line_once() -> None:
    world = World()
    reading, reader, _ = world.connect("a")

    def hesitate() -> None:
        reader.transport.pause_reading()  # type: ignore[attr-defined]
        reader.transport.resume_reading()  # type: ignore[attr-defined]

    reader.on_data = hesitate
    reading.data_received(b"x" * 4 * SLICE_BYTES)
    for count in (1, 2, 3, 4):
        assert len(reader.data) == count * SLICE_BYTES
        world.turn()
    assert not world.later


def test_a_protocol_that_is_replaced_leaves_the_rest_to_the_next_one() -> None:
    world = World()
    reading, reader, _ = world.connect("a")
    other = Reader(world.log, "b")
    reader.on_data = lambda: reader.transport.set_protocol(other)
    reading.data_received(b"x" * SLICE_BYTES + b"rest")
    world.turn()
    assert other.data == b"rest"


def test_what_is_held_of_a_connection_that_ends_is_dropped() -> None:
    world = World()
    reading, reader, socket = world.connect("a")
    reading.data_received(b"x" * 3 * SLICE_BYTES)
    socket.is_ended = True
    world.turn()
    assert len(reader.data) == SLICE_BYTES
    reading.connection_lost(None)
    assert world.log[-1] == "a lost"
    assert not world.later


def test_a_protocol_that_breaks_ends_its_connection_and_not_the_turn_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    (broken, reader, socket), (other, listening, _) = world.connect("a"), world.connect("b")
    for reading in (broken, other):
        reading.data_received(b"x" * 2 * SLICE_BYTES)

    def fail() -> None:
        raise ZeroDivisionError

    reader.on_data = fail
    world.turn()
    assert socket.is_ended
    assert len(listening.data) == 2 * SLICE_BYTES
    assert [record.message for record in caplog.records] == ["reading_broken"]
    caplog.clear()
