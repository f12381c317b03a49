"""`x-opt-delivery-time`: a receiver says in its modified outcome, or over `$management`, when a message comes again."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.gateway.front import Client, Front, text_of
from tests.gateway.test_nodes import body, status
from twinbus.amqp.codec.delivery_state import DeliveryState, Modified, Rejected
from twinbus.amqp.codec.sections import decode_sections
from twinbus.amqp.codec.types import Array, Described, Long, Symbol, Timestamp, ULong, Value
from twinbus.amqp.events import Dispositions
from twinbus.broker.outcomes import DELAY_MAX
from twinbus.model.descriptions import QueueDescription

TIME = "x-opt-delivery-time"
KEY = Symbol(TIME)
DATETIME_OFFSET = Symbol("com.microsoft:datetime-offset")
TICKS_AT_EPOCH = 621_355_968_000_000_000


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders"))
    return front


@pytest.fixture
def client(front: Front) -> Client:
    return front.client()


def modified(value: Value, key: Value = KEY) -> Modified:
    return Modified(delivery_failed=True, message_annotations={key: value, Symbol("note"): "later"})


def answer(client: Client, state: Modified) -> DeliveryState | None:
    """What the client is told of a message that it holds and modifies."""
    receiver, message = client.hold(credit=5)
    receiver.update(message.delivery_id, message.delivery_id, state)
    client.run()
    (event,) = client.take(Dispositions)
    return event.state


@pytest.mark.parametrize("key", [KEY, TIME])
@pytest.mark.parametrize(
    "kind", [Timestamp, Long, ULong, lambda at: Described(DATETIME_OFFSET, Long(TICKS_AT_EPOCH + at * 10_000))]
)
def test_a_modified_message_comes_again_at_its_delivery_time_with_the_other_properties(
    client: Client, kind: type[int], key: Value
) -> None:
    state = modified(kind(client.front.sim.now + 30_000), key)
    assert answer(client, state) == state
    client.advance(29_000)
    assert client.received() == []
    client.advance(2_000)
    (again,) = client.received()
    sections = decode_sections(again.payload)
    assert text_of(again.payload) == "a"
    assert sections.application_properties == {"note": "later"}
    assert sections.header is not None
    assert sections.header.delivery_count == 1


def test_a_delivery_time_in_the_past_means_at_once(client: Client) -> None:
    answer(client, modified(Long(0)))
    assert len(client.received()) == 1


@pytest.mark.parametrize("value", ["soon", True, 1.5, ULong(2**64 - 1)])
def test_what_is_not_a_delivery_time_within_the_limit_is_refused_and_the_message_stays_locked(
    client: Client, value: Value
) -> None:
    state = answer(client, modified(value))
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "com.microsoft:argument-error"
    assert client.received() == []
    client.advance(61_000)
    assert len(client.received()) == 1


def test_a_message_settled_over_management_takes_the_delivery_time_from_its_properties(client: Client) -> None:
    _, message = client.hold(credit=5)
    arguments: dict[Value, Value] = {
        "disposition-status": "abandoned",
        "lock-tokens": Array([UUID(bytes_le=message.delivery_tag)]),
        "properties-to-modify": {TIME: Timestamp(client.front.sim.now + 30_000)},
    }
    node = client.node("orders/$management")
    assert status(node.ask("com.microsoft:update-disposition", arguments))[0] == 200
    assert client.received() == []
    client.advance(31_000)
    (again,) = client.received()
    assert not decode_sections(again.payload).application_properties


def test_a_peek_shows_when_a_message_that_was_put_off_comes_again(client: Client) -> None:
    until = Timestamp(client.front.sim.now + DELAY_MAX)
    answer(client, modified(until))
    (peeked,) = body(client.node("orders/$management").ask("com.microsoft:peek-message", {}))["messages"]
    annotations = decode_sections(peeked["message"]).message_annotations
    assert annotations is not None
    assert annotations[Symbol("x-opt-scheduled-enqueue-time")] == until
    assert annotations[Symbol("x-opt-message-state")] == 2
