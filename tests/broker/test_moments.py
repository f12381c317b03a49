"""What ends at a moment is over at that moment, and not a millisecond before: one rule for locks, sessions, lives, schedules, delays,
windows and transactions. Nothing ticks here, so whoever asks decides by the time alone."""

import pytest

from twinbus.broker.commands import Claim
from twinbus.broker.fragment_transaction import DURATION_MAX
from twinbus.broker.outcomes import DELAY_MAX, Abandon
from twinbus.errors import ArgumentError, MessageLockLost, SessionCannotBeLocked, TransactionTimeout
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation

LOCK = 30_000
WINDOW = 60_000


@pytest.fixture
def sim() -> Simulation:
    return Simulation(1)


@pytest.fixture(params=[False, True], ids=["before", "at the end"])
def is_over(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def pass_by(sim: Simulation, duration: int, is_over: bool) -> None:
    sim.clock.advance(duration if is_over else duration - 1)


def test_a_message_lock(sim: Simulation, is_over: bool) -> None:
    queue = sim.queue(QueueDescription("q", lock_duration=LOCK))
    sim.send(queue, make_message("m"))
    taken = sim.receiver(queue.main, 1).take()
    pass_by(sim, LOCK, is_over)
    errors = sim.settle(queue.main, taken).errors
    assert isinstance(errors.get(0), MessageLockLost) == is_over


def test_a_session_lock(sim: Simulation, is_over: bool) -> None:
    queue = sim.queue(QueueDescription("q", requires_session=True, lock_duration=LOCK))
    sim.send(queue, make_message("m", session_id="s"))
    held = sim.accept(queue.main, "s").value
    pass_by(sim, LOCK, is_over)
    assert sim.receiver(queue.main, 1, session=held).ids() == ([] if is_over else ["m"])
    assert isinstance(sim.accept(queue.main, "s").error, SessionCannotBeLocked) != is_over


def test_the_life_of_a_message(sim: Simulation, is_over: bool) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m", time_to_live=LOCK))
    pass_by(sim, LOCK, is_over)
    assert sim.receiver(queue.main, 1).ids() == ([] if is_over else ["m"])


@pytest.mark.parametrize("owner", [None, "somebody whose name is no number"])
def test_what_can_be_claimed(sim: Simulation, owner: str | None, is_over: bool) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m", time_to_live=LOCK))
    pass_by(sim, LOCK, is_over)
    assert sim.ask(queue.main, Claim(9, owner)).value == ([] if is_over else [1])


def test_a_schedule(sim: Simulation, is_over: bool) -> None:
    queue = sim.queue(QueueDescription("q"))
    due_at = sim.now + LOCK
    pass_by(sim, LOCK, is_over)
    sim.send(queue, make_message("m", scheduled_at=due_at))
    counts = queue.main.counts()
    assert (counts.active, counts.scheduled) == ((1, 0) if is_over else (0, 1))


def test_a_delay(sim: Simulation, is_over: bool) -> None:
    queue = sim.queue(QueueDescription("q", lock_duration=2 * LOCK))
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 1)
    due_at = sim.now + LOCK
    pass_by(sim, LOCK, is_over)
    sim.settle(queue.main, receiver.take(), Abandon(due_at=due_at))
    counts = queue.main.counts()
    assert (counts.active, counts.scheduled) == ((1, 0) if is_over else (0, 1))


@pytest.mark.parametrize("is_too_long", [False, True])
def test_the_longest_delay(sim: Simulation, is_too_long: bool) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m"))
    taken = sim.receiver(queue.main, 1).take()
    errors = sim.settle(queue.main, taken, Abandon(due_at=sim.now + DELAY_MAX + is_too_long)).errors
    assert isinstance(errors.get(0), ArgumentError) == is_too_long


def test_the_window_of_duplicate_detection(sim: Simulation, is_over: bool) -> None:
    queue = sim.queue(QueueDescription("q", requires_duplicate_detection=True, duplicate_detection_window=WINDOW))
    sim.send(queue, make_message("m"))
    pass_by(sim, WINDOW, is_over)
    sim.send(queue, make_message("m"))
    assert queue.main.counts().active == (2 if is_over else 1)


def test_a_transaction(sim: Simulation, is_over: bool) -> None:
    queue = sim.queue(QueueDescription("q"))
    transaction, answer = sim.transaction(), Answer[None]()
    transaction.send(queue, [make_message("m")], sim.now)
    pass_by(sim, DURATION_MAX, is_over)
    transaction.commit(sim.now, answer)
    sim.run()
    assert isinstance(answer.error, TransactionTimeout) == is_over
    assert queue.main.counts().active == (0 if is_over else 1)
