"""Checkpoints give way to commits, and are never stopped by them."""

import threading
from collections.abc import Callable

import pytest

from twinbus.store.layers.pace import GIVE_WAY_S, RECENT_S, REST, SLICE_S, TURN_WAIT_S, CommitTraffic, Pace

STORE, OTHER = 1, 2
SLICE = 2 * SLICE_S


class Hours:
    """A clock that only moves when somebody works or sleeps."""

    def __init__(self) -> None:
        self.at = 1_000.0
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds
        self.on_sleep()

    @property
    def rested(self) -> float:
        return sum(self.slept)


@pytest.fixture
def hours() -> Hours:
    return Hours()


@pytest.fixture
def traffic(hours: Hours) -> CommitTraffic:
    return CommitTraffic(hours.now, hours.sleep)


def work(hours: Hours, pace: Pace, seconds: float = SLICE) -> None:
    hours.at += seconds
    pace.give_way()


def test_without_commits_a_checkpoint_does_not_rest(hours: Hours, traffic: CommitTraffic) -> None:
    pace = Pace(traffic, lambda: False)
    work(hours, pace)
    assert hours.slept == []


def test_after_a_commit_it_rests_longer_than_it_worked(hours: Hours, traffic: CommitTraffic) -> None:
    pace = Pace(traffic, lambda: False)
    traffic.began(STORE)
    traffic.ended(STORE)
    work(hours, pace, SLICE)
    assert hours.slept == [pytest.approx(REST * SLICE)]
    work(hours, pace, SLICE_S / 2)
    assert len(hours.slept) == 1, "a slice is not over yet"


def test_commits_long_ago_do_not_count(hours: Hours, traffic: CommitTraffic) -> None:
    traffic.began(STORE)
    traffic.ended(STORE)
    pace = Pace(traffic, lambda: False)
    work(hours, pace, RECENT_S)
    assert hours.slept == []


def test_no_slice_begins_during_a_commit_of_any_store(hours: Hours, traffic: CommitTraffic) -> None:
    pace = Pace(traffic, lambda: False)
    traffic.began(STORE)
    traffic.began(OTHER)
    traffic.ended(STORE)
    ends_at = hours.at + SLICE + GIVE_WAY_S / 2
    hours.on_sleep = lambda: traffic.ended(OTHER) if hours.at >= ends_at else None
    work(hours, pace)
    assert ends_at <= hours.at < ends_at + GIVE_WAY_S / 2


def test_commits_without_a_gap_do_not_stop_it(hours: Hours, traffic: CommitTraffic) -> None:
    pace = Pace(traffic, lambda: False)
    traffic.began(STORE)
    work(hours, pace)
    assert GIVE_WAY_S <= hours.rested < 2 * GIVE_WAY_S


def test_a_slice_that_took_long_is_not_followed_by_a_long_rest(hours: Hours, traffic: CommitTraffic) -> None:
    pace = Pace(traffic, lambda: False)
    traffic.ended(STORE)
    work(hours, pace, RECENT_S / 2)
    assert hours.rested == pytest.approx(GIVE_WAY_S)


def test_a_hurried_one_does_not_rest(hours: Hours, traffic: CommitTraffic) -> None:
    pace = Pace(traffic, lambda: True)
    traffic.began(STORE)
    work(hours, pace)
    assert hours.slept == []


def test_checkpoints_take_turns(traffic: CommitTraffic) -> None:
    with Pace(traffic, lambda: False).turn():
        assert traffic.turn.locked()
    assert not traffic.turn.locked()


def test_a_hurried_one_does_not_wait_for_its_turn(traffic: CommitTraffic) -> None:
    with Pace(traffic, lambda: False).turn(), Pace(traffic, lambda: True).turn():
        assert traffic.turn.locked()
    assert not traffic.turn.locked()


def test_nobody_waits_for_ever_for_one_whose_disk_hangs(hours: Hours, traffic: CommitTraffic) -> None:
    looked: list[bool] = []

    def is_hurried() -> bool:
        looked.append(True)
        hours.at += TURN_WAIT_S / 2
        return False

    with Pace(traffic, lambda: False).turn(), Pace(traffic, is_hurried).turn():
        assert len(looked) == 2


def test_one_begins_when_the_other_has_ended(traffic: CommitTraffic) -> None:
    first = Pace(traffic, lambda: False)
    began = threading.Event()

    def second() -> None:
        with Pace(traffic, lambda: False).turn():
            began.set()

    with first.turn():
        thread = threading.Thread(target=second)
        thread.start()
        assert not began.is_set()
    thread.join()
    assert began.is_set()
