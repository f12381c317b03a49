"""What clients do at the gateway, as the book of operations has it."""

from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from tests.gateway.front import Client, Front, payload
from twinbus.amqp.codec.delivery_state import ACCEPTED
from twinbus.amqp.codec.performatives import SenderSettleMode
from twinbus.amqp.codec.sections import DataBody, Sections, ValueBody, encode_sections
from twinbus.amqp.codec.types import Array, Symbol, Timestamp, Value
from twinbus.amqp.events import Deliveries
from twinbus.meter.book import OperationsBook
from twinbus.meter.operation import Cause, Operation
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message_limits import MESSAGE_SIZE_MAX

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
POLL = 15 * MINUTE
STEP = 5 * MINUTE  # a connection survives this much silence
BACKLOG_QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(10)]
SESSION_FILTER = Symbol("com.microsoft:session-filter")


@pytest.fixture
def front(tmp_path: Path) -> Front:
    made = Front(tmp_path, store_count=4)
    made.sim.queue(QueueDescription("orders"))
    return made


def operations(front: Front) -> Counter[str]:
    """By cause, since the last time."""
    counted: Counter[str] = Counter()
    for row in front.book.take_all():
        counted[row.cause] += row.operations
    return counted


def rows(front: Front, cause: Cause) -> list[Operation]:
    return [row for row in front.book.take_all() if row.cause is cause]


def send(client: Client, *payloads: bytes, to: str = "orders") -> None:
    link = client.sender(to)
    for number, each in enumerate(payloads):
        link.transfer(each, b"%d" % number)
    client.run()


@pytest.mark.rule("D1.1")
def test_a_message_is_counted_when_it_is_sent_and_when_it_is_received_with_its_id_and_number(front: Front) -> None:
    client = front.client()
    send(client, payload("a", message_id="m-1"), payload("b", message_id="m-2"))
    client.receiver("orders", credit=10)
    found = front.book.take_all()
    assert [(row.cause, row.message_id, row.sequence_number, row.fragment) for row in found] == [
        ("send", "m-1", 1, 0),
        ("send", "m-2", 2, 0),
        ("receive", "m-1", 1, 0),
        ("receive", "m-2", 2, 0),
    ]
    assert {(row.entity, row.entity_type, row.who, row.path, row.units) for row in found} == {
        ("orders", "queue", "client", "primary", 1)
    }
    assert found[0].size == found[2].size


@pytest.mark.rule("D1")
def test_above_the_limit_of_a_second_operations_are_added_up_and_none_is_missing(front: Front) -> None:
    front.view = type(front.view)(
        **{name: getattr(front.view, name) for name in front.view.__slots__ if name != "book"},
        book=OperationsBook(front.sim.clock, exact_per_second_max=5),
    )
    front.book = front.view.book  # type: ignore[assignment]
    client = front.client()
    send(client, *[payload(str(number)) for number in range(4)])
    send(client, *[payload(str(number)) for number in range(20)])
    found = rows(front, Cause.SEND)
    assert [row.operations for row in found] == [1, 1, 1, 1, 20]
    assert sum(row.units for row in found) == sum(row.messages for row in found) == 24
    assert found[-1].message_id is None


@pytest.mark.rule("D1.1")
def test_the_fragment_of_each_message_is_counted_with_it(front: Front) -> None:
    front.sim.queue(QueueDescription("split", enable_partitioning=True))
    client = front.client()
    send(client, *[payload("x", message_id=f"m-{n}", group_id=f"key-{n}") for n in range(20)], to="split")
    client.receiver("split", credit=50)
    found = front.book.take_all()
    sent = {row.message_id: row.fragment for row in found if row.cause is Cause.SEND}
    received = {row.message_id: row.fragment for row in found if row.cause is Cause.RECEIVE}
    assert sent == received
    assert len(set(sent.values())) > 4


def test_settlements_are_counted_and_not_billed(front: Front) -> None:
    client = front.client()
    send(client, payload("a"))
    link = client.receiver("orders", credit=1)
    (delivered,) = client.take(Deliveries)
    link.update(delivered.deliveries[0].delivery_id, delivered.deliveries[0].delivery_id, ACCEPTED)
    client.run()
    (row,) = rows(front, Cause.SETTLE)
    assert (row.operations, row.messages, row.units) == (1, 1, 0)


def test_what_is_refused_is_not_an_operation(front: Front) -> None:
    send(front.client(), payload("x" * MESSAGE_SIZE_MAX))
    assert not operations(front)


def test_a_ping_is_counted_as_one_and_not_as_a_send(front: Front) -> None:
    client = front.client()
    send(client, payload("", content_type=Symbol("application/vnd.ms-servicebus-ping"), group_id="s"), payload("a"))
    assert operations(front) == {"ping": 1, "send": 1}


@pytest.mark.rule("D1")
def test_copies_and_forwarded_messages_are_counted_by_who_made_them(front: Front) -> None:
    front.sim.topic(TopicDescription("news"))
    front.sim.subscription(SubscriptionDescription("news", "kept"))
    front.sim.subscription(SubscriptionDescription("news", "sent-on", forward_to="orders"))
    client = front.client()
    send(client, payload("a", message_id="m-1"), to="news")
    found = {(row.cause.value, row.entity): row for row in front.book.take_all()}
    assert set(found) == {
        ("send", "news"),
        ("copy", "news/Subscriptions/kept"),
        ("copy", "news/Subscriptions/sent-on"),
        ("forward", "news/Subscriptions/sent-on"),
    }
    assert found["copy", "news/Subscriptions/kept"].units == 0
    forward = found["forward", "news/Subscriptions/sent-on"]
    assert (forward.units, forward.message_id, forward.entity_type) == (1, "m-1", "subscription")


def test_a_link_that_ends_without_a_message_had_one_empty_receive(front: Front) -> None:
    client = front.client()
    link = client.receiver("orders", credit=5)
    client.advance(2 * HOUR)
    assert not operations(front)
    link.detach()
    client.run()
    assert operations(front) == {"empty_receive": 1}


def test_a_connection_that_is_lost_ends_its_receives(front: Front) -> None:
    client = front.client()
    client.receiver("orders", credit=5)
    client.receiver("orders")
    client.gateway.lost(front.sim.now)
    assert operations(front) == {"empty_receive": 1}


@pytest.mark.parametrize(("mode", "empty"), [(SenderSettleMode.SETTLED, 0), (SenderSettleMode.UNSETTLED, 1)])
def test_credit_that_only_replaces_what_was_deleted_goes_on_with_the_receive(
    front: Front, mode: SenderSettleMode, empty: int
) -> None:
    """In peek-lock, where nothing is settled yet, the second of them is for another receive."""
    client = front.client()
    send(client, *[payload(str(number)) for number in range(4)])
    link = client.receiver("orders", credit=4, mode=mode)
    for credit in (2, 4):
        link.grant(credit)
        client.run()
    assert operations(front)["empty_receive"] == empty


def test_waiting_in_vain_for_a_message_session_is_an_empty_receive(front: Front) -> None:
    front.sim.queue(QueueDescription("sessions", requires_session=True))
    client = front.client()
    client.receiver("sessions", session_filter={SESSION_FILTER: None})
    client.advance(2 * MINUTE)
    assert operations(front) == {"empty_receive": 1}


@pytest.mark.parametrize("is_lost", [False, True])
def test_whoever_gives_up_waiting_for_a_message_session_had_an_empty_receive_and_waits_no_more(
    front: Front, is_lost: bool
) -> None:
    queue = front.sim.queue(QueueDescription("sessions", requires_session=True)).main
    client = front.client()
    link = client.receiver("sessions", session_filter={SESSION_FILTER: None})
    assert queue.receiver_count == 1
    if is_lost:
        client.gateway.lost(front.sim.now)
    else:
        link.detach()
        client.run()
    assert (queue.receiver_count, operations(front)) == (0, {"empty_receive": 1})
    client.front.sim.advance(2 * MINUTE)
    assert not operations(front)


def test_a_message_session_that_is_accepted_is_an_operation(front: Front) -> None:
    front.sim.queue(QueueDescription("sessions", requires_session=True))
    client = front.client()
    send(client, payload("a", group_id="s"), to="sessions")
    client.receiver("sessions", session_filter={SESSION_FILTER: "s"}, credit=1)
    assert operations(front) == {"send": 1, "session": 1, "receive": 1}


def test_requests_are_counted_by_what_they_did(front: Front) -> None:
    client = front.client()
    send(client, payload("a"), payload("b"))
    client.receiver("orders", credit=1, mode=SenderSettleMode.SETTLED)
    client.take(Deliveries)
    front.book.take_all()
    node = client.node("orders/$management")
    node.ask("com.microsoft:peek-message", {"from-sequence-number": 0, "message-count": 10})
    assert operations(front) == {"peek": 1}
    node.ask("com.microsoft:peek-message", {"from-sequence-number": 100, "message-count": 10})
    assert operations(front) == {"peek": 1}
    later = Timestamp(front.sim.now + HOUR)
    due = {Symbol("x-opt-scheduled-enqueue-time"): later}
    scheduled = encode_sections(Sections(message_annotations=due, body=DataBody([b"c"])))
    entry = {"message": scheduled, "message-id": "later", "scheduled-enqueue-time": later}
    made = node.ask("com.microsoft:schedule-message", {"messages": [entry, entry]})
    assert operations(front) == {"schedule": 2}
    assert isinstance(made.body, ValueBody)
    node.ask("com.microsoft:cancel-scheduled-message", made.body.value)
    assert [(row.operations, row.messages) for row in rows(front, Cause.CANCEL)] == [(2, 2)]
    node.ask("com.microsoft:cancel-scheduled-message", {"sequence-numbers": Array([77])})
    assert not operations(front)
    node.ask("com.twinbus:fragment-heads", {})
    assert operations(front) == {"management": 1}
    node.ask("com.twinbus:claim", {"message-count": 10})
    node.ask("com.twinbus:claim", {"message-count": 10})
    assert operations(front)["empty_receive"] == 1


def test_locks_that_are_renewed_and_settled_by_request_are_counted_for_each_message(front: Front) -> None:
    client = front.client()
    send(client, payload("a"), payload("b"))
    client.receiver("orders", credit=2)
    (event,) = client.take(Deliveries)
    tokens = Array([UUID(bytes_le=each.delivery_tag) for each in event.deliveries])
    node = client.node("orders/$management")
    front.book.take_all()
    node.ask("com.microsoft:renew-lock", {"lock-tokens": tokens})
    assert [(row.operations, row.messages) for row in rows(front, Cause.RENEW)] == [(2, 2)]
    settled: dict[Value, Value] = {"disposition-status": "completed", "lock-tokens": tokens}
    node.ask("com.microsoft:update-disposition", settled)
    assert [(row.operations, row.messages) for row in rows(front, Cause.SETTLE)] == [(2, 2)]


def test_requests_about_a_message_session_are_counted_with_the_size_of_its_state(front: Front) -> None:
    front.sim.queue(QueueDescription("talks", requires_session=True))
    client = front.client()
    client.receiver("talks", session_filter={SESSION_FILTER: "s"})
    node = client.node("talks/$management")
    front.book.take_all()
    session: dict[Value, Value] = {"session-id": "s"}
    node.ask("com.microsoft:renew-session-lock", session)
    assert [row.operations for row in rows(front, Cause.RENEW)] == [1]
    node.ask("com.microsoft:set-session-state", {**session, "session-state": b"12345"})
    assert [(row.operations, row.size) for row in rows(front, Cause.SESSION)] == [(1, 5)]
    node.ask("com.microsoft:get-session-state", session)
    assert [(row.operations, row.size) for row in rows(front, Cause.SESSION)] == [(1, 5)]


@pytest.mark.rule("D2.2")
@pytest.mark.parametrize(
    ("time", "count"), [(HOUR, 40), (DAY, 960), pytest.param(30 * DAY, 28_800, marks=pytest.mark.nightly)]
)
def test_ten_idle_backlog_queues_with_polls_of_15_minutes_cost(front: Front, time: int, count: int) -> None:
    poll_backlog(front, time)
    found = rows(front, Cause.EMPTY_RECEIVE)
    assert sum(row.operations for row in found) == sum(row.units for row in found) == count
    assert {row.entity for row in found} == set(BACKLOG_QUEUES)
    assert {row.path for row in found} == {"backlog"}


def poll_backlog(front: Front, time: int) -> None:
    """As the syphon does: credit, and at the end of the poll it is drained and given again."""
    client = front.client()
    for path in BACKLOG_QUEUES:
        front.sim.queue(QueueDescription(path))
    links = [client.receiver(path) for path in BACKLOG_QUEUES]
    for _ in range(time // POLL):
        for link in links:
            link.keep_credit(400)
        client.run()
        client.advance(POLL, STEP)
        for link in links:
            link.drain()
        client.run()


def test_a_forward_is_counted_with_the_size_that_was_sent(front: Front) -> None:
    front.sim.queue(QueueDescription("target"))
    front.sim.queue(QueueDescription("source", forward_to="target"))
    send(front.client(), payload("a" * 100), to="source")
    front.sim.tick()
    found = {row.cause: row.size for row in front.book.take_all()}
    assert found[Cause.FORWARD] == found[Cause.SEND]
