"""One port for everything: AMQP, HTTP and WebSockets on the port without TLS, on the one with it, and on further ones."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from twinbus import bounded_http
from twinbus.client.connecting.token_sources import sign
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.http import request_body
from twinbus.http.websocket import PATH, SUB_PROTOCOL
from twinbus.model.descriptions import QueueDescription
from twinbus.server.listening import sockets
from twinbus.server.listening.ports import Door
from twinbus.server.listening.sockets import bind, port_of
from twinbus.server.namespace import NamespaceServer
from twinbus.server.server_settings import ExtraPort, ServerSettings

HOST = "127.0.0.1"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
WAIT_S = 10.0


def free_port() -> int:
    with bind(HOST, 0) as sock:
        return port_of(sock)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NamespaceServer]:
    extra = (ExtraPort(free_port(), uses_tls=False), ExtraPort(free_port(), uses_tls=True))
    settings = ServerSettings("test", tmp_path, amqp_port=0, http_port=0, tls_port=0, store_count=1, also_listen=extra)
    server = NamespaceServer(settings)
    await server.start()
    yield server
    await server.stop()


def ports(server: NamespaceServer) -> list[tuple[int, ssl.SSLContext | None]]:
    """All that share: each with the context that a client needs."""
    trusting = ssl.create_default_context(cafile=str(server.tls_authority))
    assert server.tls_port is not None
    extra = [(each.port, trusting if each.uses_tls else None) for each in server.settings.also_listen]
    plain = [(port, trusting) for port, tls in extra if tls is None]
    return [(server.amqp_port, None), (server.amqp_port, trusting), (server.tls_port, trusting), *extra, *plain]


async def exchange(port: int, tls: ssl.SSLContext | None, *pieces: bytes, size: int = -1) -> bytes:
    """What comes back for pieces that are written one after another."""
    reader, writer = await asyncio.open_connection(HOST, port, ssl=tls)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    try:
        return await asyncio.wait_for(reader.read(size), WAIT_S)
    finally:
        writer.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side closes."""
    try:
        return await asyncio.wait_for(reader.read(), WAIT_S)
    except ConnectionResetError:
        return b""


async def test_every_shared_port_speaks_amqp_http_and_websockets(server: NamespaceServer) -> None:
    assert len(ports(server)) == 6
    for port, tls in ports(server):
        assert (await exchange(port, tls, SASL_HEADER, size=64))[:8] == SASL_HEADER
        assert (await exchange(port, tls, HEALTH)).startswith(b"HTTP/1.1 200")
        url = f"{'wss' if tls else 'ws'}://{HOST}:{port}{PATH}"
        async with connect(url, subprotocols=[Subprotocol(SUB_PROTOCOL)], proxy=None, ssl=tls) as client:
            await client.send(SASL_HEADER)
            assert (await client.recv(decode=False))[:8] == SASL_HEADER


@pytest.mark.parametrize(
    "start", [b"\x00" * 8, b"\x16\x03\x01\x00\x05nonsense", b"hello\r\n\r\n", b"AMQX" + bytes(200)]
)
async def test_what_is_neither_amqp_nor_http_is_closed(server: NamespaceServer, start: bytes) -> None:
    answer = await exchange(server.amqp_port, None, start)
    # An alert of TLS, if that is what it started with.
    assert answer[:12] in (b"", b"HTTP/1.1 400") or answer.startswith(b"\x15\x03")


async def test_amqp_that_goes_on_with_nonsense_is_closed(server: NamespaceServer) -> None:
    assert b"HTTP" not in await exchange(server.amqp_port, None, b"AMQP", b"\xff" * 100)


@pytest.mark.parametrize(
    "start", [b"", b"AMQ", b"\x16\x03\x01\x02\x00\x01", b"G", b"GET /health HTTP/1.1\r\nHost: loc"]
)
async def test_who_says_too_little_is_closed_after_a_while(
    server: NamespaceServer, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "FIRST_BYTES_WAIT_S", 0.05)
    monkeypatch.setattr(bounded_http, "HEADERS_WAIT_S", 0.05)
    for port in (server.amqp_port, server.http_port):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(start)
        assert (await rest(reader))[:12] in (b"", b"HTTP/1.1 400")
        writer.close()


async def test_who_says_nothing_after_the_handshake_is_closed_after_a_while(
    server: NamespaceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "FIRST_BYTES_WAIT_S", 0.3)
    for port, tls in ports(server):
        if tls is not None:
            reader, writer = await asyncio.open_connection(HOST, port, ssl=tls)
            assert await rest(reader) == b""
            writer.close()


async def test_large_transfers_pass_with_tls_on_the_plain_port(tmp_path: Path) -> None:
    """More than any buffer on the way holds, in both directions at once."""
    settings = ServerSettings("test", tmp_path, amqp_port=0, http_port=0, store_count=1)
    server = NamespaceServer(settings)
    await server.start()
    await server.control.create_queue(QueueDescription("q"))
    text = server.connection_string.replace("UseDevelopmentEmulator=true;", "")
    trusting = ssl.create_default_context(cafile=str(server.tls_authority))
    async with await Namespace.connect(text, tls=trusting) as namespace:
        sender = await namespace.sender("q")
        assert await sender.send([encode_message(bytes(200_000)) for _ in range(50)]) == [None] * 50
        receiver = await namespace.receiver("q", deletes=True)
        received = await receiver.collect(50, wait_s=WAIT_S)
    assert len(received) == 50
    await server.stop()


async def test_a_body_that_never_comes_is_answered_after_a_while(
    server: NamespaceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_body, "BODY_WAIT_S", 0.05)
    rule = server.root_rule
    token = sign(f"sb://{HOST}", rule.name, rule.primary_key, 2_000_000_000)
    start = (
        f"PUT /q?api-version=2021-05 HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: {token}\r\nContent-Length: 99\r\n\r\n<"
    )
    assert (await exchange(server.amqp_port, None, start.encode(), size=64)).startswith(b"HTTP/1.1 408")


async def test_headers_that_come_slowly_are_waited_for(server: NamespaceServer) -> None:
    pieces = [bytes([byte]) for byte in HEALTH]
    assert (await exchange(server.amqp_port, None, *pieces)).startswith(b"HTTP/1.1 200")


async def test_a_second_request_of_a_connection_is_answered(server: NamespaceServer) -> None:
    kept = HEALTH.replace(b"Connection: close\r\n", b"")
    answers = await exchange(server.amqp_port, None, kept, HEALTH)
    assert answers.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("door", Door)
@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n", b""])
async def test_a_connection_that_another_process_accepted_may_say_anything(
    server: NamespaceServer, door: Door, said: bytes
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        theirs.sendall(said)
    await server.welcome(ours, door)
    assert (await exchange(server.amqp_port, None, HEALTH)).startswith(b"HTTP/1.1 200")


async def test_connections_that_said_nothing_end_with_the_server(tmp_path: Path) -> None:
    server = NamespaceServer(ServerSettings("test", tmp_path, amqp_port=0, http_port=0, store_count=1))
    await server.start()
    reader, writer = await asyncio.open_connection(HOST, server.amqp_port)
    writer.write(b"AM")
    await asyncio.sleep(0)
    # An answer on another connection: by then the server has accepted the first one.
    await exchange(server.amqp_port, None, HEALTH)
    await server.stop()
    assert await rest(reader) == b""
    writer.close()
