"""The operations log against an account kept by the user of the SDK."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.interop.running_server import RunningServer
from tests.interop.sdk_ledger import Ledger, Line, encoded_size
from tests.meter.operation_rows import read_log
from twinbus.client.administration import administration_client
from twinbus.pairing.attendant import ping_message

WAIT_S = 0.3
LONG = timedelta(hours=1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path, store_count=4, is_metered=True)
    yield running
    running.stop()


@pytest.fixture
def client(server: RunningServer) -> Iterator[ServiceBusClient]:
    with server.client(retry_total=0) as client:
        yield client


def message(number: int, size: int = 10, **properties: str) -> ServiceBusMessage:
    return ServiceBusMessage(b"x" * size, message_id=f"m-{number}", time_to_live=LONG, **properties)  # type: ignore[arg-type]


def log_of(server: RunningServer) -> list[dict[str, object]]:
    assert server.server.metering is not None
    server.run(server.server.metering.flush())
    return read_log(server.server.metering.folder)


def summed(rows: list[dict[str, object]], column: str) -> Counter[Line]:
    sums: Counter[Line] = Counter()
    for row in rows:
        value = row[column]
        assert isinstance(value, int)
        sums[Line(str(row["entity"]), str(row["cause"]))] += value
    return sums


def assert_agrees(server: RunningServer, ledger: Ledger) -> list[dict[str, object]]:
    """Line by line: operations and units of every entity and cause, and each step of each message."""
    rows = log_of(server)
    assert summed(rows, "operations") == ledger.operations
    assert +summed(rows, "units") == +ledger.units
    exact = [row for row in rows if row["message_id"] is not None]
    assert Counter((str(r["cause"]), str(r["entity"]), str(r["message_id"])) for r in exact) == ledger.steps
    received = {(r["entity"], r["message_id"]): r["sequence_number"] for r in exact if r["cause"] == "receive"}
    assert received == ledger.numbers
    return rows


@pytest.mark.rule("D1")
def test_what_is_sent_and_received_is_in_the_log_as_the_sdk_did_it(
    server: RunningServer, client: ServiceBusClient
) -> None:
    ledger = Ledger()
    server.create_queue("orders")
    single, listed, batched = message(0), [message(n) for n in (1, 2)], [message(n) for n in (3, 4, 5)]
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(single)
        sender.send_messages(listed)
        batch = sender.create_message_batch()
        for each in batched:
            batch.add_message(each)
        sender.send_messages(batch)
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(message(99, size=300_000))
    ledger.sent("orders", [single, *listed, *batched])
    with client.get_queue_receiver("orders") as receiver:
        first = ledger.received("orders", receiver.receive_messages(2, max_wait_time=5))
        receiver.renew_message_lock(first[0])
        ledger.did("renew", "orders")
        receiver.complete_message(first[0])
        receiver.defer_message(first[1])
        ledger.did("settle", "orders", 2)
        ledger.peeked("orders", receiver.peek_messages(10))
        ledger.peeked("orders", receiver.peek_messages(10, sequence_number=1000))
        (deferred,) = ledger.received("orders", receiver.receive_deferred_messages([first[1].sequence_number or 0]))
        receiver.complete_message(deferred)
        ledger.did("settle", "orders")
        while got := ledger.received("orders", receiver.receive_messages(3, max_wait_time=WAIT_S)):
            for each in got:
                receiver.dead_letter_message(each, reason="test")
            ledger.did("settle", "orders", len(got))
        ledger.received("orders", receiver.receive_messages(10, max_wait_time=WAIT_S))
        ledger.received("orders", receiver.receive_messages(1, max_wait_time=WAIT_S))
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        got = receiver.receive_messages(1, max_wait_time=5)
        ledger.operations[Line("orders", "receive")] += 1
        ledger.units[Line("orders", "receive")] += 1
        ledger.steps["receive", "orders", str(got[0].message_id)] += 1
        ledger.numbers["orders", str(got[0].message_id)] = got[0].sequence_number
        receiver.complete_message(got[0])
        ledger.did("settle", "orders")
    rows = assert_agrees(server, ledger)
    assert {row["who"] for row in rows} == {"azsdk-python-servicebus"}
    sizes = {row["message_id"]: row["bytes"] for row in rows if row["cause"] == "send"}
    assert sizes == {str(each.message_id): encoded_size(each) for each in [single, *listed, *batched]}


@pytest.mark.rule("D1.1")
def test_sessions_schedules_topics_pings_and_management_are_in_the_log_as_the_sdk_did_them(
    server: RunningServer, client: ServiceBusClient
) -> None:
    ledger = Ledger()
    with administration_client(server.connection_string, f"http://127.0.0.1:{server.server.http_port}") as manager:
        manage(manager, ledger)
        schedule(client, ledger)
        talk(client, ledger)
        publish(client, ledger)
        manager.delete_queue("talks")
        ledger.did("management", "talks")
    assert_agrees(server, ledger)


def manage(manager: ServiceBusAdministrationClient, ledger: Ledger) -> None:
    for name in ("orders", "sink"):
        manager.create_queue(name)
        ledger.did("management", name)
    manager.create_queue("talks", requires_session=True)
    manager.get_queue_runtime_properties("talks")
    ledger.did("management", "talks", 2)
    assert len(list(manager.list_queues())) == 3
    ledger.did("management", "")
    manager.create_topic("news")
    ledger.did("management", "news")
    manager.create_subscription("news", "kept")
    manager.create_subscription("news", "sent-on", forward_to="sink")
    manager.create_rule("news", "kept", "another")
    ledger.did("management", "news/Subscriptions/kept", 2)
    ledger.did("management", "news/Subscriptions/sent-on")


def schedule(client: ServiceBusClient, ledger: Ledger) -> None:
    with client.get_queue_sender("orders") as sender:
        messages = [message(1), message(2)]
        later = datetime.now(UTC) + LONG
        numbers = sender.schedule_messages(messages, later)
        for each in messages:
            each.scheduled_enqueue_time_utc = later
        ledger.sent("orders", messages, "schedule")
        sender.cancel_scheduled_messages(numbers[0])
        ledger.did("cancel", "orders")
        sender.send_messages(ping_message("any"))
        ledger.did("ping", "orders")


def talk(client: ServiceBusClient, ledger: Ledger) -> None:
    with client.get_queue_sender("talks") as sender:
        sent = [message(10, session_id="a"), message(11, session_id="a")]
        sender.send_messages(sent)
        ledger.sent("talks", sent)
    with client.get_queue_receiver("talks", session_id="a") as receiver:
        ledger.did("session", "talks")
        for each in ledger.received("talks", receiver.receive_messages(2, max_wait_time=5)):
            receiver.complete_message(each)
            ledger.did("settle", "talks")
        receiver.session.set_state(b"half way")
        assert receiver.session.get_state() == b"half way"
        ledger.did("session", "talks", 2)
        receiver.session.renew_lock()
        ledger.did("renew", "talks")
        ledger.received("talks", receiver.receive_messages(2, max_wait_time=WAIT_S))
    with (
        pytest.raises(OperationTimeoutError),
        client.get_queue_receiver("talks", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1) as receiver,
    ):
        receiver.receive_messages(1)
    ledger.did("empty_receive", "talks")


def publish(client: ServiceBusClient, ledger: Ledger) -> None:
    sent = message(20)
    with client.get_topic_sender("news") as sender:
        sender.send_messages(sent)
    ledger.sent("news", [sent])
    ledger.did("copy", "news/Subscriptions/kept")
    ledger.did("copy", "news/Subscriptions/sent-on")
    ledger.forwarded("news/Subscriptions/sent-on", sent)
    with client.get_subscription_receiver("news", "kept") as receiver:
        (got,) = ledger.received("news/Subscriptions/kept", receiver.receive_messages(1, max_wait_time=5))
        receiver.abandon_message(got)
        ledger.did("settle", "news/Subscriptions/kept")
    with client.get_queue_receiver("sink", receive_mode="receiveanddelete") as receiver:
        ledger.received("sink", receiver.receive_messages(1, max_wait_time=5))


@pytest.mark.rule("D1.2")
def test_a_message_of_64_kb_is_one_unit_and_a_byte_more_makes_two(
    server: RunningServer, client: ServiceBusClient
) -> None:
    server.create_queue("large", enable_partitioning=True)
    around = encoded_size(message(1, size=60_000)) - 60_000
    exact, above = message(1, size=65_536 - around), message(2, size=65_537 - around)
    assert (encoded_size(exact), encoded_size(above)) == (65_536, 65_537)
    with client.get_queue_sender("large") as sender:
        sender.send_messages([exact])
        sender.send_messages([above])
    with client.get_queue_receiver("large") as receiver:
        got = receiver.receive_messages(2, max_wait_time=5)
        got += receiver.receive_messages(1, max_wait_time=5) if len(got) < 2 else []
    rows = [row for row in log_of(server) if row["cause"] in ("send", "receive")]
    found = {(row["cause"], row["message_id"]): (row["bytes"], row["units"], row["fragment"]) for row in rows}
    fragments = {str(each.message_id): (each.sequence_number or 0) >> 48 for each in got}
    for cause in ("send", "receive"):
        assert found[cause, "m-1"] == (65_536, 1, fragments["m-1"])
        assert found[cause, "m-2"] == (65_537, 2, fragments["m-2"])
