"""Calls at a time, calls one after the other, and long work in steps."""

from collections.abc import Callable

import pytest

from twinbus.broker.wakeups import (
    STALE_COUNT_MAX,
    Deadlines,
    LongSteps,
    LongWork,
    OneByOne,
    WaitingSteps,
    Wakeups,
)
from twinbus.clock import NEVER, Millis
from twinbus.testing.sim_clock import SimClock


def breaks(_: Millis) -> None:
    raise RuntimeError("a call that breaks")


def test_what_is_due_is_called_once_in_order_and_the_next_time_is_told() -> None:
    wakeups, called = Wakeups(), list[tuple[str, Millis]]()
    for when, name in ((30, "c"), (10, "a"), (20, "b"), (10, "a again")):
        wakeups.at(when, lambda now, name=name: called.append((name, now)))  # type: ignore[misc]
    assert wakeups.run(9) == 10
    assert called == []
    assert wakeups.run(20) == 30
    assert called == [("a", 20), ("a again", 20), ("b", 20)]
    assert wakeups.run(30) == NEVER
    assert wakeups.run(31) == NEVER
    assert len(called) == 4


def test_what_is_never_due_is_not_kept() -> None:
    wakeups = Wakeups()
    wakeups.at(NEVER, breaks)
    assert wakeups.run(NEVER) == NEVER


def test_what_a_call_makes_due_is_left_for_the_next_run() -> None:
    wakeups, called = Wakeups(), list[Millis]()
    wakeups.at(10, lambda now: wakeups.at(now, called.append))
    assert wakeups.run(10) == 10
    assert called == []
    wakeups.run(11)
    assert called == [11]


def test_a_call_that_breaks_hinders_no_other(caplog: pytest.LogCaptureFixture) -> None:
    wakeups, called = Wakeups(), list[Millis]()
    wakeups.at(1, breaks)
    wakeups.at(1, called.append)
    wakeups.run(1)
    caplog.clear()
    assert called == [1]


def test_what_is_cancelled_does_not_come_even_if_it_is_due_together_with_who_cancels_it() -> None:
    wakeups, called = Wakeups(), list[str]()
    early = wakeups.at(10, lambda _: called.append("early"))
    early.cancel()
    wakeups.at(20, lambda _: late.cancel())
    late = wakeups.at(20, lambda _: called.append("late"))
    wakeups.at(20, lambda _: called.append("last"))
    assert wakeups.run(20) == NEVER
    assert called == ["last"]
    late.cancel()
    assert wakeups.run(21) == NEVER


def test_calls_that_are_cancelled_leave_no_more_places_than_others_have_and_hinder_no_other() -> None:
    wakeups, called = Wakeups(), list[Millis]()
    kept = range(0, 100_000, 50)
    for when in range(100_000):
        wakeup = wakeups.at(when, lambda _, when=when: called.append(when))  # type: ignore[misc]
        if when not in kept:
            wakeup.cancel()
        assert len(wakeups) <= 2 * (STALE_COUNT_MAX + len(kept)) + 1
    assert wakeups.run(100_000) == NEVER
    assert called == list(kept)


def test_a_deadline_that_is_not_discarded_is_called_once_when_it_is_due() -> None:
    wakeups = Wakeups()
    deadlines, called = Deadlines(wakeups), list[str]()
    calls: dict[str, Callable[[Millis], None]] = {
        name: lambda _, name=name: called.append(name)  # type: ignore[misc]
        for name in "abc"
    }
    for place, call in enumerate(calls.values()):
        deadlines.add(10 * (place + 1), call)
    assert (len(deadlines), len(wakeups)) == (3, 1), "one wakeup for all"
    deadlines.discard(calls["b"])
    deadlines.discard(calls["b"])
    assert len(deadlines) == 2
    assert wakeups.run(9) == 10
    assert wakeups.run(10) == 30, "at the time of the next that is left"
    assert len(wakeups) == 1
    assert called == ["a"]
    assert wakeups.run(30) == NEVER
    assert (called, len(deadlines)) == (["a", "c"], 0)
    deadlines.add(40, calls["a"])
    assert wakeups.run(40) == NEVER
    assert called == ["a", "c", "a"]


class Turns:
    """The loop of a namespace, one turn at a time."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def test_long_work_does_one_step_in_a_turn_and_takes_turns() -> None:
    clock, turns, done = SimClock(), Turns(), list[tuple[str, Millis]]()
    work = LongWork(lambda call: turns.calls.append(call), clock)
    assert len(work) == 0

    def steps(name: str, count: int) -> LongSteps:
        for _ in range(count):
            now = yield
            done.append((name, now))

    work.add(steps("a", 2))
    work.add(steps("b", 1))
    assert (done, len(work), len(turns.calls)) == ([], 2, 1)
    began = clock.now()
    for _ in range(5):
        turns.turn()
        clock.advance(1)
    assert [name for name, _ in done] == ["a", "b", "a"]
    assert [now - began for _, now in done] == [0, 1, 2]
    assert (len(work), turns.calls) == (0, [])


def test_long_work_that_waits_leaves_its_turns_to_the_rest_and_goes_on_when_it_is_told_to() -> None:
    turns, done, told = Turns(), list[str](), list[Callable[[], None]]()
    work = LongWork(lambda call: turns.calls.append(call), SimClock())

    def waiting(name: str, wait: Callable[[Callable[[], None]], None]) -> WaitingSteps:
        yield None
        yield wait
        done.append(name)

    def busy() -> LongSteps:
        for _ in range(3):
            yield
            done.append("busy")

    work.add(waiting("waits", told.append))
    work.add(busy())
    for _ in range(9):
        turns.turn()
    assert (done, len(work), turns.calls) == (["busy"] * 3, 1, [])
    told.pop()()
    turns.turn()
    assert (done[3:], len(work), turns.calls) == (["waits"], 0, [])
    work.add(waiting("at once", lambda go_on: go_on()))
    for _ in range(3):
        turns.turn()
    assert (done[4:], len(work), turns.calls) == (["at once"], 0, [])


def test_long_work_that_breaks_is_over_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    turns, done = Turns(), list[str]()
    work = LongWork(lambda call: turns.calls.append(call), SimClock())

    def broken() -> LongSteps:
        yield
        raise RuntimeError("long work that breaks")

    def sound() -> LongSteps:
        yield
        done.append("sound")

    work.add(broken())
    work.add(sound())
    for _ in range(4):
        turns.turn()
    assert [record.msg for record in caplog.records] == ["long_work_broken"]
    caplog.clear()
    assert (done, len(work)) == (["sound"], 0)


def test_pieces_of_background_work_begin_one_by_one_in_order() -> None:
    queue, begun = OneByOne(), list[str]()
    for name in "abc":
        queue.add(lambda name=name: begun.append(name))  # type: ignore[misc]
    assert begun == ["a"]
    queue.done()
    assert begun == ["a", "b"]
    queue.done()
    queue.done()
    assert begun == ["a", "b", "c"]
    queue.add(lambda: begun.append("d"))
    assert begun[-1] == "d"


def test_a_piece_that_ends_at_once_lets_the_next_begin_after_it_and_not_inside() -> None:
    queue, order = OneByOne(), list[str]()

    def piece(name: str) -> Callable[[], None]:
        def begin() -> None:
            order.append(f"{name} begins")
            if name == "a":
                queue.add(piece("b"))
            queue.done()
            order.append(f"{name} ends")

        return begin

    queue.add(piece("a"))
    assert order == ["a begins", "a ends", "b begins", "b ends"]


def test_a_piece_that_breaks_makes_room_for_the_next(caplog: pytest.LogCaptureFixture) -> None:
    queue, begun = OneByOne(), list[str]()

    def broken() -> None:
        raise RuntimeError("a piece that breaks")

    queue.add(broken)
    queue.add(lambda: begun.append("next"))
    caplog.clear()
    assert begun == ["next"]
