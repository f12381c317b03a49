"""Without its lease a message broker hands nothing over: another process may do so already (a process that was frozen)."""

import logging
from math import inf

import pytest

from twinbus.broker.commands import ReceiveDeferred
from twinbus.broker.consumer import ReceiveMode
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.outcomes import Defer
from twinbus.errors import FragmentUnavailable, MessagingError, OutcomeUnknown
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, EachReply, Simulation


class SimLease:
    def __init__(self) -> None:
        self.is_ours = True
        self.until = inf

    def is_held(self) -> bool:
        return self.is_ours


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


@pytest.fixture
def lease(sim: Simulation) -> SimLease:
    lease = SimLease()
    sim.brokers[0].lease = lease
    return lease


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q"))


@pytest.fixture
def sessions(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("s", requires_session=True))


def test_nothing_is_handed_over_without_the_lease(sim: Simulation, queue: QueueEntity, lease: SimLease) -> None:
    sim.send(queue, make_message("m"))
    lease.is_ours = False
    assert sim.receiver(queue.main, 5).ids() == []
    lease.is_ours = True
    sim.tick()
    assert sim.receiver(queue.main, 5).ids() == ["m"]


def test_the_log_tells_when_a_store_is_dropped_for_its_lease_and_when_it_is_back(
    sim: Simulation, queue: QueueEntity, lease: SimLease, caplog: pytest.LogCaptureFixture
) -> None:
    """The store itself may be up all the time, and nothing else would say why nobody gets anything from it."""
    caplog.set_level(logging.INFO)
    for lease.is_ours in (True, False, False, True, True):
        sim.tick()
    assert [record.getMessage() for record in caplog.records] == ["lease_over", "lease_renewed"]


def test_a_store_that_is_about_to_have_another_owner_is_not_read_again_when_its_lease_is_renewed(
    sim: Simulation, queue: QueueEntity, lease: SimLease
) -> None:
    broker = sim.brokers[0]
    lease.is_ours = False
    sim.tick()
    broker.retire()
    lease.is_ours = True
    sim.tick()
    assert not broker.is_available
    sim.return_store(0)
    assert sim.send(queue, make_message("m")).good == {0}


def test_a_message_is_certainly_not_taken_without_the_lease(
    sim: Simulation, queue: QueueEntity, lease: SimLease
) -> None:
    lease.is_ours = False
    sent = EachReply()
    queue.send_each([make_message("m")], sim.now, sent)
    sim.tick()
    assert isinstance(sent.errors[0], FragmentUnavailable)
    assert not isinstance(sent.errors[0], OutcomeUnknown)


def test_a_message_is_certainly_not_taken_after_the_lease_was_missed_until_everything_was_dropped(
    sim: Simulation, queue: QueueEntity, lease: SimLease
) -> None:
    """A process that stood still may find its lease over, and then the renewal that was waiting for it."""
    sim.send(queue, make_message("first"))
    lease.is_ours = False
    assert sim.receiver(queue.main, 5).ids() == []
    lease.is_ours = True
    sent = EachReply()
    queue.send_each([make_message("second")], sim.now, sent)
    sim.tick()
    assert type(sent.errors[0]) is FragmentUnavailable
    sim.send(queue, make_message("third"))
    assert sim.receiver(queue.main, 5).ids() == ["first", "third"]


def test_nothing_of_a_session_is_handed_over_without_the_lease(
    sim: Simulation, sessions: QueueEntity, lease: SimLease
) -> None:
    sim.send(sessions, make_message("m", session_id="x"))
    lock = sim.accept(sessions.main, "x").value
    lease.is_ours = False
    receiver = sim.receiver(sessions.main, 5, session=lock)
    assert receiver.ids() == []
    sim.tick()
    assert receiver.lost is not None


def test_no_lock_is_renewed_without_the_lease(sim: Simulation, queue: QueueEntity, lease: SimLease) -> None:
    sim.send(queue, make_message("m"))
    (held,) = sim.receiver(queue.main, 5).take()
    lease.is_ours = False
    answer: Answer[list[int]] = Answer()
    queue.main.renew([held.lock_token], sim.now, answer)
    assert isinstance(answer.error, FragmentUnavailable)
    lease.is_ours = True
    queue.main.renew([held.lock_token], sim.now, again := Answer[list[int]]())
    assert again.value


def test_no_deferred_message_is_handed_over_without_the_lease(
    sim: Simulation, queue: QueueEntity, lease: SimLease
) -> None:
    sim.send(queue, make_message("m"))
    (held,) = sim.receiver(queue.main, 1).take()
    sim.settle(queue.main, [held], Defer())
    lease.is_ours = False
    answer = sim.ask(queue.main, ReceiveDeferred((held.message.sequence_number,), ReceiveMode.PEEK_LOCK))
    assert isinstance(answer.error, FragmentUnavailable)


@pytest.mark.parametrize("session_id", ["x", None], ids=["named", "next"])
def test_no_session_is_accepted_without_the_lease(
    sim: Simulation, sessions: QueueEntity, lease: SimLease, session_id: str | None
) -> None:
    sim.send(sessions, make_message("m", session_id="x"))
    lease.is_ours = False
    answer = sim.accept(sessions.main, session_id, wait=1_000)
    assert session_id is None or isinstance(answer.error, FragmentUnavailable)
    sim.advance(2_000)
    assert isinstance(answer.error, MessagingError)


def test_no_session_is_renewed_without_the_lease(sim: Simulation, sessions: QueueEntity, lease: SimLease) -> None:
    sim.send(sessions, make_message("m", session_id="x"))
    assert sim.accept(sessions.main, "x").value
    lease.is_ours = False
    answer: Answer[int] = Answer()
    sessions.main.renew_session("x", sim.now, answer)
    assert isinstance(answer.error, FragmentUnavailable)


def test_a_lease_that_ended_is_a_lost_store_and_one_that_comes_back_a_store_that_returns(
    sim: Simulation, queue: QueueEntity, lease: SimLease
) -> None:
    sim.send(queue, make_message("m"))
    assert sim.receiver(queue.main, 5).take()
    lease.is_ours = False
    sim.tick()
    assert isinstance(sim.send(queue, make_message("n")).errors[0], FragmentUnavailable)
    assert "lease" in sim.brokers[0].fault
    lease.is_ours = True
    sim.tick()
    assert sim.receiver(queue.main, 5).ids() == ["m"]
    assert not sim.send(queue, make_message("n")).errors
