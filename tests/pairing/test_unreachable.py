"""The real SDK against peers that are not there or say nothing: what the shells make of it."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusError

from tests.pairing.conftest import Spaces
from tests.pairing.fast_clock import FastClock
from tests.pairing.namespaces import until
from twinbus.clock import NEVER, SteadyClock
from twinbus.pairing import Availability, BacklogUnavailable, EventKind, PairedNamespaceClient, PairingEvent
from twinbus.pairing.aio import PairedNamespaceClient as AioPairedNamespaceClient
from twinbus.pairing.attendant import PINGS_AT_ONCE_MAX, Attendant
from twinbus.pairing.backlog.provision import Backlog
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.pings import Pings
from twinbus.pairing.stock.failures import FailureKind, classify
from twinbus.pairing.stock.local_lag import LocalLag
from twinbus.pairing.syphon.stock_transport import DestinationSenders, StockTransport
from twinbus.pairing.syphon.transport import Receive

LATE_S = 10
"""Far more than a timeout of a part of a second, and far less than any other limit that could end the call."""
QUEUES = {0: "p/x-servicebus-transfer/0", 1: "p/x-servicebus-transfer/1"}


def connection_string(port: int) -> str:
    return f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true;"


def options(failover_s: float = 60) -> SendAvailabilityPairedNamespaceOptions:
    return SendAvailabilityPairedNamespaceOptions(failover_interval=timedelta(seconds=failover_s))


@pytest.fixture
def refusing_port() -> Iterator[int]:
    """Nobody listens there, and nobody else gets it meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Connections are accepted by the kernel and nothing is ever answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield listener.getsockname()[1]


def pair(port: int, failover_s: float = 60) -> PairedNamespaceClient:
    clients = [ServiceBusClient.from_connection_string(connection_string(port), retry_total=0) for _ in range(2)]
    return PairedNamespaceClient(clients[0], clients[1], options(failover_s), Backlog(QUEUES), SteadyClock())


def aio_pair(port: int, failover_s: float = 60) -> AioPairedNamespaceClient:
    clients = [AioServiceBusClient.from_connection_string(connection_string(port), retry_total=0) for _ in range(2)]
    return AioPairedNamespaceClient(clients[0], clients[1], options(failover_s), Backlog(QUEUES), SteadyClock())


@pytest.mark.rule("B4")
def test_a_refused_connection_is_raised_and_starts_the_timer(refusing_port: int) -> None:
    with pair(refusing_port) as client, client.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusConnectionError):
            sender.send_messages(ServiceBusMessage("x"))
        assert client.state().entities[0].availability is Availability.FAILING


SASL = b"AMQP\x03\x01\x00\x00"
ANSWERS = {
    "a page": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    "another protocol": b"AMQP\x00\x00\x09\x01",
    "a frame of nothing": SASL + b"\x00\x00\x00\x10\x02\x01\x00\x00garbage!",
    "zeros": bytes(64),
}


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A port where this is the answer to whatever comes first, and the last one."""

    class Answering(StreamRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)
            self.wfile.write(answer)

    with ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def failure_of(text: str, **client_options: Any) -> Exception:
    with ServiceBusClient.from_connection_string(text, retry_total=0, **client_options) as client:
        with pytest.raises(ServiceBusError) as caught:
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"), timeout=LATE_S)
        return caught.value


async def aio_failure_of(text: str, **client_options: Any) -> Exception:
    async with AioServiceBusClient.from_connection_string(text, retry_total=0, **client_options) as client:
        with pytest.raises(ServiceBusError) as caught:
            await client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"), timeout=LATE_S)
        return caught.value


def over_websockets(port: int) -> dict[str, Any]:
    return {
        "transport_type": TransportType.AmqpOverWebsocket,
        "custom_endpoint_address": f"sb://127.0.0.1:{port}",
    }


@pytest.mark.rule("B4.1")
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_a_primary_that_answers_something_else_than_amqp_is_an_outage(answer: bytes) -> None:
    """As a gateway does that does not reach the namespace behind it. The SDK stumbles over it, as over a bad argument."""
    with answering(answer) as port:
        assert classify(await asyncio.to_thread(failure_of, connection_string(port))).is_outage
        assert classify(await aio_failure_of(connection_string(port))).is_outage


@pytest.mark.rule("B4.1")
@pytest.mark.parametrize("answer", [ANSWERS["a page"], b""], ids=["503", "nothing"])
async def test_a_websocket_that_nobody_opens_is_an_outage(answer: bytes) -> None:
    with answering(answer) as port:
        failure = await asyncio.to_thread(failure_of, connection_string(port), **over_websockets(port))
        assert classify(failure).is_outage
        assert classify(await aio_failure_of(connection_string(port), **over_websockets(port))).is_outage


@pytest.mark.rule("B4.3")
async def test_a_websocket_that_the_service_refuses_to_open_is_no_outage() -> None:
    with answering(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n") as port:
        failure = await asyncio.to_thread(failure_of, connection_string(port), **over_websockets(port))
        assert not classify(failure).is_outage
        assert not classify(await aio_failure_of(connection_string(port), **over_websockets(port))).is_outage


@pytest.mark.rule("B4.1")
@pytest.mark.parametrize("transport", TransportType, ids=lambda transport: transport.name)
def test_a_primary_whose_name_is_not_known_is_an_outage(
    transport: TransportType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over WebSockets the SDK calls it a failed authentication."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert classify(failure_of(connection_string(5672), transport_type=transport)).is_outage


@pytest.mark.rule("B4.3")
def test_a_message_that_cannot_be_encoded_is_a_bad_argument(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with spaces.primary.client() as client, client.get_queue_sender(path) as sender:
        unknown: Any = object()
        with pytest.raises((ServiceBusError, TypeError)) as caught:
            sender.send_messages(ServiceBusMessage("x", application_properties={"a": unknown}))
    assert classify(caught.value) is FailureKind.BAD_ARGUMENT


@pytest.mark.rule("B5")
def test_with_both_namespaces_away_the_error_names_the_last_failure(refusing_port: int) -> None:
    with pair(refusing_port, failover_s=0) as client, client.get_queue_sender("orders") as sender:
        with pytest.raises(BacklogUnavailable, match="Connection refused") as caught:
            sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y")], timeout=2)
        assert isinstance(caught.value, ServiceBusError)
        assert all(queue.out_until is not None for queue in client.state().backlog_queues)


@pytest.mark.rule("B2")
def test_a_usual_message_asks_nobody_and_any_other_is_checked(refusing_port: int) -> None:
    """It is recognized by fields of the SDK's: with one that calls them differently, every message would be asked about."""
    asked: list[object] = []
    usual = ServiceBusMessage(b"x")
    others = [
        ServiceBusMessage(None),
        ServiceBusMessage(b"x" * 200 * 1024),
        ServiceBusMessage("x", application_properties={"a": 1}),
    ]
    with pair(refusing_port) as client:
        for number, message in enumerate((usual, *others)):
            sender = client.get_queue_sender(str(number))

            def noted(
                message: object, timeout_s: float | None, straight: Callable[..., Any] = sender._courier.straight
            ) -> Any:
                asked.append(message)
                return straight(message, timeout_s)

            sender._courier.straight = noted  # type: ignore[method-assign]
            with pytest.raises(ServiceBusConnectionError):
                sender.send_messages(message)
    assert asked == others


def test_a_silent_primary_cannot_hold_a_send_past_its_timeout(silent_port: int) -> None:
    with pair(silent_port) as client, client.get_queue_sender("orders") as sender:
        started = time.monotonic()
        with pytest.raises((OperationTimeoutError, ServiceBusConnectionError)):
            sender.send_messages(ServiceBusMessage("x"), timeout=0.3)
        assert time.monotonic() - started < LATE_S
        assert client.state().entities[0].availability is Availability.FAILING


def test_a_batch_can_be_made_while_the_primary_is_away(refusing_port: int) -> None:
    with pair(refusing_port) as client:
        batch = client.get_queue_sender("orders").create_message_batch()
        batch.add_message(ServiceBusMessage("x"))
        assert batch.max_size_in_bytes == 256 * 1024


def test_a_closed_sender_says_so(refusing_port: int) -> None:
    with pair(refusing_port) as client:
        sender = client.get_queue_sender("orders")
        sender.close()
        with pytest.raises(ValueError, match="closed"):
            sender.send_messages(ServiceBusMessage("x"))


@pytest.mark.rule("B4")
async def test_aio_a_refused_connection_is_raised_and_starts_the_timer(refusing_port: int) -> None:
    async with aio_pair(refusing_port) as client, client.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(ServiceBusMessage("x"))
        assert client.state().entities[0].availability is Availability.FAILING


@pytest.mark.rule("B5")
async def test_aio_with_both_namespaces_away_the_caller_gets_the_error(refusing_port: int) -> None:
    async with aio_pair(refusing_port, failover_s=0) as client:
        with pytest.raises(BacklogUnavailable, match="Connect call failed"):
            await client.get_topic_sender("orders").send_messages(ServiceBusMessage("x"), timeout=2)


async def test_aio_a_silent_primary_cannot_hold_a_send_past_its_timeout(silent_port: int) -> None:
    async with aio_pair(silent_port) as client, client.get_queue_sender("orders") as sender:
        started = time.monotonic()
        with pytest.raises((OperationTimeoutError, ServiceBusConnectionError)):
            await sender.send_messages(ServiceBusMessage("x"), timeout=0.3)
        assert time.monotonic() - started < LATE_S
        assert client.state().entities[0].availability is Availability.FAILING


def test_pings_of_many_entities_take_turns_and_end_with_the_pair(silent_port: int) -> None:
    """Each of them blocks, and a thread for each of thousands of entities would be too many."""
    clock = FastClock()
    quick = replace(options(failover_s=0), ping_primary_interval=timedelta(seconds=1))
    availability = SendAvailability(quick, QUEUES, Random(1))
    with ServiceBusClient.from_connection_string(connection_string(silent_port), retry_total=0) as primary:
        attendant = Attendant(primary, availability, clock, lambda _: None, LocalLag(clock))
        attendant.start()
        for number in range(PINGS_AT_ONCE_MAX + 8):
            availability.primary_failed(f"q{number}", ConnectionError("down"), clock.now())
        until(lambda: ping_threads() == PINGS_AT_ONCE_MAX)
        attendant.stop()
        until(lambda: ping_threads() == 0)


@pytest.mark.rule("B7")
@pytest.mark.parametrize("is_own", [False, True], ids=["sdk", "one connection"])
def test_a_ping_for_which_there_was_no_thread_is_sent_later(
    refusing_port: int, no_threads: list[str], *, is_own: bool
) -> None:
    """An entity gets no ping before the last one has ended: a single lost one would keep it failed over for good."""
    clock, reach, heard = SteadyClock(), connection_string(refusing_port), list[PairingEvent]()
    quick = replace(options(failover_s=0), ping_primary_interval=timedelta(seconds=1), on_event=heard.append)
    availability = SendAvailability(quick, QUEUES, Random(1))
    with ServiceBusClient.from_connection_string(reach, retry_total=0) as primary:
        pings = Pings(reach, availability, clock) if is_own else None
        attendant = Attendant(primary, availability, clock, lambda _: None, LocalLag(clock), pings)
        attendant.start()
        no_threads.append("twinbus-ping")
        availability.primary_failed("orders", ConnectionError("down"), clock.now())
        until(lambda: not no_threads)
        until(lambda: any(event.kind is EventKind.PING for event in heard))
        attendant.stop()


@pytest.mark.rule("B3")
def test_a_batch_that_could_not_be_made_at_the_primary_starts_the_timer(refusing_port: int) -> None:
    """It opens a link, so an application that sends batches meets the outage there first."""
    with pair(refusing_port) as client:
        client.get_queue_sender("orders").create_message_batch()
        assert client.state().entities[0].availability is Availability.FAILING


async def test_aio_a_batch_that_could_not_be_made_at_the_primary_starts_the_timer(refusing_port: int) -> None:
    async with aio_pair(refusing_port) as client:
        await client.get_queue_sender("orders").create_message_batch()
        assert client.state().entities[0].availability is Availability.FAILING


def test_a_pump_whose_secondary_says_nothing_is_not_blocked_for_ever(silent_port: int) -> None:
    with ServiceBusClient.from_connection_string(connection_string(silent_port), retry_total=0) as client:
        clock = SteadyClock()
        destinations = DestinationSenders(client, clock)
        transport = StockTransport(
            client.get_queue_receiver("q"), destinations, lambda _: None, clock, client.get_queue_receiver
        )
        with ThreadPoolExecutor(1) as pumping:
            receiving = pumping.submit(transport.perform, Receive(1, 0.01))

            def ends() -> bool:
                transport.interrupt_if_late(NEVER - 1)
                return receiving.done()

            until(ends)


def ping_threads() -> int:
    return sum(thread.name == "twinbus-ping" for thread in threading.enumerate())
