"""Schedules of outages on a simulated clock: whatever happens, what was accepted is somewhere."""

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
    pumps = [world.pump(queue) for queue in world.queues]
    for _ in range(400):
        for pump in pumps:
            pump.do_pass()
        if not world.in_backlog():
            return
        world.pass_time(5 * SECOND)


def kinds(world: World) -> list[EventKind]:
    return [event.kind for event in world.events]


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


def test_one_entity_fails_over_and_the_others_do_not() -> None:
    world = World(1)
    failed_over(world)
    world.primary.is_down = False
    assert world.send(world.sender("bills"))
    assert len(world.entities["bills"]) == 1
    assert world.send(world.sender("orders"))
    assert len(world.in_backlog()) == 1


def test_an_interval_of_zero_saves_the_very_send_that_failed() -> None:
    world = World(1, SendAvailabilityPairedNamespaceOptions(failover_interval=timedelta(0)))
    world.primary.is_down = True
    assert world.send(world.sender("orders"))
    assert len(world.in_backlog()) == 1


def test_a_sender_keeps_its_backlog_queue() -> None:
    world = World(1)
    failed_over(world)
    sender = world.sender("orders")
    for _ in range(20):
        world.send(sender)
    assert sorted(len(queue.waiting) for queue in world.queues.values()) == [0, 0, 20]


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


def test_with_both_namespaces_down_the_caller_gets_the_error() -> None:
    world = World(1)
    failed_over(world)
    world.secondary.is_down = True
    assert not world.send(world.sender("orders"))
    assert world.in_backlog() == []


def test_pings_find_the_recovery_within_one_interval_for_every_sender() -> None:
    world = World(1)
    senders = [world.sender("orders") for _ in range(5)]
    failed_over(world)
    world.pass_time(5 * MINUTE)
    assert kinds(world).count(EventKind.PING) == 5
    world.primary.is_down = False
    world.pass_time(MINUTE)
    assert all(world.send(sender) for sender in senders)
    assert len(world.entities["orders"]) == 5
    assert kinds(world).count(EventKind.RECOVERED) == 1
    world.pass_time(10 * MINUTE)
    assert kinds(world).count(EventKind.PING) == 6


def test_an_entity_that_was_deleted_during_the_outage_refuses_instead_of_filling_the_backlog() -> None:
    world = World(1)
    failed_over(world)
    world.primary.is_down = False
    del world.entities["orders"]
    world.pass_time(MINUTE)
    assert world.availability.state().entities[0].availability is Availability.REFUSING
    assert not world.send(world.sender("orders"))
    assert world.in_backlog() == []


def test_marking_healthy_by_hand_needs_no_ping() -> None:
    world = World(1)
    failed_over(world)
    world.primary.is_down = False
    world.availability.mark_healthy("ORDERS", world.clock.at)
    assert world.send(world.sender("orders"))
    assert len(world.entities["orders"]) == 1


def test_the_syphon_keeps_the_order_of_a_sender_over_a_second_outage() -> None:
    world = World(3)
    failed_over(world)
    sender = world.sender("orders")
    for _ in range(500):
        world.send(sender)
    pumps = [world.pump(queue) for queue in world.queues]
    for turn in range(60):
        world.primary.is_down = turn % 2 == 0
        for pump in pumps:
            pump.do_pass()
        world.pass_time(7 * SECOND)
    world.primary.is_down = False
    drain(world)
    arrived = [int(each.rpartition("-")[2]) for each in world.entities["orders"]]
    assert len(set(arrived)) == 500
    assert arrived == sorted(arrived)


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
    del world.entities["bills"]
    drain(world)
    assert len(world.entities["orders"]) == 10
    assert len(world.dead()) == 10
    assert not world.lost()


SEEDS = [*range(120), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(120, 400))]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_paired_sender_got_accepted_is_delivered_waiting_or_dead_lettered(seed: int) -> None:
    """Goal: no accepted message is lost, whatever fails when.

    Method: senders and syphons work while namespaces go down and up, replies get lost, queues
    fill up and an entity may be deleted; then all heals and the backlog is drained.
    """
    world = World(
        seed,
        SendAvailabilityPairedNamespaceOptions(
            backlog_queue_count=3,
            failover_interval=timedelta(seconds=5 * (seed % 3)),
            ping_primary_interval=timedelta(seconds=10),
            recovery_ramp=timedelta(seconds=10 * (seed % 2)),
        ),
    )
    random = world.random
    senders = [world.sender(path) for path in world.entities for _ in range(2)]
    pumps = [world.pump(queue) for queue in world.queues for _ in range(2)]
    for _ in range(40):
        for space in (world.primary, world.secondary):
            if random.random() < 0.15:
                space.is_down = not space.is_down
            space.reply_loss = random.choice((0.0, 0.0, 0.3))
        random.choice(list(world.queues.values())).is_full = random.random() < 0.3
        for sender in random.sample(senders, 2):
            world.send(sender, random.randint(1, 2))
        random.choice(pumps).do_pass()
        world.pass_time(random.randint(0, 20) * SECOND)
        assert not world.lost()
    if seed % 5 == 0:
        world.entities.pop("mails")
    for space in (world.primary, world.secondary):
        space.is_down, space.reply_loss = False, 0
    drain(world)
    assert world.in_backlog() == []
    # A deleted entity took with it what it had; what had not arrived yet is dead-lettered.
    assert all("mails" in each for each in world.lost() | set(world.dead()))
    for path, entity in world.entities.items():
        assert world.accepted[path] <= set(entity)
