import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.typing import Subprotocol

from twinbus import bounded_http
from twinbus.amqp.codec.frames import EMPTY_FRAME
from twinbus.amqp.codec.sasl import plain_credentials
from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.amqp.events import Event, Opened, SessionBegun
from twinbus.gateway.connection_gateway import ConnectionGateway
from twinbus.http.websocket import NOT_BINARY, PATH, STRANGER_MESSAGE_SIZE_MAX, SUB_PROTOCOL
from twinbus.server.namespace import NamespaceServer
from twinbus.server.server_settings import ServerSettings

NOW = 1_800_000_000_000
SASL_HEADER = b"AMQP\x03\x01\x00\x00"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NamespaceServer]:
    settings = ServerSettings("test", tmp_path, amqp_port=0, http_port=0, tls_port=0, store_count=1)
    server = NamespaceServer(settings)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client(server: NamespaceServer) -> AsyncIterator[ClientConnection]:
    url = f"ws://127.0.0.1:{server.http_port}{PATH}"
    async with connect(url, subprotocols=[Subprotocol(SUB_PROTOCOL)], proxy=None) as connection:
        yield connection


async def test_the_sub_protocol_is_agreed_on_and_nothing_is_compressed(client: ClientConnection) -> None:
    assert client.subprotocol == SUB_PROTOCOL
    assert not client.protocol.extensions


@pytest.mark.parametrize("path", ["/$servicebus/websocket", "/$servicebus/websocket/"])
async def test_the_path_may_end_with_a_slash_on_every_port(server: NamespaceServer, path: str) -> None:
    trusting = ssl.create_default_context(cafile=str(server.tls_authority))
    plain = [f"ws://127.0.0.1:{port}" for port in (server.amqp_port, server.http_port)]
    for url, tls in ((plain[0], None), (plain[1], None), (f"wss://127.0.0.1:{server.tls_port}", trusting)):
        async with connect(url + path, subprotocols=[Subprotocol(SUB_PROTOCOL)], proxy=None, ssl=tls) as client:
            await client.send(SASL_HEADER)
            assert (await client.recv(decode=False))[:8] == SASL_HEADER


@pytest.mark.parametrize("target", ["https://127.0.0.1$PATH", "wss://some.name:443$PATH/", "$PATH"])
async def test_the_target_may_be_in_absolute_form(server: NamespaceServer, target: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
    request = f"GET {target.replace('$PATH', PATH)} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    request += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    writer.write(request.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
    writer.close()


async def test_a_websocket_may_be_silent_for_longer_than_headers_may_take(
    server: NamespaceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "HEADERS_WAIT_S", 1.0)
    url = f"ws://127.0.0.1:{server.http_port}{PATH}"
    async with connect(url, subprotocols=[Subprotocol(SUB_PROTOCOL)], proxy=None) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.recv(), 1.5)
        await client.send(SASL_HEADER)
        assert (await client.recv(decode=False))[:8] == SASL_HEADER


async def test_the_borders_of_messages_mean_nothing(client: ClientConnection) -> None:
    for byte in SASL_HEADER:
        await client.send(bytes([byte]))
    answer = await client.recv(decode=False)
    assert answer[:8] == SASL_HEADER


async def test_a_message_of_a_stranger_is_not_kept_until_it_is_whole(client: ClientConnection) -> None:
    await client.send(SASL_HEADER + bytes(STRANGER_MESSAGE_SIZE_MAX - len(SASL_HEADER) + 1))
    with pytest.raises(ConnectionClosed) as closed:
        await client.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == CloseCode.MESSAGE_TOO_BIG


async def test_a_client_with_a_valid_key_may_send_larger_messages(
    server: NamespaceServer, client: ClientConnection
) -> None:
    amqp = await opened(server, client)
    amqp.begin()
    await client.send(EMPTY_FRAME * (STRANGER_MESSAGE_SIZE_MAX // len(EMPTY_FRAME) + 1))
    await until(SessionBegun, amqp, client)


async def opened(server: NamespaceServer, client: ClientConnection) -> Connection:
    credentials = plain_credentials(server.root_rule.name, server.root_rule.primary_key)
    amqp = Connection(Role.CLIENT, ConnectionSettings(container_id="client", sasl_credentials=credentials), NOW)
    amqp.open()
    await until(Opened, amqp, client)
    return amqp


async def until(kind: type[Event], amqp: Connection, client: ClientConnection) -> None:
    while True:
        await client.send(amqp.data_to_send())
        if any(isinstance(event, kind) for event in amqp.receive_data(await client.recv(decode=False), NOW)):
            return


async def test_the_links_of_a_client_are_not_paused_while_it_reads(
    server: NamespaceServer, client: ClientConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = []
    pause = ConnectionGateway.pause

    def noted(gateway: ConnectionGateway) -> None:
        pauses.append(gateway)
        pause(gateway)

    monkeypatch.setattr(ConnectionGateway, "pause", noted)
    amqp = await opened(server, client)
    for _ in range(10):
        amqp.begin()
        await until(SessionBegun, amqp, client)
    assert not pauses


@pytest.mark.parametrize("text", [b"AMQP", b"\xc0\xff"])
async def test_text_is_no_amqp_whether_or_not_it_is_one(client: ClientConnection, text: bytes) -> None:
    await client.send(text, text=True)
    with pytest.raises(ConnectionClosed) as closed:
        await client.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == NOT_BINARY


async def test_what_breaks_the_protocol_ends_the_connection(client: ClientConnection) -> None:
    await client.send(b"HTTP, maybe?")
    assert [message async for message in client] == [b"AMQP\x00\x01\x00\x00"]
