"""An abandoned message that comes again at a time its receiver chose: what happens to its count, order, expiry and state."""

import pytest

from twinbus.broker.commands import CancelScheduled, Peek
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.fragment_transaction import FragmentTransaction
from twinbus.broker.outcomes import DELAY_MAX, Abandon, DeadLetter
from twinbus.errors import ArgumentError, MessageNotFound
from twinbus.model.descriptions import QueueDescription
from twinbus.model.wire_names import MessageState
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q", max_delivery_count=2, dead_letter_on_expiry=True))


def put_off(sim: Simulation, queue: QueueEntity, until: int) -> None:
    (delivery,) = sim.receiver(queue.main, 1).take()
    assert sim.settle(queue.main, [delivery], Abandon(due_at=until)).good == {0}


@pytest.mark.parametrize(
    ("delay", "due_at", "hidden_until"),
    [(0, 0, 0), (10, 0, 1_010), (0, 999, 0), (0, 1_000, 0), (0, -5, 0), (0, 1_001, 1_001), (10, 1_500, 1_500)],
)
def test_a_message_hides_for_its_delay_or_until_its_time_whichever_is_later(
    delay: int, due_at: int, hidden_until: int
) -> None:
    assert Abandon({}, delay, due_at).hidden_until(1_000) == hidden_until


def test_a_message_put_off_comes_again_at_its_time_and_not_before_with_a_higher_count(
    sim: Simulation, queue: QueueEntity
) -> None:
    sim.send(queue, make_message("m"))
    put_off(sim, queue, sim.now + 10_000)
    receiver = sim.receiver(queue.main, 1)
    sim.advance(9_900)
    assert receiver.take() == []
    sim.advance(200)
    (again,) = receiver.take()
    assert (again.message.sequence_number, again.message.delivery_count) == (1, 1)


def test_a_message_put_off_is_still_put_off_after_a_restart(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    put_off(sim, queue, sim.now + 10_000)
    sim.restart()
    receiver = sim.receiver(sim.entities.queue("q").main, 1)
    sim.advance(9_000)
    assert receiver.take() == []
    sim.advance(2_000)
    assert receiver.ids() == ["m"]


def test_the_last_delivery_that_fails_is_a_dead_letter_at_once_whatever_its_delay(
    sim: Simulation, queue: QueueEntity
) -> None:
    sim.send(queue, make_message("m"))
    put_off(sim, queue, sim.now + 10)
    sim.advance(20)
    put_off(sim, queue, sim.now + 10_000)
    assert sim.receiver(queue.dead_letter, 1).ids() == ["m"]


def test_a_message_put_off_beyond_its_time_to_live_expires_when_it_is_due(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m", time_to_live=5_000))
    put_off(sim, queue, sim.now + 10_000)
    sim.advance(11_000)
    assert sim.receiver(queue.main, 1).ids() == []
    assert sim.receiver(queue.dead_letter, 1).ids() == ["m"]


def test_messages_of_a_session_overtake_one_that_is_put_off_and_it_returns_to_its_place(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("s", requires_session=True))
    sim.send(queue, *(make_message(name, session_id="one") for name in "abc"))
    lock = sim.accept(queue.main, "one").value
    receiver = sim.receiver(queue.main, 1, session=lock)
    sim.settle(queue.main, receiver.take(), Abandon(due_at=sim.now + 1_000))
    receiver.credit = 1
    queue.main.pump(sim.now, receiver)
    assert receiver.ids() == ["b"]
    receiver.deliveries.clear()
    sim.advance(1_500)
    receiver.credit = 2
    queue.main.pump(sim.now, receiver)
    assert receiver.ids() == ["a", "c"]


def test_a_peek_finds_a_message_that_is_put_off_as_scheduled_until_then(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    until = sim.now + 10_000
    put_off(sim, queue, until)
    (row,) = sim.ask(queue.main, Peek(0, 1)).value
    assert (row.state, row.due_at, row.delivery_count) == (MessageState.SCHEDULED, until, 1)
    assert (queue.main.counts().active, queue.main.counts().scheduled) == (0, 1)


def test_a_message_cannot_be_put_off_for_longer_than_the_limit_and_stays_locked(
    sim: Simulation, queue: QueueEntity
) -> None:
    sim.send(queue, make_message("m"))
    (delivery,) = sim.receiver(queue.main, 1).take()
    late = Abandon(due_at=sim.now + DELAY_MAX + 1)
    assert isinstance(sim.settle(queue.main, [delivery], late).errors[0], ArgumentError)
    with pytest.raises(ArgumentError):
        FragmentTransaction().settle(queue.main, [delivery.lock_token], late, sim.now)
    assert sim.settle(queue.main, [delivery], Abandon(due_at=sim.now + DELAY_MAX)).good == {0}


def test_a_dead_letter_that_is_put_off_keeps_its_number_and_cannot_be_cancelled(
    sim: Simulation, queue: QueueEntity
) -> None:
    """Nothing counts its deliveries, so it may look as if it had never been delivered."""
    sim.send(queue, make_message("a"), make_message("b"))
    taken = sim.receiver(queue.main, 2).take()
    assert sim.settle(queue.main, taken, DeadLetter()).good == {0, 1}
    receiver = sim.receiver(queue.dead_letter, 1)
    (first,) = receiver.take()
    assert sim.settle(queue.dead_letter, [first], Abandon(due_at=sim.now + 1_000)).good == {0}
    with pytest.raises(MessageNotFound):
        _ = sim.ask(queue.dead_letter, CancelScheduled([1])).value
    sim.advance(1_500)
    again = sim.receiver(queue.dead_letter, 2).take()
    assert [(each.message.sequence_number, each.message.enqueued_at) for each in again] == [
        (each, first.message.enqueued_at) for each in (1, 2)
    ]
