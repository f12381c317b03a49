"""Many processes and one primary that comes back: they must not knock it down again."""

from collections import Counter
from datetime import timedelta

import pytest

from tests.pairing.world import Namespace, World
from twinbus.clock import Millis
from twinbus.pairing.events import Availability, EventKind
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


class ColdPrimary(Namespace):
    """After an outage it can do little, and each second a bit more; it goes down again when more is asked of it."""

    warm_since: Millis = 0
    fall_count = 0
    _second: Millis = 0
    _calls = 0

    def reach(self, timeout_s: float) -> None:
        super().reach(timeout_s)
        now = self.clock.at
        if now // 1000 != self._second:
            self._second, self._calls = now // 1000, 0
        self._calls += 1
        if self.warm_since and self._calls > 12 + (now - self.warm_since) / 20_000:
            self.is_down = True
            self.fall_count += 1
            raise ConnectionError("overloaded")

    def come_back(self) -> None:
        self.is_down = False
        self.warm_since = self.clock.at


def herd(process_count: int, *, jitter: float = 0.05, ramp: timedelta = timedelta(0)) -> World:
    """All processes meet the outage in the same moment and are failed over a minute later."""
    options = SendAvailabilityPairedNamespaceOptions(backlog_queue_count=2, ping_jitter=jitter, recovery_ramp=ramp)
    world = World(1, options, process_count=process_count)
    world.primary = ColdPrimary(world.random, world.clock)
    world.primary.is_down = True
    for process in world.processes:
        process.primary_failed("orders", ConnectionError("down"), world.clock.at)
    world.pass_time(MINUTE)
    assert states(world) == {Availability.FAILED_OVER: process_count}
    return world


def states(world: World) -> Counter[Availability]:
    return Counter(process.state().entities[0].availability for process in world.processes)


def pings_by_second(world: World) -> Counter[int]:
    return Counter(event.at // 1000 for event in world.events if event.kind is EventKind.PING)


@pytest.mark.rule("B7")
def test_the_pings_of_many_processes_are_spread_from_the_first_one_on() -> None:
    world = herd(100)
    world.pass_time(10 * MINUTE)
    by_second = pings_by_second(world)
    assert 1_000 <= sum(by_second.values()) <= 1_060
    assert max(by_second.values()) < 50
    without = herd(100, jitter=0)
    without.pass_time(10 * MINUTE)
    assert max(pings_by_second(without).values()) == 100


@pytest.mark.rule("B7")
def test_every_process_learns_of_the_recovery_within_one_ping_interval() -> None:
    world = herd(50)
    world.primary = Namespace(world.random, world.clock)
    world.pass_time(MINUTE)
    assert states(world) == {Availability.HEALTHY: 50}


@pytest.mark.rule("B7")
def test_a_ramp_lets_a_rising_share_of_the_sends_return() -> None:
    world = herd(1, ramp=10 * MINUTE)
    world.primary = Namespace(world.random, world.clock)
    world.pass_time(MINUTE)
    assert states(world) == {Availability.RECOVERING: 1}
    sender = world.sender("orders")
    shares = []
    for _ in range(10):
        before = len(world.entities["orders"].arrived)
        assert all(world.send(sender) for _ in range(200))
        shares.append((len(world.entities["orders"].arrived) - before) / 200)
        world.pass_time(MINUTE)
    assert all(minute / 10 - 0.12 < share < minute / 10 + 0.2 for minute, share in enumerate(shares))
    world.pass_time(SECOND)
    assert states(world) == {Availability.HEALTHY: 1}


@pytest.mark.parametrize(("ramp", "stays_up"), [(4 * MINUTE, True), (timedelta(0), False)])
def test_a_primary_that_comes_back_cold_survives_the_herd_with_a_ramp(ramp: timedelta, stays_up: bool) -> None:
    """Twenty sends a second arrive in all; it can do twelve at first. Nothing is lost in either case."""
    world = herd(20, ramp=ramp)
    senders = [world.sender("orders", process) for process in range(20)]
    assert isinstance(world.primary, ColdPrimary)
    world.primary.come_back()
    for _ in range(330):
        second = world.clock.at
        for sender in senders:
            world.send(sender)
            world.clock.at = second  # they are twenty processes: none waits for another
        world.pass_time(SECOND)
    assert (world.primary.fall_count == 0) is stays_up
    assert (states(world) == {Availability.HEALTHY: 20}) is stays_up
    world.auditor.check_ledger(world.ledger())
