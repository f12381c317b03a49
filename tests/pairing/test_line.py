"""Who is next, and who gives up."""

import threading

import pytest

from tests.pairing.world import Now
from twinbus.pairing.stock.attempt import Attempt
from twinbus.pairing.stock.line import Line, NotWantedAnyMore, Wait, WaitedForItself
from twinbus.pairing.stock.local_lag import LocalLag


def test_turns_come_in_the_order_of_asking() -> None:
    line, called = Line(), list[str]()
    assert line.take()
    for name in "abc":
        line.join(lambda name=name: called.append(name))  # type: ignore[misc]
    assert not line.take()
    for _ in range(3):
        line.pass_on()
    assert called == ["a", "b", "c"]
    line.pass_on()
    assert line.take()


def test_one_who_left_is_passed_over_and_one_whose_turn_has_come_cannot_leave() -> None:
    line, first, second = Line(), threading.Event(), threading.Event()
    line.take()
    line.join(first.set)
    line.join(second.set)
    assert line.leave(first.set)
    line.pass_on()
    assert second.is_set()
    assert not first.is_set()
    assert not line.leave(second.set)


@pytest.mark.rule("B4")
def test_a_line_that_moves_is_waited_in_and_one_that_stands_for_the_whole_timeout_is_given_up() -> None:
    clock, line = Now(), Line()
    wait = Wait(line, Attempt(lambda _stock, _left_s: None, 5.0), clock)
    for _ in range(10):
        clock.at += 4_000
        line.moved_at = clock.at
        assert wait.reason_to_leave() is None
    clock.at += 5_001
    assert isinstance(wait.reason_to_leave(), WaitedForItself)
    assert wait.waited() == 45_001


def test_one_whose_route_has_changed_leaves_the_line() -> None:
    class Elsewhere(Attempt):
        def is_wanted(self) -> bool:
            return False

    assert isinstance(Wait(Line(), Elsewhere(lambda _s, _l: None, 5), Now()).reason_to_leave(), NotWantedAnyMore)


@pytest.mark.rule("B4")
def test_a_process_that_was_stopped_knows_how_much_it_lost_even_before_its_sleeper_wakes() -> None:
    clock = Now()
    lag = LocalLag(clock)
    lag.sleeps(100)
    clock.at += 120
    assert lag.total(clock.now()) == 0
    clock.at += 20_000
    assert lag.total(clock.now()) == 20_020
    lag.wakes()
    lag.sleeps(100)
    clock.at += 100
    lag.wakes()
    assert lag.total(clock.now()) == 20_020
