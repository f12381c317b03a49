"""When leases are renewed, with simulated time: what a process that stands still for a while has lost when it goes on."""

from bisect import bisect_right
from itertools import count
from random import Random

import pytest

from twinbus.store.postgres.lease import TRUSTED_S
from twinbus.store.postgres.renewal_rounds import LOOK_EVERY_S, RENEW_EVERY_S, SILENT_MAX_S, RenewalRounds

BEAT_S = 0.25
STORES = 16
STATEMENT_S = 0.005
SEEDS = range(100)


class Machine:
    """One owner of stores, whose event loop beats and whose thread renews leases. The loop stands still once; so does the thread if
    all of the machine does."""

    def __init__(self, seed: int, still_s: float, *, all_of_it: bool) -> None:
        random = Random(seed)
        self._stops_at = 100 + 2 * random.random()
        self.goes_on_at = self._stops_at + still_s
        self._thread_stops = all_of_it
        # The thread may be first: it reads what was heard before.
        first_beat = self.goes_on_at + 0.02 * random.random()
        before = (90 + step * BEAT_S for step in count())
        self._beats = [at for at, _ in zip(before, range(200), strict=False) if at < self._stops_at]
        self._beats += [first_beat + step * BEAT_S for step in range(60)]
        self._now = 95 + random.random()
        self.told: list[list[tuple[float, float]]] = [
            [] for _ in range(STORES)
        ]  # when, and until when the lease is trusted

    def _alive_at(self) -> float:
        return self._beats[bisect_right(self._beats, self._now) - 1]

    def _pass(self, seconds: float) -> None:
        self._now += seconds
        if self._thread_stops and self._stops_at <= self._now < self.goes_on_at:
            self._now = self.goes_on_at

    def renew_leases(self) -> None:
        rounds, counts_from = RenewalRounds(), [0.0] * STORES
        while self._now < self.goes_on_at + 6:
            rounds.begin(self._now)
            for store in range(STORES):
                alive_at = self._alive_at()
                if rounds.prolongs(counts_from[store], alive_at, self._now):
                    self._pass(STATEMENT_S)
                    counts_from[store] = alive_at
                    self.told[store].append((self._now, alive_at + TRUSTED_S))
            self._pass(rounds.pause_s(self._now))

    def losses(self, store: int) -> int:
        """How often the loop finds that this lease has ended, from when it goes on."""
        losses, is_held, trusted_until = 0, True, 0.0
        for at, until in self.told[store]:
            if at > self.goes_on_at:
                losses += is_held and trusted_until <= at
                is_held = until > at
            trusted_until = until
        return losses


def most_losses(still_s: float, *, all_of_it: bool) -> int:
    """Of a store, over many moments to stand still at."""
    most = 0
    for seed in SEEDS:
        machine = Machine(seed, still_s, all_of_it=all_of_it)
        machine.renew_leases()
        most = max(most, *[machine.losses(store) for store in range(STORES)])
    return most


@pytest.mark.parametrize("still_s", [1.0, 2.0, 2.6])
@pytest.mark.parametrize("all_of_it", [False, True])
def test_whoever_stands_still_for_less_than_three_seconds_loses_no_lease(still_s: float, all_of_it: bool) -> None:
    assert most_losses(still_s, all_of_it=all_of_it) == 0


@pytest.mark.parametrize("still_s", [3.0, 3.25, 3.5])
def test_a_loop_that_stood_still_for_less_than_its_trust_gets_a_renewal_before_that_ends(still_s: float) -> None:
    assert most_losses(still_s, all_of_it=False) == 0


@pytest.mark.parametrize("still_s", [3.0, 3.25, 3.5, 3.75, 3.9, 4.0, 5.0])
@pytest.mark.parametrize("all_of_it", [False, True])
def test_no_lease_is_lost_a_second_time_after_a_standstill(still_s: float, all_of_it: bool) -> None:
    assert most_losses(still_s, all_of_it=all_of_it) <= 1


def test_rounds_begin_each_second_however_long_one_takes() -> None:
    rounds = RenewalRounds()
    rounds.begin(10.0)
    assert rounds.prolongs(8.9, 9.9, 10.0)
    assert rounds.pause_s(10.25) == RENEW_EVERY_S - 0.25
    assert rounds.pause_s(12.0) == 0.0


def test_nothing_is_renewed_for_what_was_heard_before_a_silence() -> None:
    rounds = RenewalRounds()
    rounds.begin(10.0)
    assert not rounds.prolongs(7.0, 10.0 - SILENT_MAX_S, 10.0)
    assert rounds.pause_s(10.0) == LOOK_EVERY_S
    rounds.begin(10.5)
    assert rounds.prolongs(7.0, 10.5, 10.5)
    assert rounds.pause_s(10.5) == RENEW_EVERY_S


def test_a_lease_that_lasts_from_the_last_sign_of_life_is_left_alone() -> None:
    rounds = RenewalRounds()
    rounds.begin(10.0)
    assert not rounds.prolongs(9.5, 9.5, 10.0)
    assert rounds.pause_s(10.0) == RENEW_EVERY_S
