"""Ports: a bound socket belongs to its owner even before it listens, and a shared port tells AMQP from HTTP."""

import asyncio
import errno
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from twinbus.errors import ArgumentError
from twinbus.gateway.connections import Connections
from twinbus.server.listening import sockets
from twinbus.server.listening.admission import Admission, SharedLimits
from twinbus.server.listening.refusal_log import RefusalLog
from twinbus.server.listening.sockets import SharedPort, bind, port_of, start_listening

HOST = "127.0.0.1"
WAIT_S = 10.0


def test_a_free_port_is_not_given_twice_while_nobody_listens_on_it_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    with bind(HOST, 0) as first:
        monkeypatch.setattr(sockets, "FREE_PORTS", [port_of(first)])
        monkeypatch.setattr(sockets, "FREE_PORT_TRIES", 1)
        with bind(HOST, 0) as second:
            assert port_of(second) != port_of(first)


def test_a_port_that_is_bound_refuses_connections_until_it_is_listened_on() -> None:
    with bind(HOST, 0) as sock:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port_of(sock)), timeout=5)
        start_listening(sock, 1)
        socket.create_connection((HOST, port_of(sock)), timeout=5).close()


def test_a_port_in_use_is_named() -> None:
    with bind(HOST, 0) as sock:
        start_listening(sock, 1)
        with pytest.raises(ArgumentError, match=f"Port {port_of(sock)} on {HOST} is in use"):
            bind(HOST, port_of(sock))


def test_of_two_sockets_on_one_port_the_second_to_listen_is_refused() -> None:
    with bind(HOST, 0) as first, bind(HOST, port_of(first)) as second:
        start_listening(first, 1)
        with pytest.raises(ArgumentError, match=f"Port {port_of(first)} on {HOST} is in use"):
            start_listening(second, 1)


def test_a_port_serves_again_at_once_after_connections_to_it_have_ended() -> None:
    with bind(HOST, 0) as sock:
        port = port_of(sock)
        start_listening(sock, 1)
        with socket.create_connection((HOST, port), timeout=5) as client:
            sock.accept()[0].close()  # the side that closes first is the one whose port is kept for a while
            assert client.recv(1) == b""
    with bind(HOST, port) as again:
        start_listening(again, 1)


class Speaker(asyncio.Protocol):
    """Answers everything it reads with its name in front."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._name + b"<" + data + b">")


@pytest.fixture
def admission() -> Admission:
    return Admission(
        SharedLimits(undecided_count_max=2), amqp=Connections(100), refusals=RefusalLog(), socket_count_max=100
    )


@pytest.fixture
async def port(admission: Admission) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SharedPort(lambda: Speaker(b"amqp"), lambda: Speaker(b"http"), admission, loop), HOST, 0
    )
    yield server.sockets[0].getsockname()[1]
    server.close()


async def answer(port: int, *pieces: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    try:
        return await reader.readuntil(b">")
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return b""
    finally:
        writer.close()


async def test_a_connection_that_starts_with_amqp_is_amqp(port: int) -> None:
    assert await answer(port, b"AMQP\x03\x01\x00\x00") == b"amqp<AMQP\x03\x01\x00\x00>"


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1", b"ACL /", b"AMQ/"])
async def test_any_other_start_is_http(port: int, start: bytes) -> None:
    assert await answer(port, start) == b"http<" + start + b">"


async def test_a_start_in_pieces_is_put_together(port: int) -> None:
    assert await answer(port, b"A", b"MQ", b"P\x00") == b"amqp<AMQP\x00>"


async def test_what_comes_after_the_start_goes_straight_to_the_chosen_protocol(port: int) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"AMQP")
    assert await reader.readuntil(b">") == b"amqp<AMQP>"
    writer.write(b"GET")
    assert await reader.readuntil(b">") == b"amqp<GET>"
    writer.close()


async def test_a_handshake_that_stops_after_its_first_byte_costs_little_memory() -> None:
    loop, count = asyncio.get_running_loop(), 20
    admission = Admission(SharedLimits(), amqp=Connections(100), refusals=RefusalLog(), socket_count_max=100)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    begun: list[asyncio.Transport] = []

    class Port(SharedPort):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            begun.append(self._transport)

    server = await loop.create_server(lambda: Port(asyncio.Protocol, asyncio.Protocol, admission, loop, tls), HOST, 0)
    clients = [await asyncio.open_connection(*server.sockets[0].getsockname()) for _ in range(count)]
    tracemalloc.start()
    try:
        for _, writer in clients:
            writer.write(b"\x16")
        async with asyncio.timeout(WAIT_S):
            while len(begun) < count:
                await asyncio.sleep(0)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < count * 64 * 1024
    for _, writer in clients:
        writer.close()
    server.close()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), WAIT_S) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("start", [b"", b"A", b"AMQ"])
async def test_a_connection_that_says_too_little_in_time_is_closed(
    port: int, admission: Admission, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "FIRST_BYTES_WAIT_S", 0.05)
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(start)
    assert await is_closed(reader)
    assert not admission.undecided
    writer.close()


async def test_a_connection_that_ends_before_it_has_said_anything_is_forgotten(port: int, admission: Admission) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"AM")
    writer.write_eof()
    assert await is_closed(reader)
    assert not admission.undecided
    writer.close()


async def test_of_silent_connections_beyond_a_number_the_oldest_is_closed_and_others_are_served(
    port: int, admission: Admission
) -> None:
    silent = [await asyncio.open_connection(HOST, port) for _ in range(3)]
    assert await is_closed(silent[0][0])
    assert len(admission.undecided) == 2
    assert await answer(port, b"AMQP") == b"amqp<AMQP>"
    assert await is_closed(silent[1][0])
    silent[2][1].write(b"AMQP")
    assert await silent[2][0].readuntil(b">") == b"amqp<AMQP>"
    assert not admission.undecided
    for _, writer in silent:
        writer.close()


async def test_connections_that_have_said_nothing_can_be_cut(port: int, admission: Admission) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"AM")
    while not admission.undecided:
        await asyncio.sleep(0)
    next(iter(admission.undecided)).cut()
    assert await is_closed(reader)
    writer.close()


@pytest.mark.parametrize(
    ("number", "complaint"),
    [
        (errno.EACCES, "Port 80 on 127.0.0.1 is not allowed to this user. Use a port from 1024 on"),
        (errno.EADDRNOTAVAIL, "This machine has no address 127.0.0.1"),
    ],
)
def test_a_port_that_cannot_be_had_is_named_with_what_to_do(
    number: int, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(ArgumentError, match=complaint):
        bind(HOST, 80)
