"""Memory and descriptors under attack: what a client leaves unfinished, unread or silent is bounded, for one and for all of them."""

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from websockets.frames import Frame, Opcode

from tests.attack.attacker import attach, hello, websocket_frames
from twinbus import bounded_http
from twinbus.amqp.codec.composites import Composite, encode_composite
from twinbus.amqp.codec.delivery_state import Rejected
from twinbus.amqp.codec.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, FrameReader, encode_frame
from twinbus.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    Flow,
    Open,
    Performative,
    Transfer,
    decode_performative,
)
from twinbus.amqp.codec.sasl import Init, SaslCredentials, plain_credentials
from twinbus.amqp.codec.sections import MessageProperties, Sections, ValueBody, encode_sections
from twinbus.amqp.codec.terminus import Coordinator, Source, Target
from twinbus.amqp.codec.types import Int, Long
from twinbus.broker import held_contents
from twinbus.client.connecting.token_sources import sign
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.gateway import connection_gateway
from twinbus.http import websocket
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.server.listening import http_server, listener
from twinbus.server.listening.admission import SharedLimits
from twinbus.server.listening.http_server import BinaryWebSocket
from twinbus.server.listening.listener import AmqpTransport
from twinbus.server.namespace import NamespaceServer
from twinbus.server.server_settings import ServerSettings
from twinbus.store.changes import StoredMessage

T = TypeVar("T", bound=Performative)

HOST = "127.0.0.1"
WAIT_S = 60.0
PIECE = bytes(60_000)
STRANGER = SaslCredentials()
UPGRADE = (
    f"GET {websocket.PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
).encode()
READ_ANSWERS_MAX = 4 << 20
"""What one read can cause in answers, in these tests."""


@asynccontextmanager
async def serving(
    folder: Path, limits: SharedLimits | None = None, connections_max: int = 100
) -> AsyncIterator[NamespaceServer]:
    settings = ServerSettings(
        "attacked",
        folder,
        amqp_port=0,
        http_port=0,
        tls_port=0,
        store_count=1,
        connections_max=connections_max,
        shared_limits=limits or SharedLimits(),
    )
    server = NamespaceServer(settings)
    await server.start()
    await server.control.create_queue(QueueDescription("orders"))
    try:
        yield server
    finally:
        await server.stop()


def frame(performative: Composite, payload: bytes = b"") -> bytes:
    return encode_frame(0, encode_composite(performative) + payload)


async def connected(port: int, tls: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = socket.socket()
    # What the system keeps for a client that does not read would take the tests seconds to fill.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (HOST, port))
    return await asyncio.open_connection(sock=sock, limit=1_024, ssl=tls, server_hostname=tls and "localhost")


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Attacker:
    """Says frames without waiting for answers, and reads when it is asked to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader(1 << 20)

    @classmethod
    async def connect(
        cls, server: NamespaceServer, credentials: SaslCredentials = STRANGER, tls: ssl.SSLContext | None = None
    ) -> "Attacker":
        port = server.amqp_port if tls is None else server.tls_port
        assert port is not None
        attacker = cls(*await connected(port, tls))
        init = Init(mechanism=credentials.mechanism, initial_response=credentials.initial_response)
        attacker.say(SASL_HEADER, encode_frame(0, encode_composite(init), SASL_FRAME), AMQP_HEADER)
        attacker.say(frame(Open(container_id="attacker", hostname="localhost")))
        attacker.say(frame(Begin(next_outgoing_id=0, incoming_window=5_000, outgoing_window=5_000)))
        await attacker.hear(Begin)
        return attacker

    def say(self, *pieces: bytes) -> None:
        self._writer.write(b"".join(pieces))

    def attach(self, address: str) -> None:
        target = Target(address=address)
        self.say(
            frame(Attach(name="a", handle=0, role=SENDER, source=Source(), target=target, initial_delivery_count=0))
        )

    def begin_message(self, size: int, delivery_id: int = 0) -> None:
        """Send the first `size` bytes of a message, in whole pieces, and no more of it."""
        for _ in range(size // len(PIECE)):
            self.say(frame(Transfer(handle=0, delivery_id=delivery_id, delivery_tag=b"t", more=True), PIECE))

    def end_message(self, delivery_id: int = 0) -> None:
        self.say(frame(Transfer(handle=0, delivery_id=delivery_id, delivery_tag=b"t", more=False), b""))

    async def hear(self, kind: type[T]) -> T:
        """The next performative of this kind."""
        async with asyncio.timeout(WAIT_S):
            while True:
                data = await self._reader.read(1 << 16)
                assert data, "closed"
                found = None
                for frame_type, _, _, read, start, end in self._frames.frames(data):
                    if frame_type == SASL_FRAME and read[start + 2] == 0x44:
                        self._frames.expects_header = True
                    elif frame_type == 0 and end > start and found is None:
                        performative, _ = decode_performative(read[start:end])
                        found = performative if isinstance(performative, kind) else None
                if found is not None:
                    return found

    async def is_closed(self) -> bool:
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(WAIT_S):
                while await self._reader.read(1 << 16):
                    pass
        return True

    def close(self) -> None:
        self._writer.transport.abort()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def served(server: NamespaceServer, count: int = 20) -> bool:
    """Whether a well-behaved client can send, receive and complete messages."""
    async with asyncio.timeout(WAIT_S), await Namespace.connect(server.connection_string) as namespace:
        sender, receiver = await namespace.sender("orders"), await namespace.receiver("orders", deletes=True)
        sent = await sender.send([encode_message(bytes(100_000)) for _ in range(count)])
        received = await receiver.collect(count, wait_s=WAIT_S)
    return sent == [None] * count and len(received) == count


def credentials_of(server: NamespaceServer) -> SaslCredentials:
    return plain_credentials(server.root_rule.name, server.root_rule.primary_key)


def transports(server: NamespaceServer) -> list[AmqpTransport]:
    return [each for each in server.connections if isinstance(each, AmqpTransport)]


# Messages that never end


async def test_a_client_without_a_token_has_little_room_for_incomplete_messages(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        attackers = [await Attacker.connect(server) for _ in range(10)]
        for attacker in attackers:
            attacker.attach("$cbs")
            await attacker.hear(Attach)
            attacker.begin_message(60_000)
        await until(lambda: server.reassembly.size == 10 * len(PIECE))
        for attacker in attackers:
            attacker.begin_message(300_000)
            attacker.end_message()
            refusal = await attacker.hear(Disposition)
            assert isinstance(refusal.state, Rejected)
        assert server.reassembly.size == 0
        assert await served(server)
        for attacker in attackers:
            attacker.close()


async def test_a_client_without_a_token_has_few_links_and_sessions(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        attacker = await Attacker.connect(server)
        for channel in range(1, 100):
            begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
            attacker.say(encode_frame(channel, encode_composite(begin)))
        closed = await attacker.hear(Close)
        assert closed.error is not None
        assert closed.error.condition == "amqp:resource-limit-exceeded"
        attacker.close()
        attacker = await Attacker.connect(server)
        for handle in range(40):
            target = Target(address="$cbs")
            attach = Attach(name=str(handle), handle=handle, role=SENDER, target=target, initial_delivery_count=0)
            attacker.say(frame(attach))
        refusal = await attacker.hear(Detach)
        assert refusal.error is not None
        assert refusal.error.condition == "amqp:resource-limit-exceeded"
        attacker.close()


async def test_incomplete_messages_of_all_connections_together_are_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limit = 1_000_000
    async with serving(tmp_path, SharedLimits(incomplete_size_max=limit)) as server:
        attackers = [await Attacker.connect(server, credentials_of(server)) for _ in range(8)]
        for attacker in attackers:
            attacker.attach("orders")
            await attacker.hear(Attach)
            attacker.begin_message(240_000)
        await until(lambda: server.reassembly.dropped_count > 0)
        assert await served(server)
        assert server.reassembly.size <= limit
        outcomes = []
        for attacker in attackers:
            attacker.end_message()
            outcomes.append((await attacker.hear(Disposition)).state)
        # Those that kept their bytes are refused as well, because zeros are not a message.
        errors = [each.error for each in outcomes if isinstance(each, Rejected)]
        busy = [error for error in errors if error is not None and error.condition == "com.microsoft:server-busy"]
        assert len(busy) == server.reassembly.dropped_count
        assert server.reassembly.size == 0
        await until(lambda: any("refused" in each.message for each in caplog.records))
        for attacker in attackers:
            attacker.close()


async def test_what_a_lost_connection_left_incomplete_is_given_back(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        attacker = await Attacker.connect(server, credentials_of(server))
        attacker.attach("orders")
        attacker.begin_message(240_000)
        await until(lambda: server.reassembly.size == 240_000)
        attacker.close()
        await until(lambda: server.reassembly.size == 0)


async def test_unfinished_bodies_of_requests_count_as_incomplete_messages(tmp_path: Path) -> None:
    limit = 1_000_000
    async with serving(tmp_path, SharedLimits(incomplete_size_max=limit)) as server:
        rule = server.root_rule
        token = sign(f"sb://{HOST}", rule.name, rule.primary_key, 2_000_000_000)
        start = f"POST /orders/messages HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: {token}\r\nContent-Length: 250000\r\n\r\n"
        clients = [await connected(server.http_port) for _ in range(8)]
        for _, writer in clients:
            writer.write(start.encode() + bytes(240_000))
        await until(lambda: server.reassembly.dropped_count >= 4)
        assert await served(server)
        assert server.reassembly.size <= limit
        answers = set()
        for reader, writer in clients:
            writer.write(bytes(10_000))
            answers.add((await reader.readexactly(12)).decode())
            writer.close()
        assert answers == {"HTTP/1.1 201", "HTTP/1.1 503"}
        await until(lambda: server.reassembly.size == 0)


def links(server: NamespaceServer) -> bytes:
    """A connection that uses whatever a connection can have."""
    targets: list[Target | Coordinator] = [
        Target(address=address) for address in ("orders", "$cbs", "orders/$management")
    ]
    senders = [attach(f"to {handle}", handle, target) for handle, target in enumerate([*targets, Coordinator()])]
    receiver = Attach(name="from", handle=9, role=RECEIVER, source=Source(address="orders"), target=Target())
    return b"".join((hello(credentials_of(server)), *senders, frame(receiver)))


@pytest.mark.parametrize(
    ("kind", "says", "until_seen"),
    [
        ("AMQP", links, b"from"),
        ("a WebSocket", lambda _: UPGRADE, b"\r\n\r\n"),
        ("HTTP", lambda _: b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"),
    ],
)
async def test_a_connection_that_has_ended_leaves_nothing_to_the_collector(
    tmp_path: Path, kind: str, says: Callable[[NamespaceServer], bytes], until_seen: bytes
) -> None:
    """It seldom runs, and would find those of thousands of connections: everybody would wait for it."""

    async def come_and_go(server: NamespaceServer) -> None:
        reader, writer = await connected(server.amqp_port)
        writer.write(says(server))
        seen = b""
        while until_seen not in seen:
            piece = await reader.read(1_024)
            assert piece, seen
            seen += piece
        writer.close()
        await until(lambda: server.admission.socket_count == 0)

    async with serving(tmp_path) as server:
        await come_and_go(server)
        gc.collect()
        before = Counter(type(each) for each in gc.get_objects())

        def left() -> list[str]:
            more = Counter(type(each) for each in gc.get_objects()) - before
            names = [f"{found.__module__}.{found.__name__}" for found, count in more.items() if count >= 10]
            return [name for name in names if name.startswith(("twinbus", "uvicorn", "websockets", "starlette"))]

        gc.disable()
        try:
            for _ in range(10):
                await come_and_go(server)
            for _ in range(100):
                # The last ones may still be ending.
                await asyncio.sleep(0.005)
                if not left():
                    break
            assert left() == []
        finally:
            gc.enable()


@pytest.mark.parametrize("kind", ["queue", "queue with sessions", "topic", "subscription"])
async def test_an_entity_that_was_deleted_leaves_nothing_to_the_collector(tmp_path: Path, kind: str) -> None:
    """Whoever may manage a namespace creates and deletes thousands of them, with a thousand objects in each."""

    async def come_and_go(server: NamespaceServer) -> None:
        control = server.control
        match kind:
            case "queue":
                await control.create_queue(QueueDescription("q", enable_partitioning=True))
                await control.delete("q")
            case "queue with sessions":
                queue = QueueDescription("q", requires_session=True, requires_duplicate_detection=True)
                await control.create_queue(queue)
                await control.delete("q")
            case "topic":
                await control.create_topic(TopicDescription("t"))
                await control.create_subscription(SubscriptionDescription("t", "s"))
                await control.delete("t")
            case _:
                await control.create_subscription(SubscriptionDescription("news", "s"))
                await control.delete_subscription("news", "s")

    async with serving(tmp_path) as server:
        await server.control.create_topic(TopicDescription("news"))
        await come_and_go(server)
        gc.collect()
        before = Counter(type(each) for each in gc.get_objects())
        gc.disable()
        try:
            for _ in range(10):
                await come_and_go(server)
            more = Counter(type(each) for each in gc.get_objects()) - before
            left = [f"{found.__module__}.{found.__name__}" for found, count in more.items() if count >= 10]
            assert [name for name in left if name.startswith("twinbus")] == []
        finally:
            gc.enable()


# Answers that nobody reads


async def has_stopped_reading(transport: AmqpTransport, server: NamespaceServer) -> bool:
    """For more than a moment: it also stops so that others have their turn, and buffers of the system grow and take what waits."""
    for _ in range(3):
        if not transport.is_reading_paused or transport.unread_size < connection_gateway.UNREAD_SIZE_MAX:
            return False
        assert await served(server, 3)
    return transport.is_reading_paused


async def ask_without_reading(attacker: Attacker, server: NamespaceServer) -> AmqpTransport:
    """Send messages that are refused, each with an answer of its own, until the server stops reading."""
    attacker.attach("orders")
    await attacker.hear(Attach)
    (transport,) = transports(server)
    delivery_id = 0
    async with asyncio.timeout(WAIT_S):
        while not await has_stopped_reading(transport, server):
            for _ in range(500):
                delivery_id += 2  # else the answers to neighbours would be one
                attacker.say(frame(Transfer(handle=0, delivery_id=delivery_id, delivery_tag=b"t"), b"\0"))
            await asyncio.sleep(0)
    return transport


@pytest.mark.parametrize("is_over_tls", [False, True])
async def test_a_client_that_does_not_read_is_not_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_over_tls: bool
) -> None:
    monkeypatch.setattr(connection_gateway, "UNREAD_SIZE_MAX", 256 << 10)
    async with serving(tmp_path) as server:
        attacker = await Attacker.connect(server, credentials_of(server), unverified() if is_over_tls else None)
        transport = await ask_without_reading(attacker, server)
        assert await served(server, 3)
        assert transport.unread_size < (256 << 10) + READ_ANSWERS_MAX
        assert transport.is_reading_paused
        # It goes on reading: what it asked for and nobody had read yet is answered too, and would fill the buffer again.
        reading = asyncio.create_task(hear_all(attacker))
        await until(lambda: not transport.unread_size and not transport.is_reading_paused)
        reading.cancel()
        attacker.close()


async def hear_all(attacker: Attacker) -> None:
    while True:
        await attacker.hear(Disposition)


async def test_of_clients_that_do_not_read_those_that_leave_most_are_cut_when_all_leave_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_gateway, "UNREAD_SIZE_MAX", 256 << 10)
    async with serving(tmp_path) as server:
        attacker = await Attacker.connect(server, credentials_of(server))
        transport = await ask_without_reading(attacker, server)
        assert server.connections.cut_unread(1 << 30) == 0
        assert transport in transports(server)
        assert server.connections.cut_unread(128 << 10) == 1
        await until(lambda: transport not in transports(server))
        assert await served(server, 3)
        assert await attacker.is_closed()


async def test_a_connection_that_was_closed_ends_though_its_client_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_gateway, "UNREAD_SIZE_MAX", 256 << 10)
    monkeypatch.setattr(listener, "CLOSE_WAIT_S", 0.1)
    async with serving(tmp_path) as server:
        attacker = await Attacker.connect(server, credentials_of(server))
        transport = await ask_without_reading(attacker, server)
        transport.close()
        await until(lambda: not transports(server))
        attacker.close()


async def ask_for_large_answers(server: NamespaceServer, size: int, count: int, credit: int) -> Attacker:
    """Peek at a message of this size so many times, and read no answer."""
    async with await Namespace.connect(server.connection_string) as namespace:
        assert await (await namespace.sender("orders")).send([encode_message(bytes(size))]) == [None]
    attacker = await Attacker.connect(server, credentials_of(server))
    attacker.attach("orders/$management")
    source = Source(address="orders/$management")
    attacker.say(frame(Attach(name="r", handle=1, role=RECEIVER, source=source, target=Target(address="replies"))))
    flow = Flow(
        handle=1,
        link_credit=credit,
        delivery_count=0,
        next_incoming_id=0,
        incoming_window=1_000_000,
        next_outgoing_id=0,
        outgoing_window=5_000,
    )
    attacker.say(frame(flow))
    peek = Sections(
        properties=MessageProperties(message_id="1", reply_to="replies"),
        application_properties={"operation": "com.microsoft:peek-message"},
        body=ValueBody({"from-sequence-number": Long(0), "message-count": Int(1)}),
    )
    for number in range(count):
        request = Transfer(handle=0, delivery_id=number, delivery_tag=b"t", settled=True)
        attacker.say(frame(request, encode_sections(peek)))
    return attacker


async def test_large_answers_are_not_piled_up_for_a_client_that_asks_and_does_not_read(tmp_path: Path) -> None:
    size, request_count = 200_000, 500
    async with serving(tmp_path) as server:
        attacker = await ask_for_large_answers(server, size, request_count, credit=request_count)
        (transport,) = transports(server)
        await until(lambda: transport.is_reading_paused and transport.unread_size > 1 << 20)
        most = transport.unread_size
        for _ in range(50):
            assert await health(server) == b"HTTP/1.1 200"
            most = max(most, transport.unread_size)
        assert most < 26 * size  # those that are worked on at a time, and what was written before
        assert await served(server, 1)
        attacker.close()


async def test_answers_that_wait_for_credit_count_as_unread(tmp_path: Path) -> None:
    size, request_count = 200_000, 20
    async with serving(tmp_path) as server:
        attacker = await ask_for_large_answers(server, size, request_count, credit=0)
        (transport,) = transports(server)
        await until(lambda: transport.unread_size > request_count * size)
        assert server.connections.cut_unread(1 << 20) == 1
        assert await attacker.is_closed()


# Connections that are left open


async def health(server: NamespaceServer) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, server.http_port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), WAIT_S)
    writer.close()
    return answer[:12]


@pytest.mark.parametrize("start", [b"", b"GET / HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
async def test_http_connections_that_are_left_open_keep_nobody_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, start: bytes
) -> None:
    async with serving(tmp_path, SharedLimits(http_count_max=20)) as server:
        left_open = []
        for _ in range(60):
            reader, writer = await asyncio.open_connection(HOST, server.http_port)
            writer.write(start)
            left_open.append((reader, writer))
        assert await health(server) == b"HTTP/1.1 200"
        assert await served(server, 1)
        for reader, _ in left_open[:40]:
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), WAIT_S)
        assert len([each for each in caplog.records if each.message == "refused"]) == 1
        for _, writer in left_open:
            writer.close()


async def test_what_is_no_request_is_logged_once_however_often_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as server:
        caplog.clear()
        for nonsense in (b"no request\r\n\r\n", b"GET / HTTP/1.1\r\nno header\r\n\r\n", b"\xff" * 100) * 10:
            reader, writer = await asyncio.open_connection(HOST, server.http_port)
            writer.write(nonsense)
            assert (await asyncio.wait_for(reader.read(), WAIT_S)).startswith(b"HTTP/1.1 400")
            writer.close()
        assert await health(server) == b"HTTP/1.1 200"
        assert [each.message for each in caplog.records] == ["refused"]


ANONYMOUS = encode_frame(0, encode_composite(Init(mechanism="ANONYMOUS")), SASL_FRAME)
OPENED = SASL_HEADER + ANONYMOUS + AMQP_HEADER + frame(Open(container_id="a"))


@pytest.mark.parametrize("start", [b"AMQP", OPENED, UPGRADE], ids=["started", "opened", "websocket"])
async def test_connections_for_amqp_that_are_left_without_a_token_keep_nobody_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, start: bytes
) -> None:
    async with serving(tmp_path, connections_max=20) as server:
        left_open = []
        for _ in range(60):
            reader, writer = await asyncio.open_connection(HOST, server.amqp_port)
            writer.write(start)
            left_open.append((reader, writer))
        assert await served(server, 1)
        for reader, _ in left_open[:40]:
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), WAIT_S)
        assert len(server.connections) <= 20
        await until(lambda: any(each.message == "refused" for each in caplog.records))
        for _, writer in left_open:
            writer.close()


@pytest.mark.parametrize("start", [b"", b"AMQP"])
async def test_sockets_stay_free_for_the_store_and_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, start: bytes
) -> None:
    monkeypatch.setattr("twinbus.server.namespace.socket_count_max", lambda: 20)
    async with serving(tmp_path) as server:
        silent = [await asyncio.open_connection(HOST, server.amqp_port) for _ in range(40)]
        for _, writer in silent:
            writer.write(start)
        silent += [await asyncio.open_connection(HOST, server.http_port) for _ in range(40)]
        assert await health(server) == b"HTTP/1.1 200"
        assert await served(server, 1)
        assert server.admission.socket_count <= 20
        (record,) = [each for each in caplog.records if each.message == "refused"]
        assert record.levelno == logging.WARNING
        for _, writer in silent:
            writer.close()


async def test_a_request_that_goes_on_after_its_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "HEADERS_WAIT_S", 1.0)
    async with serving(tmp_path) as server:
        reader, writer = await asyncio.open_connection(HOST, server.http_port)
        writer.write(b"POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 401")
        writer.write(b"x")
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()


async def test_an_http_client_that_does_not_read_its_answers_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "UNREAD_WAIT_S", 0.1)
    async with serving(tmp_path) as server:
        _, writer = await connected(server.http_port)
        before = server.admission.socket_count
        async with asyncio.timeout(WAIT_S):
            while server.admission.socket_count >= before:
                if not writer.transport.is_closing():
                    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
                await asyncio.sleep(0.01)
        assert await health(server) == b"HTTP/1.1 200"
        writer.close()


@pytest.mark.parametrize("last", [Frame(Opcode.PING, b""), Frame(Opcode.TEXT, b"text")])
async def test_a_websocket_whose_client_pings_and_reads_nothing_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: Frame
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_WAIT", 100)
    monkeypatch.setattr(http_server, "CLOSE_WAIT", 100)
    async with serving(tmp_path) as server:
        reader, writer = await connected(server.http_port)
        writer.write(UPGRADE)
        assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        # Not by `isinstance`: there are proxies of what has gone, which raise when they are asked for their class.
        objects = [each for each in gc.get_objects() if type(each) is BinaryWebSocket]
        (served_one,) = [each for each in objects if not each.disconnected]
        pings = Frame(Opcode.PING, bytes(125)).serialize(mask=True) * 500
        async with asyncio.timeout(WAIT_S):
            while served_one.writable.is_set():
                writer.write(pings)
                await writer.drain()
            writer.write(last.serialize(mask=True))
            if last.opcode is Opcode.PING:
                monkeypatch.setattr(connection_gateway, "TOKEN_WAIT", 100)
            with contextlib.suppress(ConnectionError):
                while True:
                    assert served_one.transport.get_write_buffer_size() < 1 << 20
                    writer.write(pings)
                    await writer.drain()
        await until(lambda: not len(server.connections))
        writer.close()


async def test_a_websocket_whose_client_does_not_read_leaves_messages_to_others(tmp_path: Path) -> None:
    count, for_others, body = 500, 200, bytes(100_000)
    async with serving(tmp_path) as server, await Namespace.connect(server.connection_string) as namespace:
        sender = await namespace.sender("orders")
        for _ in range(count // 50):
            assert await sender.send([encode_message(body) for _ in range(50)]) == [None] * 50
        reader, writer = await connected(server.http_port)
        writer.write(UPGRADE)
        assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        source = Source(address="orders")
        receiver = Attach(name="r", handle=0, role=RECEIVER, source=source, target=Target(address="me"))
        flow = Flow(
            handle=0,
            link_credit=count,
            delivery_count=0,
            next_incoming_id=0,
            incoming_window=5_000,
            next_outgoing_id=0,
            outgoing_window=5_000,
        )
        writer.write(websocket_frames(hello(credentials_of(server)) + frame(receiver) + frame(flow)))
        (queue,) = server.entities.queues()
        await until(lambda: any(len(fragment.locks) for fragment in queue.main.fragments))
        for _ in range(50):
            assert await health(server) == b"HTTP/1.1 200"
        # The client gets what has been read ahead, and no more.
        assert len(await (await namespace.receiver("orders")).collect(for_others, wait_s=WAIT_S)) == for_others
        writer.close()


# Locked messages


async def test_a_receiver_that_takes_everything_and_settles_nothing_leaves_contents_to_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_contents, "HELD_BYTES_MAX", 2 << 20)
    count, body = 300, bytes(60_000)
    async with serving(tmp_path) as server, await Namespace.connect(server.connection_string) as namespace:
        sender = await namespace.sender("orders")
        for _ in range(count // 50):
            assert await sender.send([encode_message(body) for _ in range(50)]) == [None] * 50
        receiver = await namespace.receiver("orders", credit=count)
        taken = await receiver.collect(count, wait_s=WAIT_S)
        assert len(taken) == count
        (queue,) = server.entities.queues()
        assert sum([len(fragment.locks) for fragment in queue.main.fragments]) == count
        gc.collect()
        rows = [
            each for each in gc.get_objects() if isinstance(each, StoredMessage) and isinstance(each.content, bytes)
        ]
        # The last ones, and what is on its way to a receiver or was read ahead.
        assert sum([len(row.content) for row in rows]) < 6 << 20
        await receiver.release(taken)
        again = await receiver.collect(count, wait_s=WAIT_S)
        assert [message.body for message in again] == [body] * count
