"""One who breaks when he is told something costs the others nothing (design rule 2: one thread calls them all)."""

from collections.abc import Iterator

import pytest

from twinbus.broker.consumer import SessionRequest, TakenMessage
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.wakeups import Deadlines, Wakeups
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, MessagingError, StoreUnavailable
from twinbus.model.descriptions import QueueDescription
from twinbus.store.changes import FragmentCreated
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, EachReply, SimReceiver, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


@pytest.fixture(autouse=True)
def nobody_breaks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """In each of these tests somebody does, and the log says so."""
    yield
    assert [record for record in caplog.get_records("call") if record.msg == "call_broken" and record.exc_info]


class BrokenReply(EachReply):
    def refused(self, index: int, error: MessagingError, now: Millis) -> None:
        raise ZeroDivisionError


class BrokenReceiver(SimReceiver):
    def deliver(self, deliveries: list[TakenMessage]) -> None:
        raise ZeroDivisionError

    def session_lost(self, error: MessagingError) -> None:
        raise ZeroDivisionError


def broken(_: object) -> None:
    raise ZeroDivisionError


def test_everybody_else_who_waits_learns_that_the_store_is_lost(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.ports[0].is_hung = True
    queue.send_each([make_message("a")], sim.now, BrokenReply())
    other = sim.send(queue, make_message("b"))
    sim.brokers[0].store_lost(StoreUnavailable("gone"))
    assert isinstance(other.errors[0], FragmentUnavailable)


@pytest.mark.parametrize("is_silent", [True, False])
def test_everybody_else_who_holds_a_session_learns_that_it_is_lost(sim: Simulation, is_silent: bool) -> None:
    queues = [sim.queue(QueueDescription(name, requires_session=True)) for name in ("a", "b")]
    breaking = BrokenReceiver(1, session=sim.accept(queues[0].main, "s").value)
    queues[0].main.attach(breaking, sim.now)
    good = sim.receiver(queues[1].main, 1, session=sim.accept(queues[1].main, "s").value)
    sim.ports[0].is_hung = True
    waiting = sim.send(queues[1], make_message("m", session_id="s"))
    if is_silent:
        sim.advance(16_000)
    else:
        sim.brokers[0].store_lost(StoreUnavailable("gone"))
    assert good.lost is not None
    assert isinstance(waiting.errors[0], FragmentUnavailable)


def test_everybody_else_learns_that_an_entity_is_gone(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    queue.main.attach(BrokenReceiver(1), sim.now)
    good = sim.receiver(queue.main, 1)
    answer: Answer[None] = Answer()
    sim.entities.delete("q", sim.now, answer)
    sim.run()
    assert good.lost is not None
    assert answer.value is None


def test_a_message_is_acknowledged_whatever_its_receiver_does(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    queue.main.attach(BrokenReceiver(1), sim.now)
    good = sim.receiver(queue.main, 5)
    assert sim.send(queue, make_message("a"), make_message("b")).good == {0, 1}
    assert len(good.take()) == 1


def test_a_message_of_a_session_is_acknowledged_whatever_its_receiver_does(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", requires_session=True))
    queue.main.attach(BrokenReceiver(1, session=sim.accept(queue.main, "s").value), sim.now)
    assert sim.send(queue, make_message("a", session_id="s")).good == {0}


def test_who_waits_for_a_session_is_served_after_one_who_breaks(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", requires_session=True))
    queue.main.accept_session(SessionRequest(), sim.now + 60_000, sim.now, broken)
    waiting = sim.accept(queue.main, wait=60_000)
    sent = sim.send(queue, make_message("a", session_id="a"), make_message("b", session_id="b"))
    assert sent.good == {0, 1}
    assert waiting.value.session_id == "b"


def test_every_part_of_a_joint_commit_is_answered(sim: Simulation) -> None:
    broker = sim.brokers[0]
    told: list[str] = []
    with broker.joined(lambda _: told.append("whole"), lambda *_: None):
        broker.commit([FragmentCreated(256)], broken, None)
        broker.commit([FragmentCreated(512)], lambda _: told.append("part"), None)
    sim.run()
    assert told == ["part", "whole"]


def test_what_is_due_is_called_although_something_before_it_breaks() -> None:
    wakeups, called = Wakeups(), list[Millis]()
    wakeups.at(1, broken)
    wakeups.at(1, called.append)
    wakeups.run(1)
    assert called == [1]


def test_what_is_due_equally_long_after_it_was_added_is_called_although_something_before_it_breaks() -> None:
    wakeups, called = Wakeups(), list[tuple[str, Millis]]()
    deadlines = Deadlines(wakeups)
    deadlines.add(2, broken)
    deadlines.add(2, lambda now: called.append(("first", now)))
    deadlines.add(3, lambda now: called.append(("second", now)))
    wakeups.run(2)
    wakeups.run(3)
    assert called == [("first", 2), ("second", 3)]


def test_a_fragment_whose_upkeep_breaks_is_woken_again(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m", time_to_live=1_000))
    (fragment,) = queue.main.fragments
    keep_up, calls = fragment._upkeep, list[Millis]()

    def break_once(fragment: Fragment, now: Millis) -> None:
        calls.append(now)
        if len(calls) == 1:
            raise ZeroDivisionError
        keep_up(fragment, now)

    monkeypatch.setattr(fragment, "_upkeep", break_once)
    sim.advance(2_000, step=500)
    assert queue.main.counts().active == 0
