"""Messages for later (contract A13)."""

import pytest

from twinbus.broker.commands import Peek
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.operations import by_number
from twinbus.broker.outcomes import Abandon
from twinbus.broker.wakeups import STALE_COUNT_MAX
from twinbus.errors import MessageNotFound, MessageTooLarge
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q"))


def schedule(sim: Simulation, queue: QueueEntity, *names: str, after: int = 10_000) -> list[int]:
    answer: Answer[list[int]] = Answer()
    queue.schedule([make_message(name, scheduled_at=sim.now + after) for name in names], sim.now, answer)
    sim.run()
    return answer.value


def cancel(sim: Simulation, queue: QueueEntity, *numbers: int) -> Answer[None]:
    answer: Answer[None] = Answer()
    queue.cancel_scheduled(numbers, sim.now, answer)
    sim.run()
    return answer


@pytest.mark.rule("A13.1")
def test_a_scheduled_message_comes_at_its_time_under_a_new_number(sim: Simulation, queue: QueueEntity) -> None:
    (number,) = schedule(sim, queue, "m")
    receiver = sim.receiver(queue.main, 1)
    assert queue.main.counts().scheduled == 1
    sim.advance(9_999)
    assert receiver.take() == []
    sim.advance(1)
    (delivery,) = receiver.take()
    assert delivery.message.sequence_number > number
    assert delivery.message.enqueued_at == sim.now
    assert (queue.main.counts().scheduled, queue.main.counts().active) == (0, 1)


def test_a_message_sent_with_a_time_is_scheduled_too(sim: Simulation, queue: QueueEntity) -> None:
    receiver = sim.receiver(queue.main, 5)
    sim.send(queue, make_message("later", scheduled_at=sim.now + 5_000), make_message("past", scheduled_at=sim.now))
    assert receiver.ids() == ["past"]
    sim.advance(5_000)
    assert receiver.ids() == ["later"]


@pytest.mark.rule("A13.1")
def test_scheduled_messages_survive_a_restart(sim: Simulation, queue: QueueEntity) -> None:
    schedule(sim, queue, "m")
    sim.restart()
    receiver = sim.receiver(sim.entities.queue("q").main, 1)
    sim.advance(10_000)
    assert receiver.ids() == ["m"]


def test_messages_due_while_the_process_was_away_come_at_once(sim: Simulation, queue: QueueEntity) -> None:
    schedule(sim, queue, *[str(number) for number in range(600)])
    sim.clock.advance(20_000)
    sim.restart()
    receiver = sim.receiver(sim.entities.queue("q").main, 1_000)
    sim.tick()
    assert len(receiver.take()) == 600


@pytest.mark.rule("A13.2")
def test_a_cancelled_message_never_comes(sim: Simulation, queue: QueueEntity) -> None:
    keep, drop = schedule(sim, queue, "keep", "drop")
    assert cancel(sim, queue, drop).value is None
    sim.advance(10_000)
    assert sim.receiver(queue.main, 5).ids() == ["keep"]
    assert isinstance(cancel(sim, queue, keep).error, MessageNotFound)


@pytest.mark.rule("A13.3")
def test_messages_for_ever_earlier_times_leave_nothing_behind_when_they_are_cancelled(
    sim: Simulation, queue: QueueEntity
) -> None:
    for number in range(2 * STALE_COUNT_MAX + 100):
        cancel(sim, queue, *schedule(sim, queue, "m", after=10**9 - number))
    assert all(len(broker.wakeups) <= 2 * STALE_COUNT_MAX + 1 for broker in sim.brokers)


def test_cancelling_is_all_or_nothing(sim: Simulation, queue: QueueEntity) -> None:
    (number,) = schedule(sim, queue, "m")
    assert isinstance(cancel(sim, queue, number, number + 7).error, MessageNotFound)
    assert queue.main.counts().scheduled == 1


def test_messages_that_are_too_large_together_are_not_cancelled_at_once(
    sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = schedule(sim, queue, "a", "b", "c")
    size = sum(len(row.content) for row in sim.ask(queue.main, Peek(numbers[0], 1)).value)
    monkeypatch.setattr(by_number, "CANCELLED_BYTES_MAX", 2 * size)
    assert isinstance(cancel(sim, queue, *numbers).error, MessageTooLarge)
    assert queue.main.counts().scheduled == 3
    assert cancel(sim, queue, *numbers[:2]).value is None
    assert queue.main.counts().scheduled == 1


def test_a_message_cancelled_while_it_is_becoming_active_is_one_or_the_other(
    sim: Simulation, queue: QueueEntity
) -> None:
    (number,) = schedule(sim, queue, "m")
    receiver = sim.receiver(queue.main, 1)
    sim.clock.advance(10_000)
    answer: Answer[None] = Answer()
    queue.cancel_scheduled([number], sim.now, answer)  # reads while nothing is decided
    sim.brokers[0].tick(sim.now)
    sim.run()
    assert (answer.error is None) == (receiver.deliveries == [])
    assert queue.main.counts().active == len(receiver.deliveries)


def test_the_time_to_live_of_a_message_that_was_due_while_the_process_was_away_is_not_used_up(
    sim: Simulation, queue: QueueEntity
) -> None:
    sim.send(queue, make_message("m", scheduled_at=sim.now + 10_000, time_to_live=3_000))
    sim.clock.advance(20_000)
    sim.restart()
    sim.tick()
    assert sim.receiver(sim.entities.queue("q").main, 1).ids() == ["m"]


def test_a_message_that_hides_after_it_was_abandoned_cannot_be_cancelled(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    deliveries = sim.receiver(queue.main, 1).take()
    sim.settle(queue.main, deliveries, Abandon(delay=10_000))
    assert isinstance(cancel(sim, queue, deliveries[0].message.sequence_number).error, MessageNotFound)


def test_the_time_to_live_of_a_scheduled_message_counts_from_when_it_is_active(
    sim: Simulation, queue: QueueEntity
) -> None:
    sim.send(queue, make_message("m", scheduled_at=sim.now + 10_000, time_to_live=3_000))
    sim.advance(10_000)
    sim.advance(2_999)
    assert queue.main.counts().active == 1
    sim.advance(1)
    assert queue.main.counts().active == 0
