"""The rules of pairing on a simulated clock, one outage at a time."""

from datetime import timedelta

import pytest

from tests.pairing.world import World
from twinbus.pairing.events import Availability, EventKind
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def failed_over(world: World) -> None:
    """Take the primary down and let the timer of `orders` run out."""
    world.primary.is_down = True
    assert not world.send(world.sender("orders"))
    world.pass_time(MINUTE)


def drain(world: World) -> None:
    syphons = [world.syphon(queue) for queue in world.queues]
    for _ in range(400):
        for syphon in syphons:
            syphon.do_pass()
        if not world.in_backlog():
            return
        world.pass_time(5 * SECOND)


def kinds(world: World) -> list[EventKind]:
    return [event.kind for event in world.events]


@pytest.mark.rule("B3.3")
def test_a_send_during_the_timer_is_raised_and_one_after_it_is_accepted() -> None:
    world = World(1)
    world.primary.is_down = True
    sender = world.sender("orders")
    assert not world.send(sender)
    world.pass_time(59 * SECOND)
    assert not world.send(sender)
    world.pass_time(SECOND)
    assert world.send(sender)
    assert len(world.in_backlog()) == 1


@pytest.mark.rule("B3.2")
def test_what_flaps_for_less_than_the_interval_is_not_failed_over_and_what_is_down_for_longer_is() -> None:
    world = World(1, SendAvailabilityPairedNamespaceOptions(failover_interval=SECOND))
    sender = world.sender("orders")
    tick = timedelta(milliseconds=40)
    for _ in range(10):
        for is_down, ticks in ((True, 15), (False, 48)):
            world.primary.is_down = is_down
            for _ in range(ticks):
                assert world.send(sender) is not is_down
                world.pass_time(tick)
    assert EventKind.TIMER_STARTED in kinds(world)
    assert EventKind.FAILED_OVER not in kinds(world)
    world.primary.is_down = True
    world.send(sender)
    world.pass_time(SECOND)
    assert world.send(sender)
    assert EventKind.FAILED_OVER in kinds(world)


@pytest.mark.rule("B3.1")
def test_one_entity_fails_over_and_the_others_do_not() -> None:
    world = World(1)
    failed_over(world)
    world.primary.is_down = False
    assert world.send(world.sender("bills"))
    assert len(world.entities["bills"].arrived) == 1
    assert world.send(world.sender("orders"))
    assert len(world.in_backlog()) == 1


@pytest.mark.rule("B3")
def test_an_interval_of_zero_saves_the_very_send_that_failed() -> None:
    world = World(1, SendAvailabilityPairedNamespaceOptions(failover_interval=timedelta(0)))
    world.primary.is_down = True
    assert world.send(world.sender("orders"))
    assert len(world.in_backlog()) == 1


@pytest.mark.rule("B5.1")
def test_a_sender_keeps_its_backlog_queue() -> None:
    world = World(1)
    failed_over(world)
    sender = world.sender("orders")
    for _ in range(20):
        world.send(sender)
    assert sorted(len(queue.waiting) for queue in world.queues.values()) == [0, 0, 20]


@pytest.mark.rule("B5.2")
def test_a_queue_that_fails_is_out_for_all_senders_and_comes_back_later() -> None:
    world = World(1)
    failed_over(world)
    full, *others = world.queues.values()
    full.is_full = True
    senders = [world.sender("orders") for _ in range(30)]
    assert all(world.send(sender) for sender in senders)
    assert full.waiting == []
    assert sum(len(queue.waiting) for queue in others) == 30
    assert kinds(world).count(EventKind.QUEUE_TAKEN_OUT) == 1
    full.is_full = False
    world.pass_time(MINUTE)
    assert EventKind.QUEUE_READMITTED in kinds(world)
    assert all(world.send(world.sender("orders")) for _ in range(30))
    assert full.waiting


@pytest.mark.rule("B5.4")
def test_with_both_namespaces_down_the_caller_gets_the_error() -> None:
    world = World(1)
    failed_over(world)
    world.secondary.is_down = True
    assert not world.send(world.sender("orders"))
    assert world.in_backlog() == []


@pytest.mark.rule("B5.4")
def test_a_secondary_that_was_away_takes_the_next_send_and_all_its_queues_are_back() -> None:
    """With the first success, not a minute after the failure."""
    world = World(1)
    failed_over(world)
    sender = world.sender("orders")
    world.secondary.is_down = True
    assert not world.send(sender)
    assert all(queue.out_until is not None for queue in world.availability.state().backlog_queues)
    world.secondary.is_down = False
    assert world.send(sender)
    assert all(queue.out_until is None for queue in world.availability.state().backlog_queues)


@pytest.mark.rule("B5.4")
def test_a_send_goes_on_trying_while_it_has_time_and_is_accepted_when_a_queue_works_again() -> None:
    world = World(1)
    failed_over(world)
    world.secondary.is_down = True
    began = world.clock.at

    class BackSoon(type(world.secondary)):  # type: ignore[misc]
        def reach(self, timeout_s: float) -> None:
            self.is_down = self.clock.at < began + 4_000
            super().reach(timeout_s)

    world.secondary.__class__ = BackSoon
    assert world.send(world.sender("orders"))
    assert 4_000 <= world.clock.at - began < 6_000


@pytest.mark.rule("B7.2")
def test_pings_find_the_recovery_within_one_interval_for_every_sender() -> None:
    world = World(1)
    senders = [world.sender("orders") for _ in range(5)]
    failed_over(world)
    world.pass_time(5 * MINUTE)
    assert kinds(world).count(EventKind.PING) == 5
    world.primary.is_down = False
    world.pass_time(MINUTE)
    assert all(world.send(sender) for sender in senders)
    assert len(world.entities["orders"].arrived) == 5
    assert kinds(world).count(EventKind.RECOVERED) == 1
    world.pass_time(10 * MINUTE)
    assert kinds(world).count(EventKind.PING) == 6


@pytest.mark.rule("B7.3")
def test_an_entity_that_was_deleted_during_the_outage_refuses_instead_of_filling_the_backlog() -> None:
    world = World(1)
    failed_over(world)
    world.primary.is_down = False
    world.entities["orders"].is_deleted = True
    world.pass_time(MINUTE)
    assert world.availability.state().entities[0].availability is Availability.REFUSING
    assert not world.send(world.sender("orders"))
    assert world.in_backlog() == []


@pytest.mark.rule("B7.4")
def test_marking_healthy_by_hand_needs_no_ping() -> None:
    world = World(1)
    failed_over(world)
    world.primary.is_down = False
    world.availability.mark_healthy("ORDERS", world.clock.at)
    assert world.send(world.sender("orders"))
    assert len(world.entities["orders"].arrived) == 1


@pytest.mark.rule("B8.7")
def test_the_syphon_keeps_the_order_of_a_sender_over_a_second_outage() -> None:
    world = World(3)
    failed_over(world)
    sender = world.sender("orders")
    for _ in range(500):
        world.send(sender)
    syphons = [world.syphon(queue) for queue in world.queues]
    for turn in range(60):
        world.primary.is_down = turn % 2 == 0
        for syphon in syphons:
            syphon.do_pass()
        world.pass_time(7 * SECOND)
    world.primary.is_down = False
    drain(world)
    arrived = [int(each.rpartition("-")[2]) for each in world.entities["orders"].arrived]
    assert len(set(arrived)) == 500
    assert arrived == sorted(arrived)


@pytest.mark.rule("B8")
def test_a_destination_that_is_gone_does_not_hold_up_the_others() -> None:
    world = World(1)
    world.primary.is_down = True
    senders = [world.sender(path) for path in ("orders", "bills")]
    for sender in senders:
        world.send(sender)
    world.pass_time(MINUTE)
    for sender in senders * 10:
        assert world.send(sender)
    world.primary.is_down = False
    world.entities["bills"].is_deleted = True
    drain(world)
    assert len(world.entities["orders"].arrived) == 10
    assert len(world.dead()) == 10
    world.auditor.check_ledger(world.ledger())


@pytest.mark.rule("B10.2")
def test_a_new_message_may_arrive_before_the_backlog_is_drained() -> None:
    world = World(1)
    failed_over(world)
    sender = world.sender("orders")
    assert world.send(sender)
    world.primary.is_down = False
    world.pass_time(MINUTE)
    assert world.send(sender)
    assert world.entities["orders"].arrived == ["orders-2"]
    drain(world)
    assert world.entities["orders"].arrived == ["orders-2", "orders-1"]
