"""Time to live (contract A14)."""

from collections.abc import Sequence

import pytest

from twinbus.broker.commands import ReceiveDeferred
from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.fragment.upkeep import RETRY_AFTER
from twinbus.broker.outcomes import Abandon, Defer, Release
from twinbus.model.content import application_properties
from twinbus.model.descriptions import QueueDescription
from twinbus.store.changes import FragmentKey, StoredMessage
from twinbus.store.memory import MemoryStore
from twinbus.store.reads import ROWS_BYTES_MAX
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q", dead_letter_on_expiry=True, default_time_to_live=60_000))


@pytest.mark.rule("A14.5", "A15.3")
def test_an_expired_message_is_dead_lettered_where_the_entity_says_so(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m", time_to_live=5_000))
    sim.advance(5_000)
    assert queue.main.counts().active == 0
    (dead,) = sim.receiver(queue.dead_letter, 1).take()
    assert application_properties(dead.message.content)["DeadLetterReason"] == "TTLExpiredException"


@pytest.mark.rule("A14.6")
def test_an_expired_message_is_dropped_where_the_entity_says_nothing(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("plain"))
    sim.send(queue, make_message("m", time_to_live=5_000))
    sim.advance(5_000)
    assert queue.main.counts().active == queue.dead_letter.counts().active == 0
    assert queue.main.counts().size_bytes == 0


@pytest.mark.rule("A14.1")
def test_the_default_of_the_entity_is_a_ceiling(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("none"), make_message("more", time_to_live=600_000))
    sim.advance(59_999)
    assert queue.main.counts().active == 2
    sim.advance(1)
    assert queue.main.counts().active == 0


def test_an_expired_message_is_not_handed_over_before_the_sweep(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("gone", time_to_live=5_000), make_message("here"))
    sim.clock.advance(5_000)
    assert sim.receiver(queue.main, 5).ids() == ["here"]
    assert queue.dead_letter.counts().active == 1


@pytest.mark.rule("A14.4")
@pytest.mark.parametrize("outcome", [Abandon(), Release()])
def test_a_locked_message_expires_when_it_is_free_again(
    sim: Simulation, queue: QueueEntity, outcome: Abandon | Release
) -> None:
    sim.send(queue, make_message("m", time_to_live=5_000))
    receiver = sim.receiver(queue.main, 1)
    sim.advance(6_000)
    assert queue.main.counts().active == 1
    receiver.credit = 5
    sim.settle(queue.main, receiver.take(), outcome)
    sim.advance(2_000)
    assert receiver.take() == []
    assert queue.main.counts().active == 0
    assert queue.dead_letter.counts().active == 1


def test_a_locked_message_can_be_completed_after_its_time(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m", time_to_live=5_000))
    receiver = sim.receiver(queue.main, 1)
    sim.advance(6_000)
    assert sim.settle(queue.main, receiver.take()).good == {0}
    assert queue.dead_letter.counts().active == 0


@pytest.mark.rule("A14.7")
def test_a_deferred_message_does_not_expire(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m", time_to_live=5_000))
    deliveries = sim.receiver(queue.main, 1).take()
    sim.settle(queue.main, deliveries, Defer())
    sim.advance(100_000)
    assert queue.main.counts().deferred == 1
    answer: Answer[list[TakenMessage]] = Answer()
    number = deliveries[0].message.sequence_number
    queue.main.ask(ReceiveDeferred([number], ReceiveMode.RECEIVE_AND_DELETE), sim.now, answer)
    sim.run()
    assert len(answer.value) == 1


def test_dead_letters_do_not_expire(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m", time_to_live=5_000))
    sim.advance(5_000)
    sim.advance(1_000_000)
    assert queue.dead_letter.counts().active == 1


def test_messages_beyond_the_window_expire_too(sim: Simulation, queue: QueueEntity) -> None:
    for start in range(0, 3_000, 100):
        sim.send(queue, *[make_message(str(start + number), time_to_live=5_000) for number in range(100)])
    sim.send(queue, make_message("last"))
    sim.advance(5_000)
    for _ in range(20):
        sim.tick()
    assert queue.main.counts().active == 1
    assert queue.dead_letter.counts().active == 3_000
    assert sim.receiver(queue.main, 5).ids() == ["last"]


def test_expired_messages_that_are_locked_do_not_hide_the_others(sim: Simulation, queue: QueueEntity) -> None:
    for _ in range(4):
        sim.send(queue, *[make_message("m", time_to_live=5_000) for _ in range(100)])
    receiver = sim.receiver(queue.main, 400)
    sim.send(queue, make_message("free", time_to_live=5_001))
    sim.advance(5_001)
    assert queue.main.counts().active == len(receiver.deliveries) == 400


def test_messages_that_expired_while_the_process_was_away_are_swept(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m", time_to_live=5_000))
    sim.clock.advance(6_000)
    sim.restart()
    sim.tick()
    assert sim.entities.queue("q").dead_letter.counts().active == 1


class CountingStore(MemoryStore):
    """Knows how much it was asked to read."""

    def __init__(self) -> None:
        super().__init__()
        self.largest_read = self.bytes_read = 0

    def read(
        self, fragment: FragmentKey, sequence_numbers: Sequence[int], bytes_max: int | None = None
    ) -> list[StoredMessage]:
        rows = super().read(fragment, sequence_numbers, bytes_max)
        size = sum(len(row.content) for row in rows)
        self.largest_read = max(self.largest_read, size)
        self.bytes_read += size
        return rows


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_many_large_messages_whose_time_has_come_are_read_some_at_a_time(is_scheduled: bool) -> None:
    store = CountingStore()
    sim = Simulation(make_store=lambda: store)
    queue = sim.queue(QueueDescription("q", dead_letter_on_expiry=True))
    scheduled_at, time_to_live = (sim.now + 5_000, None) if is_scheduled else (None, 5_000)
    for number in range(100):
        body = bytes(200_000)
        sim.send(queue, make_message(str(number), body=body, time_to_live=time_to_live, scheduled_at=scheduled_at))
    sim.advance(6_000, step=50)
    assert (queue.main if is_scheduled else queue.dead_letter).counts().active == 100
    assert store.largest_read <= ROWS_BYTES_MAX


def test_expired_messages_that_are_locked_are_not_read_again_and_again() -> None:
    store = CountingStore()
    sim = Simulation(make_store=lambda: store)
    queue = sim.queue(QueueDescription("q", lock_duration=300_000))
    receiver = sim.receiver(queue.main, 300)
    sim.send(queue, *[make_message(str(number), time_to_live=5_000) for number in range(300)])
    late = [make_message(f"late {number}", time_to_live=7_000) for number in range(300)]
    sim.send(queue, *late)
    sim.advance(60_000, step=500)
    assert queue.main.counts().active == len(receiver.deliveries) == 300
    assert store.bytes_read == sum(len(message.content) for message in late)


@pytest.mark.one_node("the questions to the store are counted")
def test_what_is_being_changed_when_the_sweep_finds_it_is_looked_for_again_a_second_later_and_then_no_more(
    sim: Simulation, queue: QueueEntity
) -> None:
    (port,) = sim.ports
    sim.send(queue, make_message("m", time_to_live=5_000))
    port.is_hung = True
    sim.advance(5_000)  # the sweep asks
    assert sim.receiver(queue.main, 1).ids() == []  # it would be handed over, and so has expired
    port.is_hung = False
    sim.run()
    before = port.query_count
    sim.advance(RETRY_AFTER - 1, 100)
    assert port.query_count == before
    sim.advance(60_000, 100)
    assert port.query_count == before + 1
    assert queue.dead_letter.counts().active == 1
