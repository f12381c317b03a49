"""The clock of the machine is set while clients are connected: connections, links and requests go on as if it had not been."""

from pathlib import Path

import pytest

from tests.gateway.front import Client, Front, payload
from twinbus.amqp.codec.delivery_state import Modified
from twinbus.amqp.codec.sections import Sections
from twinbus.amqp.codec.types import UInt
from twinbus.amqp.events import ConnectionClosed, LinkDetached
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.clock import Millis
from twinbus.gateway.connection_gateway import TOKEN_WAIT
from twinbus.gateway.links.bindings import IDLE_MAX
from twinbus.gateway.links.failure_pace import CALM_AFTER, FREE_COUNT, REST_FIRST, FailurePace, LeftPaces
from twinbus.gateway.nodes.read_turns import READS_MAX, ReadTurns
from twinbus.gateway.nodes.request_message import Response
from twinbus.gateway.requests.call import Respond
from twinbus.gateway.weight import HEAVY_BYTES, Weight
from twinbus.model.descriptions import QueueDescription

HOUR = 3_600_000


@pytest.fixture(params=[HOUR, -HOUR], ids=["forward", "back"])
def by(request: pytest.FixtureRequest) -> Millis:
    return int(request.param)


@pytest.fixture
def front(tmp_path: Path) -> Front:
    front = Front(tmp_path)
    front.sim.queue(QueueDescription("orders", max_delivery_count=100))
    return front


def set_clock(client: Client, by: Millis) -> None:
    """At the server; a client measures its own silence."""
    client.front.sim.set_clock(by)
    client.gateway.clock_stepped(by)
    client.connection.clock_stepped(by)


def conditions(client: Client) -> list[str]:
    return [event.error.condition for event in client.take(LinkDetached) if event.error is not None]


def status_of(reply: Sections) -> object:
    return (reply.application_properties or {})["statusCode"]


def test_a_client_settles_what_it_got_before_and_receives_on(front: Front, by: Millis) -> None:
    client = front.client()
    receiver, message = client.hold(credit=2)
    set_clock(client, by)
    client.advance(1_000)
    receiver.settle(message.delivery_id, message.delivery_id, Modified(delivery_failed=False))
    client.run()
    assert len(client.received()) == 1
    assert not client.take(ConnectionClosed)
    assert conditions(client) == []


def test_a_link_is_not_idle_because_the_clock_was_set(front: Front, by: Millis) -> None:
    client = front.client()
    client.sender("orders")
    client.receiver("orders")
    set_clock(client, by)
    client.advance(IDLE_MAX)
    assert conditions(client) == []
    client.advance(1_000)
    assert conditions(client) == ["amqp:link:detach-forced"] * 2


def test_a_connection_has_as_long_as_ever_to_bring_a_token(front: Front, by: Millis) -> None:
    client = front.client(rule=None)
    set_clock(client, by)
    client.advance(TOKEN_WAIT - 1)
    assert not client.take(ConnectionClosed)
    client.advance(1)
    assert client.take(ConnectionClosed)


@pytest.mark.parametrize("does_not_read", [False, True])
def test_a_request_has_as_long_as_it_asked_for(front: Front, by: Millis, does_not_read: bool) -> None:
    client = front.client()
    node = client.node("orders/$management")
    if does_not_read:
        client.gateway.pause()
    else:
        front.sim.ports[0].is_hung = True
    peek = {"from-sequence-number": 0, "message-count": 1}
    node.send("com.microsoft:peek-message", peek, **{"com.microsoft:server-timeout": UInt(5_000)})
    assert node.answers() == []
    set_clock(client, by)
    client.advance(4_999)
    assert node.answers() == []
    client.advance(1)
    (answer,) = node.answers()
    assert status_of(answer) == 408


def test_a_request_that_waits_for_its_turn_has_as_long_as_it_asked_for(by: Millis) -> None:
    turns, answers, begun = ReadTurns(), list[Response](), list[Millis]()
    turns.pause()
    for deadline in (10, 20):
        turns.ask(lambda now, _: begun.append(now), 0, deadline, answers.append)
    turns.clock_stepped(by)
    turns.tick(by + 9)
    assert answers == []
    turns.tick(by + 10)
    assert [each.status for each in answers] == [408]
    turns.resume(by + 11)
    assert begun == [by + 11]


def test_work_that_follows_other_work_begins_in_the_new_time(by: Millis) -> None:
    turns, begun = ReadTurns(), list[tuple[Millis, Respond]]()
    for _ in range(READS_MAX + 1):
        turns.ask(lambda now, respond: begun.append((now, respond)), 5, 99, lambda _: None)
    turns.clock_stepped(by)
    begun[0][1](Response.ok())
    assert begun[READS_MAX][0] == by + 5


def failing(client: Client) -> IncomingLink:
    """A receiver that has to rest, for the first time."""
    link, message = client.hold(credit=1_000)
    for _ in range(FREE_COUNT):
        link.settle(message.delivery_id, message.delivery_id, Modified(delivery_failed=False))
        client.run()
        (message,) = client.received()
    link.settle(message.delivery_id, message.delivery_id, Modified(delivery_failed=False))
    client.run()
    assert client.received() == []
    return link


def test_a_receiver_rests_as_long_as_it_was_to(front: Front, by: Millis) -> None:
    client = front.client()
    failing(client)
    set_clock(client, by)
    client.advance(REST_FIRST - 1)
    assert client.received() == []
    client.advance(1)
    assert len(client.received()) == 1


def test_so_does_the_link_that_takes_its_place(front: Front, by: Millis) -> None:
    client = front.client()
    failing(client).detach()
    client.run()
    set_clock(client, by)
    client.receiver("orders", credit=1)
    client.advance(REST_FIRST - 1)
    assert client.received() == []
    client.advance(1)
    assert len(client.received()) == 1


def test_failures_in_a_row_are_forgotten_after_the_same_while(by: Millis) -> None:
    pace = FailurePace()
    for number in range(FREE_COUNT):
        pace.failed(number, 0)
    left = LeftPaces()
    left.leave("orders", pace)
    left.clock_stepped(by)
    taken = left.take("orders")
    assert taken is pace
    assert pace.failed(FREE_COUNT, by + CALM_AFTER - 1) == REST_FIRST
    assert pace.failed(FREE_COUNT + 1, by + 2 * CALM_AFTER) == 0


def test_who_has_just_sent_much_is_still_heavy(by: Millis) -> None:
    weight = Weight(0)
    weight.add(HEAVY_BYTES + 1, 0)
    weight.clock_stepped(by)
    weight.add(0, by)
    assert weight.is_heavy
    weight.add(0, by + 1)
    assert not weight.is_heavy


def test_an_entity_that_is_deleted_is_noticed_after_the_clock_was_set_back(front: Front) -> None:
    client = front.client()
    client.sender("orders").transfer(payload("a"), b"1")
    client.run()
    client.advance(1_000)
    set_clock(client, -HOUR)
    front.sim.entities.delete("orders", front.sim.now, lambda _: None)
    front.sim.run()
    client.advance(1_000)
    assert conditions(client) == ["amqp:not-found"]
