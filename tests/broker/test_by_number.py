"""Deferred messages, received by their sequence numbers."""

import pytest

from twinbus.broker.commands import Peek, ReceiveDeferred
from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.operations import by_number
from twinbus.broker.outcomes import Abandon, Complete, Defer, Release
from twinbus.errors import MessageNotFound, MessageTooLarge, NotAllowed
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


def take_deferred(
    sim: Simulation, queue: MessageQueue, *numbers: int, mode: ReceiveMode = ReceiveMode.PEEK_LOCK
) -> Answer[list[TakenMessage]]:
    return sim.ask(queue, ReceiveDeferred(numbers, mode))


def defer_all(sim: Simulation, queue: MessageQueue, count: int) -> list[int]:
    receiver = sim.receiver(queue, count)
    deliveries = receiver.take()
    queue.detach(receiver, sim.now)
    sim.settle(queue, deliveries, Defer())
    return [delivery.message.sequence_number for delivery in deliveries]


def test_a_deferred_message_is_received_only_by_its_number(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m"))
    (number,) = defer_all(sim, queue.main, 1)
    assert sim.receiver(queue.main, 1).take() == []
    (delivery,) = take_deferred(sim, queue.main, number).value
    assert message_id_of(delivery.message.content) == "m"
    assert sim.settle(queue.main, [delivery]).good == {0}
    assert queue.main.counts().deferred == 0


def test_a_deferred_message_somebody_holds_is_not_found(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m"))
    (number,) = defer_all(sim, queue.main, 1)
    take_deferred(sim, queue.main, number)
    assert isinstance(take_deferred(sim, queue.main, number).error, MessageNotFound)


def test_a_deferred_message_can_be_received_again_once_its_lock_has_expired(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", lock_duration=30_000))
    sim.send(queue, make_message("m"))
    (number,) = defer_all(sim, queue.main, 1)
    sim.advance(600_000)
    (delivery,) = take_deferred(sim, queue.main, number).value
    assert delivery.locked_until == sim.now + 30_000
    sim.advance(29_999)
    assert isinstance(take_deferred(sim, queue.main, number).error, MessageNotFound)
    sim.advance(1)
    assert len(take_deferred(sim, queue.main, number).value) == 1


def test_deferred_messages_are_received_all_or_none(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("deferred"), make_message("active"))
    (number,) = defer_all(sim, queue.main, 1)
    assert isinstance(take_deferred(sim, queue.main, number, number + 1).error, MessageNotFound)
    assert len(take_deferred(sim, queue.main, number).value) == 1


def test_deferred_messages_that_no_answer_can_hold_are_refused_and_stay(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *(make_message(f"{number}") for number in range(200)))
    numbers = defer_all(sim, queue.main, 200)
    (size,) = {len(row.content) for row in sim.ask(queue.main, Peek(numbers[100], 50)).value}
    monkeypatch.setattr(by_number, "DEFERRED_BYTES_MAX", 50 * size)
    for mode in ReceiveMode:
        assert isinstance(take_deferred(sim, queue.main, *numbers[100:151], mode=mode).error, MessageTooLarge)
    assert len(take_deferred(sim, queue.main, *numbers[100:150]).value) == 50
    monkeypatch.setattr(by_number, "DEFERRED_BYTES_MAX", size - 1)
    assert len(take_deferred(sim, queue.main, numbers[0]).value) == 1
    assert queue.main.counts().deferred == 200


def test_one_answer_holds_64_mb_and_one_cancellation_256() -> None:
    assert (by_number.DEFERRED_BYTES_MAX, by_number.CANCELLED_BYTES_MAX) == (67_108_864, 268_435_456)


@pytest.mark.rule("A8.4")
def test_deferred_messages_of_several_fragments_are_refused(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for name in "ab":
        sim.send(queue, make_message(name))
    numbers = defer_all(sim, queue.main, 2)
    assert isinstance(take_deferred(sim, queue.main, *numbers).error, NotAllowed)


def test_a_deferred_message_can_be_received_and_deleted(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m"))
    (number,) = defer_all(sim, queue.main, 1)
    (delivery,) = take_deferred(sim, queue.main, number, mode=ReceiveMode.RECEIVE_AND_DELETE).value
    assert delivery.lock_token == b""
    assert queue.main.counts().deferred == 0
    assert isinstance(take_deferred(sim, queue.main, number).error, MessageNotFound)


@pytest.mark.parametrize("outcome", [Abandon(), Release(), Defer()])
def test_a_deferred_message_that_is_given_back_stays_deferred(
    sim: Simulation, outcome: Abandon | Release | Defer
) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m"))
    (number,) = defer_all(sim, queue.main, 1)
    sim.settle(queue.main, take_deferred(sim, queue.main, number).value, outcome)
    assert sim.receiver(queue.main, 1).take() == []
    assert queue.main.counts().deferred == 1
    (again,) = take_deferred(sim, queue.main, number).value
    assert again.message.delivery_count == (1 if isinstance(outcome, Abandon) else 0)


def test_a_deferred_message_whose_lock_ended_is_still_deferred(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", lock_duration=5_000))
    sim.send(queue, make_message("m"))
    (number,) = defer_all(sim, queue.main, 1)
    (held,) = take_deferred(sim, queue.main, number).value
    sim.advance(5_000)
    assert sim.settle(queue.main, [held], Complete()).good == set()
    (again,) = take_deferred(sim, queue.main, number).value
    assert again.message.delivery_count == 1
