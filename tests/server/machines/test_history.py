"""The checker finds what may not be."""

import pytest

from tests.server.machines.history import Completion, History, Hold, Receipt


def got(at: float, body: str, number: int, receiver: int = 1, since: float = 0.0) -> Receipt:
    return Receipt(at, body, number, receiver, since)


def test_what_may_be_is_no_violation() -> None:
    done = got(2.0, "a", 1)
    history = History({"a", "b"}, {"a"}, [got(1.0, "a", 1), done, got(4.0, "a", 2)], {("a", 1): done})
    history.holds = [Hold("s", 0.5, 1.0, 2.0), Hold("s", 1.5, 2.5, 3.0), Hold("t", 0.5, 1.0, 9.0)]
    history.completed_of["s"] = [Completion("s/1", 1.0, 1.5), Completion("s/5", 2.0, 2.5), Completion("s/2", 3.0, 3.5)]
    assert history.violations() == []


def test_a_message_that_was_long_on_its_way_may_come_after_it_was_completed() -> None:
    done = got(2.0, "a", 1)
    history = History({"a"}, {"a"}, [done, got(9.0, "a", 1, receiver=2, since=1.0)], {("a", 1): done})
    assert history.violations() == []


@pytest.mark.parametrize(("asked", "is_twice"), [(0.5, False), (1.0, True)])
def test_a_lock_that_was_granted_late_or_long_ago_counts_from_when_it_was_asked_for(
    asked: float, is_twice: bool
) -> None:
    """Nothing was done under it."""
    history = History(holds=[Hold("s", 0.5, 1.0, 4.0), Hold("s", asked, 3.0, 3.0)])
    assert bool(history.violations()) is is_twice


def test_an_answer_that_comes_late_proves_no_order() -> None:
    history = History({"1/1", "1/2"}, {"1/1", "1/2"}, [got(1.0, "1/1", 1), got(2.0, "1/2", 2)])
    history.completed_of["s"] = [Completion("1/2", 2.0, 2.5), Completion("1/1", 1.0, 9.0)]
    assert history.violations() == []


def test_each_violation_is_found() -> None:
    assert "lost" in History({"a"}, {"a"}).violations()[0]
    assert "never sent" in History(received=[got(1.0, "x", 1)]).violations()[0]
    done = got(1.0, "a", 1)
    for again in (got(3.0, "a", 1), got(3.0, "a", 1, receiver=2, since=2.0)):
        assert "again" in History({"a"}, {"a"}, [done, again], {("a", 1): done}).violations()[0]
    copies = [got(1.0, "a", 1), got(3.0, "a", 2)]
    assert "stored twice" in History({"a"}, {"a"}, copies, sent_once={"a"}).violations()[0]
    assert "without a key" in History(refusals=["the line broke"]).violations()[0]
    assert "receivers broke" in History(broken_receivers=["KeyError: 'handle'"]).violations()[0]
    history = History({"1/2", "1/1"}, {"1/2", "1/1"}, [got(1.0, "1/2", 2), got(1.0, "1/1", 1)])
    history.holds = [Hold("s", 0.5, 1.0, 4.0), Hold("s", 0.5, 3.0, 5.0)]
    history.completed_of["s"] = [Completion("1/2", 1.0, 1.5), Completion("1/1", 2.0, 2.5)]
    assert ["out of order" in each or "held twice" in each for each in history.violations()] == [True, True]
