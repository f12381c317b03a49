"""One fragment at a time: in a partitioned entity with one messaging store down, only what needs that store goes to the backlog."""

from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError

from tests.pairing.world import World
from twinbus.pairing.deciding.partitioning import Partitioning
from twinbus.pairing.events import Availability, EventKind
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.stock.failures import is_answer

SECOND = timedelta(seconds=1)
SIXTEEN = Partitioning(16)


def key_in(fragment: int, number: int = 0) -> str:
    found = (key for key in (f"s{each}" for each in count()) if SIXTEEN.fragment_of_key(key) == fragment)
    return [next(found) for _ in range(number + 1)][number]


def world_of(*, interval: timedelta = timedelta(0), **chosen: Any) -> World:
    options = SendAvailabilityPairedNamespaceOptions(
        failover_interval=interval, ping_primary_interval=10 * SECOND, ping_jitter=0, backlog_queue_count=2, **chosen
    )
    world = World(1, options)
    world.entities["orders"].partitioning = SIXTEEN
    return world


def lose(world: World, *fragments: int) -> None:
    world.entities["orders"].lost_fragments = set(fragments)


def troubled(world: World) -> dict[int, Availability]:
    (state,) = (each for each in world.availability.state().entities if each.path == "orders")
    return {each.fragment: each.availability for each in state.fragments}


@pytest.mark.rule("B8")
def test_only_the_messages_of_a_lost_fragment_go_to_the_backlog() -> None:
    world = world_of()
    lose(world, 3)
    sender = world.sender("orders")
    for fragment in range(16):
        assert world.send(sender, session_id=key_in(fragment))
    assert world.send(sender), "a message without a key goes to another fragment"
    assert len(world.in_backlog()) == 1
    assert len(world.entities["orders"].arrived) == 16
    (state,) = world.availability.state().entities
    assert state.availability is Availability.HEALTHY
    assert troubled(world) == {3: Availability.FAILED_OVER}


@pytest.mark.rule("B8")
def test_the_primary_is_asked_once_how_an_entity_is_partitioned_and_never_while_it_is_healthy() -> None:
    world = world_of()
    sender = world.sender("orders")
    assert world.send(sender, session_id=key_in(3))
    assert world.questions == 0
    lose(world, 3, 4)
    for _ in range(3):
        assert world.send(sender, session_id=key_in(3))
        assert world.send(sender, session_id=key_in(4))
    assert world.questions == 1


@pytest.mark.rule("B8")
def test_nobody_is_asked_where_the_options_say_how_many_fragments_there_are() -> None:
    world = world_of(fragment_counts={"ORDERS": 16})
    lose(world, 3)
    assert world.send(world.sender("orders"), session_id=key_in(3))
    assert world.questions == 0
    assert troubled(world) == {3: Availability.FAILED_OVER}


@pytest.mark.rule("B8")
def test_an_entity_whose_fragments_are_unknown_fails_over_as_a_whole() -> None:
    world = world_of(fragment_counts={})
    lose(world, 3)
    sender = world.sender("orders")
    assert world.send(sender, session_id=key_in(3))
    assert world.send(sender, session_id=key_in(4))
    assert len(world.in_backlog()) == 2
    assert world.availability.state().entities[0].availability is Availability.FAILED_OVER


@pytest.mark.rule("B3", "B8")
def test_a_fragment_has_a_timer_of_its_own_that_the_success_of_others_does_not_stop() -> None:
    world = world_of(interval=5 * SECOND)
    lose(world, 3)
    sender = world.sender("orders")
    assert not world.send(sender, session_id=key_in(3)), "until the interval has passed its failures are raised"
    world.pass_time(3 * SECOND)
    assert world.send(sender, session_id=key_in(4))
    world.pass_time(3 * SECOND)
    assert world.send(sender, session_id=key_in(3))
    assert len(world.in_backlog()) == 1


@pytest.mark.rule("B3", "B8")
def test_a_success_in_the_fragment_itself_stops_its_timer() -> None:
    world = world_of(interval=5 * SECOND)
    lose(world, 3)
    sender = world.sender("orders")
    assert not world.send(sender, session_id=key_in(3))
    assert troubled(world) == {3: Availability.FAILING}
    lose(world)
    assert world.send(sender, session_id=key_in(3, 1))
    assert troubled(world) == {}


@pytest.mark.rule("B7", "B8")
def test_the_ping_of_a_fragment_needs_that_fragment() -> None:
    world = world_of()
    lose(world, 3)
    sender = world.sender("orders")
    assert world.send(sender, session_id=key_in(3))
    world.pass_time(25 * SECOND)
    assert [(ping.fragment, SIXTEEN.fragment_of_key(ping.session_id)) for ping in world.pings] == [(3, 3), (3, 3)]
    lose(world)
    world.pass_time(10 * SECOND)
    assert troubled(world) == {}
    steps = [(event.kind, event.fragment) for event in world.events if event.kind is not EventKind.BACKLOG_SEND]
    assert steps[:2] == [(EventKind.TIMER_STARTED, 3), (EventKind.FAILED_OVER, 3)]
    assert (EventKind.RECOVERED, 3) in steps


@pytest.mark.rule("B4", "B8")
def test_an_outage_of_the_namespace_still_fails_over_the_whole_entity() -> None:
    """Nobody answered, so every fragment is out of reach; each would otherwise have to fail by itself first."""
    world = world_of(fragment_counts={"orders": 16})
    sender = world.sender("orders")
    assert world.send(sender, session_id=key_in(1))
    world.primary.is_down = True
    assert world.send(sender, session_id=key_in(3))
    (state,) = world.availability.state().entities
    assert (state.availability, state.fragments) == (Availability.FAILED_OVER, ())


@pytest.mark.rule("B4", "B8")
def test_a_fragment_that_hangs_while_others_answer_fails_over_alone() -> None:
    world = world_of(fragment_counts={"orders": 16})
    availability, now = world.availability, world.clock.at
    availability.primary_answered("orders", now + 4_000, SIXTEEN.fragment_of_key(key_in(4)))
    availability.primary_failed("orders", TimeoutError(), now + 5_000, fragment=3, began_at=now)
    assert troubled(world) == {3: Availability.FAILED_OVER}
    availability.primary_failed("orders", TimeoutError(), now + 9_000, fragment=5, began_at=now + 6_000)
    assert world.availability.state().entities[0].availability is Availability.FAILED_OVER


@pytest.mark.rule("B8")
def test_sessions_of_a_lost_fragment_stay_in_order_and_those_of_others_never_leave_the_primary() -> None:
    world = world_of()
    for queue in world.queues:
        world.syphon(queue)
    sender, orders = world.sender("orders"), world.entities["orders"]
    lost, other = key_in(3), key_in(4)
    sent: list[str] = []

    def send_both() -> None:
        for session in (lost, other):
            name = f"{session}-{len(sent):04d}"
            sent.append(name)
            assert sender.send([name], session_id=session)

    send_both()
    lose(world, 3)
    for _ in range(5):
        send_both()
        world.pass_time(SECOND)
    lose(world)
    for _ in range(60):
        send_both()
        world.pass_time(SECOND)
        for syphon in world.syphons * 6:
            syphon.step()
    for session in (lost, other):
        mine = [each for each in orders.arrived if each.startswith(f"{session}-")]
        assert mine == [each for each in sent if each.startswith(f"{session}-")], "none is missing, none is overtaken"
    through = {event.path for event in world.events if event.kind is EventKind.BACKLOG_SEND}
    assert through == {"orders"}
    assert world.availability.state().entities[0].availability is Availability.HEALTHY
    assert troubled(world) == {}


@pytest.mark.rule("B8")
def test_before_anybody_has_looked_only_the_sessions_of_the_recovered_fragment_go_on_through_the_backlog() -> None:
    world = world_of()
    lose(world, 3)
    sender = world.sender("orders")
    assert world.send(sender, session_id=key_in(3))
    lose(world)
    world.availability.mark_healthy("orders", world.clock.at)
    before = len(world.in_backlog())
    assert world.send(sender, session_id=key_in(4))
    assert len(world.in_backlog()) == before
    assert world.send(sender, session_id=key_in(3, 2))
    assert len(world.in_backlog()) == before + 1


def test_which_fragment_messages_need() -> None:
    def message(**given: Any) -> ServiceBusMessage:
        return ServiceBusMessage("x", **given)

    assert SIXTEEN.fragment_of([message(session_id="mySession")]) == 6
    assert SIXTEEN.fragment_of([message(partition_key="myPartitionKey")]) == 11
    assert SIXTEEN.fragment_of([message(partition_key="order-1"), message(partition_key="A")]) == 13
    assert SIXTEEN.fragment_of([message(partition_key="0"), message(partition_key="1")]) is None
    assert SIXTEEN.fragment_of([message(message_id="0")]) is None
    assert Partitioning(16, detects_duplicates=True).fragment_of([message(message_id="0")]) == 1
    assert SIXTEEN.fragment_of([message()]) is None
    assert SIXTEEN.fragment_of([AmqpAnnotatedMessage(data_body=b"x")]) is None
    assert SIXTEEN.fragment_of([message(session_id="a"), message()]) is None
    assert Partitioning(1).fragment_of([message(session_id="a")]) is None
    assert SIXTEEN.fragment_of_key(SIXTEEN.key_in(7)) == 7


def test_only_what_the_primary_itself_says_of_a_message_is_an_answer() -> None:
    assert is_answer(ServiceBusError("x", condition=b"amqp:internal-error"))
    assert not is_answer(ConnectionError())
    assert not is_answer(TimeoutError())
    assert not is_answer(ServiceBusError("x", condition=b"com.microsoft:server-busy"))
