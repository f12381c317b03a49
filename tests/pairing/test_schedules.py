"""Schedules of outages on a simulated clock, by seed: whatever happens, what was accepted is somewhere.

Processes with paired senders and several syphons work while namespaces go down, hang and flap, replies get lost, keys are
revoked, queues fill up, syphons crash between any two requests, and somebody marks entities healthy that are not. An auditor
looks on. Then all heals and the backlog is drained.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.pairing.world import SimSender, World
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions

SECOND = timedelta(seconds=1)
TURNS = 20
AUDITED_EVERY = 5
DRAIN_ROUNDS_MAX = 500
SEEDS_A_TEST = 250


def world_of(seed: int) -> World:
    options = SendAvailabilityPairedNamespaceOptions(
        backlog_queue_count=3,
        failover_interval=timedelta(seconds=5 * (seed % 3)),
        ping_primary_interval=timedelta(seconds=10),
        readmission_interval=timedelta(seconds=20),
        recovery_ramp=timedelta(seconds=10 * (seed % 2)),
        ping_jitter=0.2,
    )
    return World(seed, options, process_count=1 + seed % 3, detects_duplicates=seed % 4 == 0)


def go_down(world: World) -> None:
    world.primary.is_down = not world.primary.is_down


def hang(world: World) -> None:
    world.primary.is_hung = not world.primary.is_hung


def lose_the_spare(world: World) -> None:
    world.secondary.is_down = not world.secondary.is_down


def revoke_the_key(world: World) -> None:
    world.primary.refuses_key = not world.primary.refuses_key


def fill_a_backlog_queue(world: World) -> None:
    queue = world.random.choice(list(world.queues.values()))
    queue.is_full = not queue.is_full


def fill_an_entity(world: World) -> None:
    entity = world.random.choice(list(world.entities.values()))
    entity.is_full = not entity.is_full


def lose_replies(world: World) -> None:
    for space in (world.primary, world.secondary):
        space.reply_loss = world.random.choice((0.0, 0.3))


def mark_healthy(world: World) -> None:
    world.random.choice(world.processes).mark_healthy(world.random.choice(list(world.entities)), world.clock.at)


def crash_a_syphon(world: World) -> None:
    world.random.choice(world.syphons).crash()


FAULTS: list[Callable[[World], None]] = [
    go_down,
    go_down,
    hang,
    lose_the_spare,
    revoke_the_key,
    fill_a_backlog_queue,
    fill_an_entity,
    lose_replies,
    mark_healthy,
    crash_a_syphon,
    crash_a_syphon,
]


def run_schedule(seed: int) -> None:
    world = world_of(seed)
    random = world.random
    senders = [world.sender(path, process) for path in world.entities for process in range(len(world.processes))]
    for queue in world.queues:
        world.syphon(queue)
    world.syphon(random.choice(list(world.queues)))
    is_flapping = random.random() < 0.2
    for turn in range(TURNS):
        if is_flapping:
            go_down(world)
        if random.random() < 0.5:
            random.choice(FAULTS)(world)
        for sender in random.choices(senders, k=2):
            world.send(sender, 2 if random.random() < 0.05 else 1)
        for syphon in random.choices(world.syphons, k=4):
            syphon.step()
        if turn % AUDITED_EVERY == 0:
            world.auditor.check_ledger(world.ledger())
        world.pass_time(random.randint(0, 3 if is_flapping else 15) * SECOND)
    world.entities["mails"].is_deleted = seed % 5 == 0
    drain(world)
    world.auditor.check_ledger(world.ledger())
    assert all(each.startswith("mails") for each in world.dead())
    check_recovery(world, senders)


def drain(world: World) -> None:
    """Everything is mended; the syphons that there are bring the backlog home."""
    for space in (world.primary, world.secondary):
        space.heal()
    for entity in world.entities.values():
        entity.is_full = False
    for _ in range(DRAIN_ROUNDS_MAX):
        for syphon in world.syphons:
            syphon.step()
        if not world.in_backlog():
            return
        world.clock.at += 3_000
    raise AssertionError("the backlog is never drained")


def check_recovery(world: World, senders: list[SimSender]) -> None:
    """A failover interval, a ping interval and a ramp later all senders are back at the primary, all queues in rotation."""
    world.pass_time(30 * SECOND)
    for sender in senders:
        entity = world.entities[sender.path]
        before = len(entity.arrived)
        assert world.send(sender) is not entity.is_deleted
        assert len(entity.arrived) == before + (not entity.is_deleted)
    states = [process.state() for process in world.processes]
    assert all(queue.out_until is None for state in states for queue in state.backlog_queues)


def run_schedules(seeds: range) -> None:
    for seed in seeds:
        try:
            run_schedule(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.rule("B5.5", "B7", "B8")
@pytest.mark.parametrize("first", range(0, 2_000, SEEDS_A_TEST))
def test_what_a_paired_sender_got_accepted_is_delivered_waiting_or_dead_lettered(first: int) -> None:
    run_schedules(range(first, first + SEEDS_A_TEST))


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("first", range(10_000, 110_000, 10_000))
def test_what_a_paired_sender_got_accepted_is_somewhere_over_many_more_schedules(first: int) -> None:
    run_schedules(range(first, first + 10_000))
