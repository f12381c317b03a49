"""The checker finds what may not be."""

from tests.server.machines.history import Completion, History, Hold, Receipt


def test_what_may_be_is_no_violation() -> None:
    received = [Receipt(1.0, "a", 1), Receipt(2.0, "a", 1), Receipt(4.0, "a", 2)]
    history = History({"a", "b"}, {"a"}, received, {("a", 1): 3.0})
    history.holds = [Hold("s", 1.0, 2.0), Hold("s", 2.5, 3.0), Hold("t", 1.0, 9.0)]
    history.completed_of["s"] = [Completion("s/1", 1.0, 1.5), Completion("s/5", 2.0, 2.5), Completion("s/2", 3.0, 3.5)]
    assert history.violations() == []


def test_an_answer_that_comes_late_proves_no_order() -> None:
    history = History({"1/1", "1/2"}, {"1/1", "1/2"}, [Receipt(1.0, "1/1", 1), Receipt(2.0, "1/2", 2)])
    history.completed_of["s"] = [Completion("1/2", 2.0, 2.5), Completion("1/1", 1.0, 9.0)]
    assert history.violations() == []


def test_each_violation_is_found() -> None:
    assert "lost" in History({"a"}, {"a"}).violations()[0]
    assert "never sent" in History(received=[Receipt(1.0, "x", 1)]).violations()[0]
    twice = [Receipt(1.0, "a", 1), Receipt(3.0, "a", 1)]
    assert "again" in History({"a"}, {"a"}, twice, {("a", 1): 2.0}).violations()[0]
    copies = [Receipt(1.0, "a", 1), Receipt(3.0, "a", 2)]
    assert "stored twice" in History({"a"}, {"a"}, copies, sent_once={"a"}).violations()[0]
    assert "without a key" in History(refusals=["the line broke"]).violations()[0]
    history = History({"1/2", "1/1"}, {"1/2", "1/1"}, [Receipt(1.0, "1/2", 2), Receipt(1.0, "1/1", 1)])
    history.holds = [Hold("s", 1.0, 4.0), Hold("s", 3.0, 5.0)]
    history.completed_of["s"] = [Completion("1/2", 1.0, 1.5), Completion("1/1", 2.0, 2.5)]
    assert ["out of order" in each or "held twice" in each for each in history.violations()] == [True, True]
