"""The syphon over the SDK's clients, for credentials that the bulk client does not take."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import CLIENT_OPTIONS, NamespaceProcess, until
from twinbus.amqp.codec.sections import Body, DataBody, SequenceBody, ValueBody, encode_sections
from twinbus.amqp.codec.types import (
    Array,
    Byte,
    Char,
    Decimal64,
    Described,
    Float,
    Int,
    Long,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    UShort,
)
from twinbus.client.async_administration import async_administration_client
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.token_sources import sign
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.clock import SteadyClock
from twinbus.model import wire_names
from twinbus.model.received_payload import read_front
from twinbus.pairing import EventKind, PairingEvent, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from twinbus.pairing.aio import pair_namespaces as aio_pair_namespaces
from twinbus.pairing.aio.blocking_clients import blocking_client
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.rewriting.stages import Stage, staged
from twinbus.pairing.rewriting.transfer import AnyMessage, set_aside
from twinbus.pairing.syphon import stock_transport
from twinbus.pairing.syphon.pump import BATCH_MAX
from twinbus.pairing.syphon.stock_transport import DestinationSenders, StockTransport
from twinbus.pairing.syphon.threads import ThreadedSyphon
from twinbus.pairing.syphon.transport import Chunk, Complete, GiveBackLeft, Receive, SendAll, Taken, Transfer


def options() -> SendAvailabilityPairedNamespaceOptions:
    return SendAvailabilityPairedNamespaceOptions(
        primary_name=f"p{uuid.uuid4().hex[:8]}", backlog_queue_count=1, enable_syphon=True
    )


def put(spaces: Spaces, queue: str, path: str, messages: list[AnyMessage]) -> None:
    with spaces.secondary.client() as client, client.get_queue_sender(queue) as sender:
        aside: Any = [set_aside(message, path, lambda: uuid.uuid4().hex, 0) for message in messages]
        sender.send_messages(aside)


def take(spaces: Spaces, path: str, count: int) -> list[ServiceBusReceivedMessage]:
    with spaces.primary.client() as client, client.get_queue_receiver(path) as receiver:
        return receiver.receive_messages(max_message_count=count, max_wait_time=2)


@pytest.mark.rule("B8.7")
def test_what_follows_another_backlog_queue_comes_home_after_it(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with pair_namespaces(
        spaces.primary.client(),
        spaces.secondary.client(),
        replace(options(), backlog_queue_count=2, enable_syphon=False),
        secondary_administration=spaces.secondary.administration(),
    ) as client:
        first, second = client.backlog_queues[0], client.backlog_queues[1]
        name = first.partition("/")[0]
    ids = [f"m{number}" for number in range(4)]
    aside = [set_aside(ServiceBusMessage(each, message_id=each, session_id="s"), path, str, 0) for each in ids]
    with spaces.secondary.client() as stock:
        for queue, messages in ((first, aside[:2]), (second, staged(aside[2:], {"S": Stage(1, (0,))}))):
            with stock.get_queue_sender(queue) as sender:
                sending: Any = messages
                sender.send_messages(sending)
    with pair_namespaces(
        spaces.primary.client(),
        spaces.secondary.client(),
        replace(options(), backlog_queue_count=2, primary_name=name),
        secondary_administration=spaces.secondary.administration(),
    ):
        until(lambda: spaces.primary.count(path) == len(ids))
    assert [each.message_id for each in take(spaces, path, len(ids))] == ids


@pytest.mark.rule("B9")
def test_a_primary_that_the_application_has_closed_is_no_reason_to_dead_letter(spaces: Spaces) -> None:
    """The pumps go on for the time of grace, and the SDK refuses each message then, as it does for a bad argument."""
    path, primary, heard = spaces.primary.create_queue(), spaces.primary.client(), list[PairingEvent]()
    with pair_namespaces(
        primary,
        spaces.secondary.client(),
        replace(options(), on_event=heard.append),
        secondary_administration=spaces.secondary.administration(),
    ) as client:
        put(spaces, client.backlog_queues[0], path, [ServiceBusMessage("first")])
        until(lambda: spaces.primary.count(path) == 1)
        primary.close()
        put(spaces, client.backlog_queues[0], path, [ServiceBusMessage("second")])
        until(lambda: len(heard) > 1)
    assert {event.kind for event in heard[1:]} == {EventKind.SYPHON_SKIPPED}


class StubbornReceiver:
    """Of the SDK, whose connection breaks while it is closed."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        raise ConnectionResetError


class StubbornSecondary:
    def __init__(self) -> None:
        self.receivers: list[StubbornReceiver] = []

    def get_queue_receiver(self, _: str) -> StubbornReceiver:
        self.receivers.append(StubbornReceiver())
        return self.receivers[-1]


@pytest.mark.rule("B9")
def test_a_syphon_that_stops_closes_every_receiver_even_if_one_fails() -> None:
    client: Any = StubbornSecondary()
    syphon = ThreadedSyphon(client, client, ["a", "b", "c"], options(), SteadyClock())
    with pytest.raises(ConnectionResetError):
        syphon.stop()
    assert [each.is_closed for each in client.receivers] == [True, True, True]


class MeetingPrimary:
    """Takes a message only while others are on their way to other entities."""

    def __init__(self, count: int) -> None:
        self._meeting = threading.Barrier(count)

    def get_queue_sender(self, _: str) -> "MeetingPrimary":
        return self

    def send_messages(self, _: ServiceBusMessageBatch, *, timeout: float) -> None:
        self._meeting.wait(timeout)

    def close(self) -> None: ...


@pytest.mark.rule("B8")
def test_a_destination_that_hangs_does_not_keep_messages_from_others(spaces: Spaces) -> None:
    primary: Any = MeetingPrimary(3)
    with spaces.secondary.client() as secondary:
        receiver = secondary.get_queue_receiver(spaces.secondary.create_queue())
        destinations = DestinationSenders(primary, SteadyClock())
        transport = StockTransport(receiver, destinations, lambda _: None, SteadyClock(), secondary.get_queue_receiver)
        paths = ["orders", "bills", "mails"]
        payload = encode_message(b"x")
        chunks = [Chunk(path, [], [Transfer(path, payload, len(payload), None, None)]) for path in paths]
        assert transport.perform(SendAll(chunks)) == [None] * len(paths)


@pytest.mark.rule("B8")
def test_what_was_left_is_given_back_by_its_lock_and_comes_again_at_once(spaces: Spaces) -> None:
    """Also by another transport than the one that received it."""
    queue = spaces.secondary.create_queue(lock_duration=timedelta(minutes=5))
    put(spaces, queue, "orders", [ServiceBusMessage(str(number)) for number in range(3)])
    with opened_transport(spaces, queue) as first:
        left = GiveBackLeft({each.sequence_number: each.token for each in taken_by(first, 3)})
    with opened_transport(spaces, queue) as second:
        second.perform(left)
        assert [each.sequence_number for each in taken_by(second, 3)] == sorted(left.tokens)
        with pytest.raises(ServiceBusError):
            second.perform(left)


@contextmanager
def opened_transport(spaces: Spaces, queue: str) -> Iterator[StockTransport]:
    with spaces.primary.client() as primary, spaces.secondary.client() as secondary:
        transport = StockTransport(
            secondary.get_queue_receiver(queue),
            DestinationSenders(primary, SteadyClock()),
            lambda _: None,
            SteadyClock(),
            secondary.get_queue_receiver,
        )
        yield transport
        transport.close()


def taken_by(transport: StockTransport, count: int) -> list[Taken]:
    taken: list[Taken] = []
    while len(taken) < count:
        answer = transport.perform(Receive(count, 5))
        assert answer, "they are still locked"
        assert not isinstance(answer, Survey)
        taken += [each for each in answer if isinstance(each, Taken)]
    return taken


@pytest.mark.rule("B6.2")
def test_messages_come_home_as_they_were_sent(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with pair_namespaces(
        spaces.primary.client(),
        spaces.secondary.client(),
        options(),
        secondary_administration=spaces.secondary.administration(),
    ) as client:
        put(
            spaces,
            client.backlog_queues[0],
            path,
            [
                ServiceBusMessage(
                    b"\x00body",
                    session_id="s",
                    message_id="m1",
                    subject="label",
                    correlation_id="c",
                    time_to_live=timedelta(hours=1),
                    application_properties={"text": "t", "number": 5, "flag": True, "id": uuid.UUID(int=7)},
                ),
                AmqpAnnotatedMessage(value_body={"a": ["text", 1]}, properties={"message_id": "m2"}),
            ],
        )
        until(lambda: spaces.primary.count(path) == 2)
        first, second = take(spaces, path, 2)
    assert b"".join(first.body) == b"\x00body"
    assert (first.session_id, first.message_id, first.subject, first.correlation_id) == ("s", "m1", "label", "c")
    assert first.time_to_live == timedelta(hours=1)
    properties = {b"text": b"t", b"number": 5, b"flag": True, b"id": uuid.UUID(int=7)}
    assert first.application_properties == properties
    assert second.body == {b"a": [b"text", 1]}
    assert not second.application_properties


@pytest.mark.rule("B8")
def test_whether_a_lock_has_ended_is_for_the_broker_to_say(spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine whose clock is ahead the SDK refuses to settle, so a message would be sent home again and again."""
    ahead = datetime.now(UTC) + timedelta(hours=1)
    monkeypatch.setattr("azure.servicebus._common.message.utc_now", lambda: ahead)
    path = spaces.primary.create_queue()
    with pair_namespaces(
        spaces.primary.client(),
        spaces.secondary.client(),
        options(),
        secondary_administration=spaces.secondary.administration(),
    ) as client:
        queue = client.backlog_queues[0]
        put(spaces, queue, path, [ServiceBusMessage("x")])
        until(lambda: spaces.primary.count(path) == 1 and spaces.secondary.count(queue) == 0)


BODIES: dict[str, Body] = {
    "data": DataBody([b"\x00\xff", b"", b"two parts"]),
    "timestamp": ValueBody(Timestamp(1_800_000_000_123)),
    "early": ValueBody(Timestamp(-62_135_596_800_001)),
    "described": ValueBody(Described(Symbol("com.contoso:order"), [ULong(7), Byte(-1), Float(0.5)])),
    "numbered": ValueBody(Described(ULong(0x123400000001), {Symbol("a"): Decimal64(b"12345678")})),
    "narrow": ValueBody([Int(1), Long(1), UShort(1), ULong(0), True, Char("x")]),
    "bytes": ValueBody(b"valid UTF-8, and still bytes"),
    "symbol": ValueBody(Symbol("a-symbol")),
    "array": ValueBody(Array([Int(1), Int(2)])),
    "null": ValueBody(None),
    "rows": SequenceBody([[Timestamp(5), b"x"], [], [Symbol("s"), {"k": UInt(2)}]]),
    "long": DataBody([b"x" * 150_000]),
}


@pytest.mark.rule("B6.2")
async def test_every_body_comes_home_byte_for_byte(spaces: Spaces) -> None:
    """Also what the SDK cannot read, and properties and ids of types that it does not keep."""
    path = spaces.primary.create_queue()
    sent = {
        name: encode_message(
            body,
            message_id=uuid.uuid5(uuid.NAMESPACE_OID, name) if name == "null" else name,
            partition_key="k",
            application_properties={"at": Timestamp(3), "tiny": Byte(-3), "raw": b"text", "text": "text"},
        )
        for name, body in BODIES.items()
    }

    def move() -> None:
        with pair_namespaces(
            spaces.primary.client(),
            spaces.secondary.client(),
            options(),
            secondary_administration=spaces.secondary.administration(),
        ) as client:
            asyncio.run(fill(client.backlog_queues[0]))
            until(lambda: spaces.primary.count(path) == len(sent))

    async def fill(queue: str) -> None:
        async with await Namespace.connect(spaces.secondary.connection_string) as namespace:
            sender = await namespace.sender(queue)
            for payload in sent.values():
                front, rest = read_front(payload)
                front.application_properties = {**(front.application_properties or {}), wire_names.TRANSFER_PATH: path}
                assert await sender.send([encode_sections(front) + rest]) == [None]

    await asyncio.to_thread(move)
    async with await Namespace.connect(spaces.primary.connection_string) as namespace:
        found = await namespace.entity(path).peek(len(sent))
    for (name, payload), arrived in zip(sent.items(), found, strict=True):
        (wanted, body), (front, rest) = read_front(payload), read_front(arrived.payload)
        assert rest == body, name
        assert front.application_properties == wanted.application_properties
        assert [type(each) for each in (front.application_properties or {}).values()] == [Timestamp, Byte, bytes, str]
        assert front.properties is not None
        assert wanted.properties is not None
        assert front.properties.message_id == wanted.properties.message_id


@pytest.mark.rule("B8")
def test_what_is_no_transfer_is_dead_lettered_and_what_is_scheduled_stays_scheduled(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with pair_namespaces(
        spaces.primary.client(),
        spaces.secondary.client(),
        options(),
        secondary_administration=spaces.secondary.administration(),
    ) as client:
        queue = client.backlog_queues[0]
        later = datetime.now(UTC) + timedelta(hours=1)
        put(spaces, queue, path, [ServiceBusMessage("x", scheduled_enqueue_time_utc=later)])
        with spaces.secondary.client() as other, other.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage(json.dumps({"no": "transfer"})))
        until(lambda: spaces.primary.count(path) == 1)
        with spaces.secondary.administration() as administration:
            until(lambda: administration.get_queue_runtime_properties(queue).dead_letter_message_count == 1)
    with spaces.primary.administration() as administration:
        assert administration.get_queue_runtime_properties(path).scheduled_message_count == 1


def test_fewer_messages_are_taken_together_if_they_are_large(spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    """At first as if all of them were."""
    monkeypatch.setattr(stock_transport, "HELD_SIZE_MAX", 100_000)
    monkeypatch.setattr(stock_transport, "MESSAGE_SIZE_CEILING", 100_000)
    queue = spaces.secondary.create_queue()
    sizes = [19_000] * 10 + [0] * 60
    with spaces.secondary.client() as client, client.get_queue_sender(queue) as sender:
        for size in sizes:
            sender.send_messages(ServiceBusMessage(bytes(size)))
    counts: list[int] = []
    with opened_transport(spaces, queue) as transport:
        while sum(counts) < len(sizes):
            taken = transport.perform(Receive(BATCH_MAX, 5))
            assert isinstance(taken, list)
            transport.perform(Complete(taken))
            counts.append(len(taken))
    assert counts[0] == 1
    assert all(count <= 5 for count in counts[:3])
    assert max(counts) > 5


def by_connection_string(space: NamespaceProcess) -> AioServiceBusClient:
    return AioServiceBusClient.from_connection_string(space.connection_string, **CLIENT_OPTIONS)


def by_named_key(space: NamespaceProcess) -> AioServiceBusClient:
    parsed = parse_connection_string(space.connection_string)
    key = AzureNamedKeyCredential(parsed.key_name, parsed.key)
    return AioServiceBusClient(f"{parsed.host}:{parsed.port}", key, use_tls=False, **CLIENT_OPTIONS)


def by_signature(space: NamespaceProcess) -> AioServiceBusClient:
    parsed = parse_connection_string(space.connection_string)
    signature = sign(f"sb://{parsed.authority}", parsed.key_name, parsed.key, int(time.time()) + 3_600)
    key = AzureSasCredential(signature)
    return AioServiceBusClient(f"{parsed.host}:{parsed.port}", key, use_tls=False, **CLIENT_OPTIONS)


@pytest.mark.parametrize("new_client", [by_connection_string, by_named_key, by_signature])
async def test_clients_of_asyncio_lend_their_credentials_to_the_pumps(
    spaces: Spaces, new_client: Callable[[NamespaceProcess], AioServiceBusClient]
) -> None:
    path = spaces.primary.create_queue()
    clients = [new_client(space) for space in (spaces.primary, spaces.secondary)]
    endpoint = f"http://127.0.0.1:{spaces.secondary.http_port}"
    async with async_administration_client(spaces.secondary.connection_string, endpoint) as administration:
        pairing = aio_pair_namespaces(clients[0], clients[1], options(), secondary_administration=administration)
        async with await pairing as client:
            messages: list[AnyMessage] = [ServiceBusMessage(str(number)) for number in range(10)]
            await asyncio.to_thread(put, spaces, client.backlog_queues[0], path, messages)
            await asyncio.to_thread(until, lambda: spaces.primary.count(path) == 10)


async def test_the_pumps_of_asyncio_go_the_way_that_its_clients_go() -> None:
    """Behind a proxy or a firewall there may be no other."""
    options: dict[str, Any] = {
        "http_proxy": {"proxy_hostname": "proxy", "proxy_port": 3128},
        "custom_endpoint_address": "sb://gate.contoso.com:8443",
        "connection_verify": "ca.pem",
        "user_agent": "shop/1",
        "transport_type": TransportType.AmqpOverWebsocket,
    }
    text = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0"
    ways = []
    async with AioServiceBusClient.from_connection_string(text, **options) as client:
        for each in (client, blocking_client(client, asyncio.get_running_loop())):
            config = each.get_queue_sender("orders")._config
            ways.append({name: getattr(config, name) for name in (*options, "connection_port", "hostname", "use_tls")})
    assert ways[0] == ways[1]


def test_threads_share_one_paired_sender(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with pair_namespaces(
        spaces.primary.client(),
        spaces.secondary.client(),
        SendAvailabilityPairedNamespaceOptions(backlog_queue_count=1),
        secondary_administration=spaces.secondary.administration(),
    ) as client:
        sender = client.get_queue_sender(path)

        def send() -> None:
            for _ in range(20):
                sender.send_messages(ServiceBusMessage("x"))

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert spaces.primary.count(path) == 80
