"""Peek, deferred messages and numbers (contract A12, protocol.md 9)."""

import pytest

from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.operations import browse
from twinbus.broker.outcomes import Abandon, Complete, Defer, Release
from twinbus.errors import MessageNotFound, MessageTooLarge, NotAllowed
from twinbus.model.descriptions import QueueDescription
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


def peek(sim: Simulation, queue: MessageQueue, from_number: int = 0, count_max: int = 250) -> list[StoredMessage]:
    answer: Answer[list[StoredMessage]] = Answer()
    queue.peek(from_number, count_max, None, sim.now, answer)
    sim.run()
    return answer.value


def ids(rows: list[StoredMessage]) -> list[str]:
    return [message_id_of(row.content) for row in rows]


def take_deferred(
    sim: Simulation, queue: MessageQueue, *numbers: int, mode: ReceiveMode = ReceiveMode.PEEK_LOCK
) -> Answer[list[TakenMessage]]:
    answer: Answer[list[TakenMessage]] = Answer()
    queue.receive_deferred(numbers, mode, None, sim.now, answer)
    sim.run()
    return answer


def defer_all(sim: Simulation, queue: MessageQueue, count: int) -> list[int]:
    receiver = sim.receiver(queue, count)
    deliveries = receiver.take()
    queue.detach(receiver, sim.now)
    sim.settle(queue, deliveries, Defer())
    return [delivery.message.sequence_number for delivery in deliveries]


@pytest.mark.rule("A12")
def test_peek_shows_active_locked_deferred_and_scheduled_messages(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("deferred"))
    defer_all(sim, queue.main, 1)
    sim.send(queue, make_message("locked"))
    sim.receiver(queue.main, 1)
    sim.send(queue, make_message("active"), make_message("scheduled", scheduled_at=sim.now + 1_000))
    rows = peek(sim, queue.main)
    assert ids(rows) == ["deferred", "locked", "active", "scheduled"]
    assert [row.state for row in rows] == [
        MessageState.DEFERRED,
        MessageState.ACTIVE,
        MessageState.ACTIVE,
        MessageState.SCHEDULED,
    ]


def test_peek_starts_at_a_number_and_ends_at_a_count(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number)) for number in range(1, 10)])
    assert ids(peek(sim, queue.main, 4, 3)) == ["4", "5", "6"]
    assert peek(sim, queue.main, 10) == []


@pytest.mark.rule("A12")
def test_a_page_of_peek_ends_at_its_size_but_holds_one_message_at_least(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number), body=bytes(100_000)) for number in range(4)])
    assert ids(peek(sim, queue.main)) == ["0", "1"]
    sim.send(queue, make_message("big", body=bytes(300_000)))
    assert ids(peek(sim, queue.main, 5)) == ["big"]


@pytest.mark.rule("A12")
def test_a_page_of_peek_never_holds_more_than_250(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number)) for number in range(300)])
    assert len(peek(sim, queue.main, 0, 1_000)) == 250


@pytest.mark.rule("A12")
def test_peeking_on_behind_the_last_number_passes_every_fragment(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for number in range(50):
        sim.send(queue, make_message(str(number)))
    sim.lose_store(3)
    seen: list[str] = []
    position = 0
    while rows := peek(sim, queue.main, position, 10):
        seen += ids(rows)
        position = rows[-1].sequence_number + 1
    assert sorted(map(int, seen)) == [number for number in range(50) if number % 16 != 3]


@pytest.mark.rule("A12")
def test_merged_peek_shows_all_fragments_in_the_order_of_arrival(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for number in range(40):
        sim.send(queue, make_message(str(number)))
        sim.clock.advance(1)
    positions: dict[int, int] = {}
    seen: list[str] = []
    while True:
        answer: Answer[list[StoredMessage]] = Answer()
        queue.main.peek_merged(positions, 7, sim.now, answer)
        sim.run()
        if not answer.value:
            break
        seen += ids(answer.value)
        positions |= {row.sequence_number >> 48: row.sequence_number + 1 for row in answer.value}
    assert seen == [str(number) for number in range(40)]


def test_peek_leaves_out_what_has_expired(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number), time_to_live=1_000) for number in range(3)], make_message("stays"))
    sim.clock.advance(1_000)
    assert ids(peek(sim, queue.main)) == ["stays"]
    assert ids(peek(sim, queue.main, 0, 2)) == ["stays"]


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
    (size,) = {len(row.content) for row in peek(sim, queue.main, numbers[100], 50)}
    monkeypatch.setattr(browse, "DEFERRED_BYTES_MAX", 50 * size)
    for mode in ReceiveMode:
        assert isinstance(take_deferred(sim, queue.main, *numbers[100:151], mode=mode).error, MessageTooLarge)
    assert len(take_deferred(sim, queue.main, *numbers[100:150]).value) == 50
    monkeypatch.setattr(browse, "DEFERRED_BYTES_MAX", size - 1)
    assert len(take_deferred(sim, queue.main, numbers[0]).value) == 1
    assert queue.main.counts().deferred == 200


@pytest.mark.rule("A8")
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
