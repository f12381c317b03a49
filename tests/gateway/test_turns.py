"""Turns of the loop, with a loop and times that the test moves."""

from collections.abc import Callable

import pytest

from twinbus.gateway.turns import (
    KNOWN_TURN_S,
    MODEST_S,
    SHARE_FIRST,
    SHARE_MAX,
    SHARE_MIN,
    SLICE_S,
    STRANGER_SHARE,
    STRANGERS_TURN_S,
    Share,
    Turns,
)


class Loop:
    """Calls that wait for the next turn; every slice takes as long as its connection says."""

    def __init__(self) -> None:
        self.now = 100.0
        self._soon: list[Callable[[], None]] = []
        self.turns = Turns(self._soon.append, lambda: self.now, lambda: self.now)

    def turn(self) -> None:
        calls = self._soon[:]
        self._soon.clear()
        for call in calls:
            call()

    @property
    def is_idle(self) -> bool:
        return not self._soon


class Busy:
    """A connection that has `slices` left to work on."""

    def __init__(self, loop: Loop, slices: int, cost_s: float = SLICE_S, *, is_stranger: bool = False) -> None:
        self.loop, self.slices, self.cost_s = loop, slices, cost_s
        self.share = Share()
        self.share.is_stranger = is_stranger
        self.done = 0

    def arrive(self) -> None:
        if self.loop.turns.is_open_to(self.share):
            self.take_turn()
        else:
            self.loop.turns.wait(self.share, self)

    def take_turn(self) -> None:
        self.loop.now += self.cost_s
        self.slices -= 1
        self.done += 1
        if self.slices:
            self.loop.turns.wait(self.share, self)
        self.loop.turns.used(self.share, self.cost_s, is_behind=self.slices > 0)


def test_a_connection_gets_one_slice_of_a_turn() -> None:
    loop = Loop()
    busy = Busy(loop, 5, 0.0001)
    busy.arrive()
    for number in range(1, 6):
        assert busy.done == number
        loop.turn()
    assert loop.is_idle


def test_a_turn_ends_when_its_time_is_used_and_the_line_goes_on_where_it_stopped() -> None:
    loop = Loop()
    crowd = [Busy(loop, 4) for _ in range(10)]
    for each in crowd:
        loop.turns.wait(each.share, each)
    per_turn = round(KNOWN_TURN_S / SLICE_S)
    for _ in range(10 // per_turn):
        before = sum(each.done for each in crowd)
        loop.turn()
        assert sum(each.done for each in crowd) - before == per_turn
    assert [each.done for each in crowd] == [1] * 10


def test_who_used_little_lately_is_worked_for_at_once() -> None:
    loop = Loop()
    greedy = [Busy(loop, 100) for _ in range(3)]
    for each in greedy:
        each.arrive()
        each.arrive()
    modest = Busy(loop, 1, 0.0002)
    modest.arrive()
    assert modest.done == 1


def test_who_used_much_lately_waits_when_the_turn_is_used_up() -> None:
    loop = Loop()
    greedy, other = Busy(loop, 100, 2 * SLICE_S), Busy(loop, 100, 2 * SLICE_S)
    greedy.arrive()
    other.arrive()
    assert (greedy.done, other.done) == (1, 1)
    assert not loop.turns.is_open_to(greedy.share)
    loop.now += 10
    other.take_turn()
    loop.turns.used(greedy.share, 0.0, is_behind=False)
    assert loop.turns.is_open_to(greedy.share)


def test_a_connection_is_modest_below_its_debt_and_not_at_it() -> None:
    for seconds, is_modest in ((0.9 * MODEST_S, True), (MODEST_S, False)):
        share = Share()
        share.used(seconds, 100.0, is_behind=False)
        assert share.is_modest is is_modest


def test_strangers_share_less_of_a_turn_and_leave_the_known_theirs() -> None:
    loop = Loop()
    strangers = [Busy(loop, 3, 0.001, is_stranger=True) for _ in range(50)]
    for each in strangers:
        each.arrive()
    at_once = sum(each.done for each in strangers)
    assert at_once == round(STRANGERS_TURN_S / 0.001)
    known = Busy(loop, 1)
    known.arrive()
    assert known.done == 1
    loop.turn()
    assert sum(each.done for each in strangers) == 2 * at_once


def test_a_slice_gets_shorter_when_it_took_long_and_longer_when_it_was_short() -> None:
    share = Share()
    share.is_stranger = False
    assert share.size == SHARE_FIRST
    for _ in range(20):
        share.used(2 * SLICE_S, 100.0, is_behind=True)
    assert share.size == SHARE_MIN
    share.used(SLICE_S / 10, 100.0, is_behind=False)
    assert share.size == SHARE_MIN, "its limit was not what made it short"
    for _ in range(20):
        share.used(SLICE_S / 10, 100.0, is_behind=True)
    assert share.size == SHARE_MAX


def test_a_slice_of_a_stranger_is_short() -> None:
    assert Share().size == STRANGER_SHARE


def test_a_connection_that_breaks_in_its_turn_does_not_keep_the_others_from_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = Loop()

    class Broken(Busy):
        def take_turn(self) -> None:
            raise ValueError("broken")

    broken, other = Broken(loop, 1), Busy(loop, 1)
    loop.turns.wait(broken.share, broken)
    loop.turns.wait(other.share, other)
    loop.turn()
    assert other.done == 1
    caplog.clear()


def test_time_that_has_passed_is_forgiven_once() -> None:
    share = Share()
    share.used(1.0, 100.0, is_behind=False)
    for _ in range(3):
        share.used(0.001, 100.0, is_behind=False)
        assert not share.is_modest
    share.used(0.001, 111.0, is_behind=False)
    assert share.is_modest
