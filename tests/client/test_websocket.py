"""AMQP over WebSocket, plain and with TLS: what passes, what ends it, and what is refused."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from tests.client.relay import Relay
from tests.interop.running_server import RunningServer, wait_until
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.dialling import Address, Transport, address_of
from twinbus.client.connecting.websocket import OUTGOING_SIZE_MAX, SUB_PROTOCOL
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.remote_errors import ConnectionLost, PeerNotTrusted, WebSocketRefused
from twinbus.errors import ArgumentError, EntityNotFound, OperationTimeout

KEYS = "SharedAccessKeyName=root;SharedAccessKey=secret"
WAIT_S = 10
STREAM_COUNT = 3_000


def http_of(server: RunningServer) -> str:
    return f"http://127.0.0.1:{server.server.http_port}"


async def connect(server: RunningServer, endpoint: str, timeout_s: float = WAIT_S) -> Namespace:
    return await Namespace.connect(
        server.connection_string,
        transport=Transport.WEB_SOCKET,
        endpoint=endpoint,
        clock=server.clock,
        timeout_s=timeout_s,
    )


async def test_messages_pass_both_ways(server: RunningServer) -> None:
    server.create_queue("both-ways")
    async with await connect(server, http_of(server)) as namespace:
        sender = await namespace.sender("both-ways")
        payloads = [encode_message(bytes(1_000), message_id=str(number)) for number in range(STREAM_COUNT)]
        assert await sender.send(payloads) == [None] * STREAM_COUNT
        receiver = await namespace.receiver("both-ways", credit=500)
        seen: list[str | None] = []
        while len(seen) < STREAM_COUNT:
            messages = await receiver.receive(500, wait_s=WAIT_S)
            assert messages
            seen += [message.message_id for message in messages]
            assert await receiver.complete(messages) == [None] * len(messages)
        assert seen == [str(number) for number in range(STREAM_COUNT)]


async def test_what_is_larger_than_one_binary_message_arrives_whole(server: RunningServer) -> None:
    server.create_queue("large")
    bodies = [bytes([number]) * 200_000 for number in range(10)]
    assert sum(map(len, bodies)) > 4 * OUTGOING_SIZE_MAX
    async with await connect(server, http_of(server)) as namespace:
        payloads = [encode_message(body) for body in bodies]
        assert await (await namespace.sender("large")).send(payloads) == [None] * 10
        receiver = await namespace.receiver("large", deletes=True)
        messages = await receiver.collect(10, wait_s=WAIT_S)
        assert [message.payload.endswith(body) for message, body in zip(messages, bodies, strict=True)] == [True] * 10


async def test_an_error_of_the_namespace_is_the_same_as_over_tcp(server: RunningServer) -> None:
    async with await connect(server, http_of(server)) as namespace:
        with pytest.raises(EntityNotFound, match="missing"):
            await namespace.sender("missing")


async def test_what_is_closed_here_is_closed_there(server: RunningServer) -> None:
    namespace = await connect(server, http_of(server))
    await namespace.close()
    await asyncio.to_thread(wait_until, lambda: len(server.server.connections) == 0)
    assert isinstance(namespace.fault, ConnectionLost)


async def test_code_that_blocks_has_it_too(server: RunningServer) -> None:
    server.create_queue("blocks")

    def send() -> None:
        with BlockingNamespace.connect(
            server.connection_string, transport=Transport.WEB_SOCKET, endpoint=http_of(server), timeout_s=WAIT_S
        ) as namespace:
            assert namespace.sender("blocks").send([encode_message("a")]) == [None]

    await asyncio.to_thread(send)


async def test_a_connection_that_is_cut_is_lost(server: RunningServer) -> None:
    relay = Relay(server.server.http_port)
    await relay.start()
    server.create_queue("cut")
    namespace = await connect(server, f"http://127.0.0.1:{relay.port}")
    sender = await namespace.sender("cut")
    relay.cut()
    (error,) = await sender.send([encode_message("a")])
    assert isinstance(error, ConnectionLost)
    assert isinstance(namespace.fault, ConnectionLost)
    await namespace.close()
    await relay.stop()


@pytest.fixture(scope="module")
def secure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("secure"), store_count=2, tls_port=0)
    yield running
    running.stop()


async def test_with_tls_it_is_the_port_of_the_connection_string(secure_server: RunningServer) -> None:
    secure_server.create_queue("secret")
    text, authority = secure_server.server.tls_connection_string, secure_server.server.tls_authority
    assert text is not None
    async with await Namespace.connect(
        text,
        transport=Transport.WEB_SOCKET,
        tls=ssl.create_default_context(cafile=authority),
        clock=secure_server.clock,
        timeout_s=WAIT_S,
    ) as namespace:
        payloads = [encode_message(bytes(100_000)) for _ in range(20)]
        assert await (await namespace.sender("secret")).send(payloads) == [None] * 20
        receiver = await namespace.receiver("secret", deletes=True)
        assert len(await receiver.collect(20, wait_s=WAIT_S)) == 20


async def test_a_certificate_that_nobody_vouches_for_is_refused(secure_server: RunningServer) -> None:
    text = secure_server.server.tls_connection_string
    assert text is not None
    with pytest.raises(PeerNotTrusted):
        await Namespace.connect(text, transport=Transport.WEB_SOCKET, timeout_s=WAIT_S)


async def test_a_port_where_nobody_listens_is_named(server: RunningServer) -> None:
    with pytest.raises(ConnectionLost, match=r"Nothing answers at 127\.0\.0\.1:1:"):
        await connect(server, "http://127.0.0.1:1")


async def test_without_tls_too_it_is_the_port_of_the_connection_string(server: RunningServer) -> None:
    server.create_queue("one-port")
    async with await Namespace.connect(
        server.connection_string, transport=Transport.WEB_SOCKET, clock=server.clock, timeout_s=WAIT_S
    ) as namespace:
        assert await (await namespace.sender("one-port")).send([encode_message("a")]) == [None]


async def test_a_node_without_the_package_says_that_it_has_to_be_installed(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "twinbus.client.connecting.websocket")
    monkeypatch.setitem(sys.modules, "websockets.client", None)
    with pytest.raises(ArgumentError, match="pip install websockets"):
        await connect(server, http_of(server))


@asynccontextmanager
async def stranger(status: int | None, *, speaks_amqp: bool = False) -> AsyncIterator[str]:
    """A server of WebSockets that is no namespace: it answers with the status, or grants the upgrade and says nothing."""

    def answer(connection: ServerConnection, request: Request) -> Response | None:
        return None if status is None else connection.respond(status, "no\n")

    async def hold(connection: ServerConnection) -> None:
        await connection.wait_closed()

    protocols = [SUB_PROTOCOL] if speaks_amqp else None
    select = None if speaks_amqp else lambda connection, offered: None
    async with serve(
        hold, "127.0.0.1", 0, process_request=answer, subprotocols=protocols, select_subprotocol=select
    ) as server:
        yield f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


async def test_a_server_that_knows_no_such_path_is_not_tried_again(server: RunningServer) -> None:
    async with stranger(404) as endpoint:
        with pytest.raises(WebSocketRefused, match="HTTP status 404") as caught:
            await connect(server, endpoint)
    assert not caught.value.is_transient


async def test_a_server_that_is_out_of_order_may_be_tried_again(server: RunningServer) -> None:
    async with stranger(503) as endpoint:
        with pytest.raises(ConnectionLost, match="HTTP status 503"):
            await connect(server, endpoint)


async def test_a_server_that_speaks_something_else_over_websockets_is_left(server: RunningServer) -> None:
    async with stranger(None) as endpoint:
        with pytest.raises(WebSocketRefused, match="does not speak AMQP"):
            await connect(server, endpoint)


async def test_a_server_that_grants_the_upgrade_and_says_nothing_is_not_waited_for(server: RunningServer) -> None:
    async with stranger(None, speaks_amqp=True) as endpoint:
        with pytest.raises(OperationTimeout):
            await connect(server, endpoint, timeout_s=0.2)


async def test_a_server_that_does_not_answer_the_request_is_not_waited_for(server: RunningServer) -> None:
    relay = Relay(server.server.http_port)
    await relay.start()
    relay.hold()
    with pytest.raises(OperationTimeout):
        await connect(server, f"http://127.0.0.1:{relay.port}", timeout_s=0.2)
    await relay.stop()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Endpoint=sb://contoso.servicebus.windows.net/", Address("contoso.servicebus.windows.net", 443, True)),
        ("Endpoint=sb://bus.example:5671/", Address("bus.example", 5671, True)),
        ("Endpoint=sb://localhost;UseDevelopmentEmulator=true", Address("localhost", 5672, False)),
        ("Endpoint=sb://localhost:5673;UseDevelopmentEmulator=true", Address("localhost", 5673, False)),
    ],
)
def test_the_connection_string_says_where_websockets_are(text: str, expected: Address) -> None:
    assert address_of(parse_connection_string(f"{text};{KEYS}"), Transport.WEB_SOCKET) == expected


def test_an_endpoint_says_it_where_the_port_is_unusual() -> None:
    target = parse_connection_string(f"Endpoint=sb://localhost:7000;UseDevelopmentEmulator=true;{KEYS}")
    assert address_of(target, Transport.WEB_SOCKET, "http://[::1]:8000") == Address("::1", 8000, False)
    assert address_of(target, Transport.WEB_SOCKET, "https://bus.example") == Address("bus.example", 443, True)
    assert address_of(target, Transport.AMQP) == Address("localhost", 7000, False)


@pytest.mark.parametrize(
    ("transport", "endpoint", "complaint"),
    [
        (Transport.AMQP, "http://localhost:5300", "for AMQP over WebSockets"),
        (Transport.WEB_SOCKET, "localhost:5300", "is not an endpoint"),
        (Transport.WEB_SOCKET, "http://localhost:port", "no valid port"),
    ],
)
def test_an_endpoint_that_makes_no_sense_is_refused(transport: Transport, endpoint: str, complaint: str) -> None:
    target = parse_connection_string(f"Endpoint=sb://localhost:80;UseDevelopmentEmulator=true;{KEYS}")
    with pytest.raises(ArgumentError, match=complaint):
        address_of(target, transport, endpoint)
