"""The time to live that receivers see is the one that counts, wherever they see it (contract A14)."""

from pathlib import Path

import pytest

from tests.gateway.front import Client, Front
from tests.gateway.raw_wire import DATA, RawWire, section, source, target
from twinbus.amqp.codec.sections import Sections, decode_sections
from twinbus.amqp.codec.types import Array, Long, UByte, UInt, Value
from twinbus.amqp.events import Deliveries
from twinbus.broker.outcomes import Defer
from twinbus.clock import Millis
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import read_message
from twinbus.testing.messages import make_message

DAY: Millis = 86_400_000
HUNDRED_DAYS: Millis = 100 * DAY


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("short", default_time_to_live=HUNDRED_DAYS))
    front.sim.queue(QueueDescription("plain"))
    front.sim.queue(QueueDescription("onward", forward_to="shorter"))
    front.sim.queue(QueueDescription("shorter", default_time_to_live=DAY))
    front.sim.topic(TopicDescription("topic", default_time_to_live=10 * DAY))
    front.sim.subscription(SubscriptionDescription("topic", "all", default_time_to_live=2 * DAY))
    return front


def times(sections: Sections) -> tuple[Value, Value, Value]:
    assert sections.header is not None
    assert sections.properties is not None
    return sections.header.ttl, sections.properties.creation_time, sections.properties.absolute_expiry_time


def received(client: Client, path: str) -> Sections:
    client.receiver(path, credit=1)
    ((delivery,),) = [event.deliveries for event in client.take(Deliveries)]
    return decode_sections(delivery.payload)


@pytest.mark.rule("A14.2")
def test_a_message_without_any_sections_but_its_body_shows_the_queues_time_to_live(front: Front) -> None:
    """Frame by frame as the .NET SDK sends and receives."""
    wire = RawWire(front)
    wire.put_token("short")
    for channel in (1, 2):
        rest: list[Value] = [UInt(1), UInt(4294967295), UInt(5000), UInt(262143), None, None, {}]
        wire.say(channel, "begin", None, *rest)
    where: list[Value] = [source("short-1"), target("/short"), None, None, UInt(0), *[None] * 4]
    wire.say(1, "attach", "sender", UInt(0), False, None, None, *where)
    wire.transfer(1, 0, 0, section(DATA, b"x"))
    origin = source("/short", *[None] * 6, {}, *[None] * 3)
    wire.say(2, "attach", "receiver", UInt(0), True, None, UByte(1), origin, target("me"), *[None] * 7)
    wire.flow(2, handle=0, credit=1)
    (delivery,) = wire.take("transfer")
    now = front.sim.now
    assert times(decode_sections(delivery.payload)) == (2**32 - 1, now, now + HUNDRED_DAYS)


@pytest.mark.rule("A14.2")
def test_a_time_to_live_above_the_queues_is_delivered_as_the_queues(front: Front) -> None:
    front.sim.send(front.sim.entities.queue("shorter"), make_message("m", time_to_live=3 * DAY))
    now = front.sim.now
    assert times(received(front.client(), "shorter")) == (DAY, now, now + DAY)


@pytest.mark.rule("A14.3")
def test_a_time_to_live_below_the_queues_is_delivered_as_it_was_sent(front: Front) -> None:
    front.sim.send(front.sim.entities.queue("shorter"), make_message("m", time_to_live=60_000))
    assert times(received(front.client(), "shorter")) == (60_000, None, None)


@pytest.mark.rule("A14.3")
def test_a_message_that_never_expires_has_no_time_to_live(front: Front) -> None:
    front.sim.send(front.sim.entities.queue("plain"), make_message("m"))
    assert times(received(front.client(), "plain")) == (None, None, None)


def test_a_subscription_delivers_the_shortest_time_to_live(front: Front) -> None:
    front.sim.send(front.sim.entities.topic("topic"), make_message("m"))
    now = front.sim.now
    assert times(received(front.client(), "topic/Subscriptions/all")) == (2 * DAY, now, now + 2 * DAY)


def test_a_forwarded_message_shows_the_time_to_live_of_where_it_is(front: Front) -> None:
    front.sim.send(front.sim.entities.queue("onward"), make_message("m"))
    now = front.sim.now
    assert times(received(front.client(), "shorter")) == (DAY, now, now + DAY)


def test_a_peek_shows_what_a_delivery_would(front: Front) -> None:
    queue = front.sim.entities.queue("shorter")
    due_at = front.sim.now + 5_000
    front.sim.send(queue, make_message("now"), make_message("later", scheduled_at=due_at))
    now = front.sim.now
    node = front.client().node("shorter/$management")
    reply = node.ask("com.microsoft:peek-message", {"message-count": 2})
    assert reply.body is not None
    messages = reply.body.value["messages"]  # type: ignore[union-attr]
    assert [times(decode_sections(each["message"])) for each in messages] == [
        (DAY, now, now + DAY),
        (DAY, due_at, due_at + DAY),
    ]
    front.sim.advance(5_000)
    client = front.client()
    client.receiver("shorter", credit=2)
    (event,) = client.take(Deliveries)
    assert [times(decode_sections(each.payload)) for each in event.deliveries] == [
        (DAY, now, now + DAY),
        (DAY, due_at, due_at + DAY),
    ]


def test_a_deferred_message_shows_its_time_to_live(front: Front) -> None:
    queue = front.sim.entities.queue("shorter")
    front.sim.send(queue, make_message("m"))
    now = front.sim.now
    front.sim.settle(queue.main, front.sim.receiver(queue.main, 1).take(), Defer())
    node = front.client().node("shorter/$management")
    reply = node.ask("com.microsoft:receive-by-sequence-number", {"sequence-numbers": Array([Long(1)])})
    assert reply.body is not None
    (message,) = reply.body.value["messages"]  # type: ignore[union-attr]
    assert times(decode_sections(message["message"])) == (DAY, now, now + DAY)


def test_what_a_receiver_sends_on_means_the_same(front: Front) -> None:
    """A copy of a delivery, sent again, has the time to live that it showed."""
    front.sim.send(front.sim.entities.queue("short"), make_message("m"))
    client = front.client()
    client.receiver("short", credit=1)
    ((delivery,),) = [event.deliveries for event in client.take(Deliveries)]
    assert read_message(delivery.payload, lambda: "").time_to_live == HUNDRED_DAYS
