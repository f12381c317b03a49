"""What is measured of sends and deliveries, and what whoever traces is told."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.gateway.control_link import DISCHARGE, Control
from tests.gateway.front import Client, Front, payload
from twinbus.amqp.codec.delivery_state import ACCEPTED, TransactionalState
from twinbus.amqp.codec.sections import DataBody, Sections, encode_sections
from twinbus.amqp.events import Dispositions
from twinbus.broker.consumer import TakenMessage
from twinbus.errors import MessagingError
from twinbus.gateway import namespace_view
from twinbus.gateway.namespace_view import Traffic
from twinbus.model.descriptions import EntityStatus, QueueDescription
from twinbus.model.message import Message
from twinbus.model.wire_names import BATCH_FORMAT


class Told:
    def __init__(self) -> None:
        self.spans: list[tuple[str, str, int, float | None]] = []

    def sent(self, path: str, messages: Sequence[Message], seconds: float) -> None:
        self.spans.append(("sent", path, len(messages), seconds))

    def refused(self, path: str, messages: Sequence[Message], seconds: float, error: MessagingError) -> None:
        self.spans.append((type(error).__name__, path, len(messages), seconds))

    def delivered(self, path: str, deliveries: Sequence[TakenMessage]) -> None:
        self.spans.append(("delivered", path, len(deliveries), None))


@pytest.fixture
def front(tmp_path: Path) -> Front:
    """Every look at the steady clock takes a second."""
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders"))
    front.sim.queue(QueueDescription("shut", status=EntityStatus.SEND_DISABLED))
    looks = iter(range(100, 1_000))
    stopwatch = front.traffic.stopwatch
    stopwatch.steady = lambda: float(next(looks))
    stopwatch.wall = lambda: front.sim.now
    return front


@pytest.fixture(params=[False, True], ids=["nobody traces", "somebody traces"])
def told(request: pytest.FixtureRequest, front: Front) -> Told | None:
    if not request.param:
        return None
    told = front.traffic.stopwatch.spans = Told()
    return told


def batch(count: int) -> bytes:
    return encode_sections(Sections(body=DataBody([payload(str(number)) for number in range(count)])))


def send(client: Client, address: str, sent: bytes, message_format: int = 0) -> None:
    client.sender(address).transfer(sent, b"1", message_format=message_format)
    client.run()
    assert len(client.take(Dispositions)) == 1


def check(told: Told | None, *spans: tuple[str, str, int, float | None]) -> None:
    assert told is None or told.spans == list(spans)


def test_a_send_is_measured_from_its_arrival_to_its_acknowledgement(front: Front, told: Told | None) -> None:
    send(front.client(), "orders", payload("a"))
    acknowledged = front.traffic.stopwatch.acknowledged
    assert (acknowledged.total_s, sum(acknowledged.counts)) == (1.0, 1)
    check(told, ("sent", "orders", 1, 1.0))


def test_a_burst_of_which_some_are_refused_is_told_apart(front: Front, told: Told | None) -> None:
    client = front.client()
    client.sender("shut").transfers([(b"1", payload("a")), (b"2", payload("b"))])
    client.run()
    acknowledged, traffic = front.traffic.stopwatch.acknowledged, front.traffic.of("shut")
    assert (acknowledged.total_s, sum(acknowledged.counts)) == (0.0, 0)
    assert (traffic.refused, traffic.messages_in) == (2, 0)
    check(told, ("EntityDisabled", "shut", 1, 1.0), ("EntityDisabled", "shut", 1, 2.0))


def test_a_batch_is_measured_once_for_all_of_its_messages(front: Front, told: Told | None) -> None:
    client = front.client()
    send(client, "orders", batch(3), BATCH_FORMAT)
    acknowledged, traffic = front.traffic.stopwatch.acknowledged, front.traffic.of("orders")
    assert (acknowledged.total_s, sum(acknowledged.counts)) == (3.0, 3)
    assert (traffic.messages_in, traffic.refused) == (3, 0)
    check(told, ("sent", "orders", 3, 1.0))


def test_a_batch_that_is_refused_counts_as_one_refusal(front: Front, told: Told | None) -> None:
    client = front.client()
    send(client, "shut", batch(3), BATCH_FORMAT)
    traffic = front.traffic.of("shut")
    assert (traffic.messages_in, traffic.refused) == (0, 1)
    assert sum(front.traffic.stopwatch.acknowledged.counts) == 0
    check(told, ("EntityDisabled", "shut", 3, 1.0))


def test_what_is_sent_in_a_transaction_is_traced_once_that_is_committed(front: Front, told: Told | None) -> None:
    client = front.client()
    control, sender = Control(client), client.sender("orders")
    for fails in (True, False):
        txn_id = control.declare()
        sender.transfer(payload("a"), b"1", state=TransactionalState(txn_id=txn_id))
        client.run()
        check(told)
        assert control.ask(DISCHARGE, txn_id, fails) == ACCEPTED
    assert told is None or [span[:3] for span in told.spans] == [("sent", "orders", 1)]
    assert told is None or told.spans[0][3] == 1.0


def test_what_is_settled_in_a_transaction_counts_as_settled(front: Front) -> None:
    client = front.client()
    send(client, "orders", payload("a"))
    control, receiver = Control(client), client.receiver("orders", credit=1)
    (delivery,) = client.received()
    txn_id = control.declare()
    receiver.update(delivery.delivery_id, delivery.delivery_id, TransactionalState(txn_id=txn_id, outcome=ACCEPTED))
    client.run()
    assert front.traffic.of("orders").settled == 1


def test_a_delivery_is_measured_by_how_long_its_first_message_waited(front: Front, told: Told | None) -> None:
    client = front.client()
    send(client, "orders", payload("a"))
    front.sim.advance(2_500)
    send(client, "orders", payload("b"))
    if told is not None:
        told.spans.clear()
    client.receiver("orders", credit=5)
    waited = front.traffic.stopwatch.waited
    assert (waited.total_s, sum(waited.counts)) == (5.0, 2)
    check(told, ("delivered", "orders", 2, None))


def test_a_clock_that_was_set_back_makes_no_message_wait_for_less_than_no_time(front: Front) -> None:
    client = front.client()
    send(client, "orders", payload("a"))
    front.traffic.stopwatch.wall = lambda: 0
    client.receiver("orders", credit=1)
    waited = front.traffic.stopwatch.waited
    assert (waited.total_s, sum(waited.counts)) == (0.0, 1)


def test_counters_of_deleted_entities_are_forgotten_beyond_a_number_of_names_the_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(namespace_view, "NAMES_MAX", 4)
    traffic = Traffic(name_at=lambda path: "Here" if path == "here" else None)
    here = traffic.of("Here")
    assert traffic.of("heRE") is here
    assert here.name == "Here"
    for number in range(5):
        traffic.of(f"Deleted{number}")
    assert list(traffic.entities) == ["here", "deleted2", "deleted3", "deleted4"]
    assert traffic.of("deleted2").stopwatch is traffic.stopwatch


def test_where_many_entities_are_there_half_as_many_names_more_are_taken_before_deleted_ones_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(namespace_view, "NAMES_MAX", 4)
    traffic = Traffic(name_at=lambda path: path if path.startswith("here") else None)
    for name in ("here0", "here1", "here2", "here3", "deleted0", "deleted1", "deleted2"):
        traffic.of(name)
    assert list(traffic.entities) == ["here0", "here1", "here2", "here3", "deleted1", "deleted2"]


def test_what_is_counted_of_an_entity_that_is_there_stays_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(namespace_view, "NAMES_MAX", 4)
    looked_at: list[str] = []

    def name_at(path: str) -> str:
        looked_at.append(path)
        return path

    traffic = Traffic(name_at=name_at)
    for number in range(40):
        traffic.of(f"topic/Subscriptions/{number}").messages_out += number
    assert [each.messages_out for each in traffic.entities.values()] == [*range(40)]
    assert len(looked_at) - 40 < 40 * 40 / 4  # each for its name, but not all of them for each
