"""What a lost store means to everybody (contract A4): locks are gone, messages come again, requests fail."""

import pytest

from twinbus.broker.commands import ListSessions, Peek, PeekMerged
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.message_broker import SILENCE_MAX
from twinbus.broker.outcomes import Abandon, Defer
from twinbus.errors import FragmentUnavailable, MessageLockLost, StoreUnavailable
from twinbus.model.descriptions import QueueDescription
from twinbus.pairing.deciding.partitioning import Partitioning
from twinbus.store.changes import FragmentDeleted, StoredMessage
from twinbus.store.memory import MemoryStore
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, EachReply, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q"))


def test_locks_are_gone_with_the_store_and_the_messages_come_again(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 5)
    held = receiver.take()
    sim.lose_store(0)
    assert isinstance(sim.settle(queue.main, held).errors[0], MessageLockLost)
    sim.return_store(0)
    (again,) = sim.receiver(queue.main, 5).take()
    assert again.message.delivery_count == 0
    assert sim.settle(queue.main, [again]).good == {0}


def test_why_a_store_is_lost_is_known(sim: Simulation, queue: QueueEntity) -> None:
    sim.brokers[0].store_lost(StoreUnavailable("the disk is scratched"))
    assert isinstance(sim.send(queue, make_message("m")).errors[0], FragmentUnavailable)
    assert sim.brokers[0].fault == "the disk is scratched"


@pytest.mark.parametrize("fault", list(Fault))
def test_a_settlement_whose_commit_fails_is_answered_and_told_apart_after_reloading(
    sim: Simulation, queue: QueueEntity, fault: Fault
) -> None:
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 5)
    sim.ports[0].next_fault = fault
    reply = sim.settle(queue.main, receiver.take())
    assert isinstance(reply.errors[0], FragmentUnavailable)
    sim.return_store(0)
    is_done = fault is Fault.LOSE_REPLY
    assert sim.receiver(queue.main, 5).ids() == ([] if is_done else ["m"])
    assert queue.main.counts().active == (0 if is_done else 1)


def test_everything_that_waits_is_answered_when_the_store_is_lost(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("a"), make_message("b"))
    receiver = sim.receiver(queue.main, 2)
    one, two = receiver.take()
    sim.ports[0].is_hung = True
    sent = sim.send(queue, make_message("c"))
    settled = sim.settle(queue.main, [one], Abandon())
    together: Answer[None] = Answer()
    queue.main.settle([two.lock_token], Defer(), sim.now, together)
    peeked: Answer[list[StoredMessage]] = Answer()
    queue.main.ask(Peek(0, 5), sim.now, peeked)
    sim.brokers[0].store_lost(StoreUnavailable("gone"))
    assert isinstance(sent.errors[0], FragmentUnavailable)
    assert isinstance(settled.errors[0], FragmentUnavailable)
    assert isinstance(together.error, FragmentUnavailable)
    assert isinstance(peeked.error, FragmentUnavailable)
    sim.ports[0].is_hung = False
    sim.run()
    assert not sim.brokers[0].is_available


@pytest.mark.rule("A4.9")
@pytest.mark.parametrize("fault", [None, Fault.LOSE_REPLY])
def test_receivers_of_a_queue_learn_that_its_only_store_is_lost(
    sim: Simulation, queue: QueueEntity, fault: Fault | None
) -> None:
    """An empty receive would look like an empty queue."""
    receivers = [sim.receiver(queue.main, 5), sim.receiver(queue.dead_letter, 0)]
    if fault is None:
        sim.lose_store(0)
    else:
        sim.ports[0].next_fault = fault
        sim.send(queue, make_message("m"))
    for receiver in receivers:
        assert isinstance(receiver.lost, FragmentUnavailable)
        assert receiver.ids() == []
    for source in (queue.main, queue.dead_letter):
        with pytest.raises(FragmentUnavailable, match="Messaging store 0 is unavailable"):
            raise sim.receiver(source, 5).lost or AssertionError("it receives")
    sim.return_store(0)
    assert sim.receiver(queue.main, 5).ids() == (["m"] if fault else [])


@pytest.mark.rule("A4.8")
def test_receivers_of_a_partitioned_queue_stay_until_its_last_store_is_lost() -> None:
    sim = Simulation(16)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    receiver = sim.receiver(queue.main, 50)
    for index in range(15):
        sim.lose_store(index)
    sim.send(queue, make_message("m"))
    assert receiver.ids() == ["m"]
    assert receiver.lost is None
    sim.lose_store(15)
    assert isinstance(receiver.lost, FragmentUnavailable)


@pytest.mark.rule("A4.9")
def test_a_peek_fails_whose_only_store_is_lost_and_returns_meanwhile(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    peeked: Answer[list[StoredMessage]] = Answer()
    queue.main.ask(Peek(0, 5), sim.now, peeked)
    sim.brokers[0].store_lost(StoreUnavailable("gone"))
    sim.return_store(0)
    assert isinstance(peeked.error, FragmentUnavailable)


def test_counts_leave_out_what_cannot_be_reached(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    sim.lose_store(0)
    counts = queue.main.counts()
    assert (counts.active, counts.is_limited) == (0, True)
    sim.return_store(0)
    assert queue.main.counts().active == 1


def test_a_store_that_is_lost_and_returned_twice_serves_once(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 5)
    receiver.take()
    sim.brokers[0].store_lost(StoreUnavailable("one"))
    sim.brokers[0].store_lost(StoreUnavailable("two"))
    sim.brokers[0].store_returned()
    sim.brokers[0].store_returned()
    sim.run()
    assert sim.receiver(queue.main, 5).ids() == ["m"]


def test_a_store_lost_while_it_is_read_anew_stays_lost(sim: Simulation, queue: QueueEntity) -> None:
    sim.lose_store(0)
    sim.ports[0].is_hung = True
    sim.ports[0].reopen()
    sim.brokers[0].store_returned()
    sim.brokers[0].store_lost(StoreUnavailable("again"))
    sim.ports[0].is_hung = False
    sim.run()
    assert not sim.brokers[0].is_available
    sim.return_store(0)
    assert sim.send(queue, make_message("m")).good == {0}


def test_a_fragment_the_store_has_never_seen_is_made_when_it_loads(sim: Simulation) -> None:
    sim.entities.restore_queue(77, QueueDescription("known to the catalog"), sim.now)
    sim.run()
    queue = sim.entities.queue("known to the catalog")
    assert sim.send(queue, make_message("m")).good == {0}
    sim.restart()
    assert sim.receiver(sim.entities.queue("known to the catalog").main, 1).ids() == ["m"]


def test_an_entity_that_becomes_known_while_a_store_is_being_read_is_served(
    sim: Simulation, queue: QueueEntity
) -> None:
    sim.lose_store(0)
    sim.ports[0].reopen()
    sim.brokers[0].store_returned()
    sim.entities.restore_queue(77, QueueDescription("created elsewhere"), sim.now)
    sim.run()
    for name in ("q", "created elsewhere"):
        assert sim.send(sim.entities.queue(name), make_message("m")).good == {0}


@pytest.mark.one_node("the questions to the store are counted")
def test_a_store_is_read_once_when_it_is_opened(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    sim.restart()
    assert sim.ports[0].query_count == 1


@pytest.mark.one_node("the store has another owner in between")
def test_what_another_owner_put_into_an_entity_that_was_created_just_before_is_there_when_the_store_returns() -> None:
    stores = [MemoryStore(), MemoryStore()]
    sim = Simulation(2, make_store=iter(stores).__next__)
    description = QueueDescription("q", enable_partitioning=True)
    created: Answer[QueueEntity] = Answer()
    sim.entities.create_queue(77, description, sim.now, created)
    sim.ports[0].run()
    sim.brokers[0].store_lost(StoreUnavailable("another node has it"))
    sim.run()
    queue = created.value

    other = Simulation(2, make_store=iter(stores).__next__)
    other.entities.restore_queue(77, description, sim.now, queue.first_store)
    other.run()
    index = next(index for index, fragment in enumerate(queue.fragments) if fragment.broker is sim.brokers[0])
    message = make_message("m", partition_key=Partitioning(16).key_in(index))
    assert other.send(other.entities.queue("q"), message).good == {0}

    sim.return_store(0)
    assert sim.receiver(queue.main, 5).ids() == ["m"]


def test_commits_of_many_senders_are_joined(sim: Simulation, queue: QueueEntity) -> None:
    before = sim.ports[0].commit_count
    sim.ports[0].is_hung = True
    replies = [sim.send(queue, make_message(str(number))) for number in range(20)]
    sim.ports[0].is_hung = False
    sim.run()
    assert all(reply.good == {0} for reply in replies)
    assert sim.ports[0].commit_count == before + 1


@pytest.mark.rule("A12")
def test_a_reader_gets_an_error_when_no_part_of_a_queue_can_be_reached(sim: Simulation) -> None:
    """An empty answer would look like an empty queue."""
    queue = sim.queue(QueueDescription("talks", requires_session=True))
    sim.send(queue, make_message("m", session_id="s"))
    sim.lose_store(0)
    peeked: Answer[list[StoredMessage]] = Answer()
    queue.main.ask(Peek(0, 1), sim.now, peeked)
    merged: Answer[list[StoredMessage]] = Answer()
    queue.main.ask(PeekMerged({}, 1), sim.now, merged)
    listed: Answer[list[str]] = Answer()
    queue.main.ask(ListSessions(None, 0, 10), sim.now, listed)
    for answer in (peeked, merged, listed):
        assert isinstance(answer.error, FragmentUnavailable)


def test_a_list_of_sessions_that_was_under_way_fails_with_its_only_store(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("talks", requires_session=True))
    listed: Answer[list[str]] = Answer()
    queue.main.ask(ListSessions(None, 0, 10), sim.now, listed)
    sim.brokers[0].store_lost(StoreUnavailable("gone"))
    assert isinstance(listed.error, FragmentUnavailable)


def test_a_joint_commit_that_breaks_off_is_not_made_in_part(sim: Simulation, queue: QueueEntity) -> None:
    """Memory may have followed what was decided of it, so it is read again."""
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 5)
    broker, failed = sim.brokers[0], list[FragmentUnavailable]()

    def break_off() -> None:
        with broker.joined(lambda _: None, lambda error, _: None):
            broker.commit([FragmentDeleted(queue.fragments[0].key)], None, lambda error, _: failed.append(error))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert len(failed) == 1
    sim.run()
    assert broker.is_available
    assert receiver.ids() == ["m"]
    assert sim.receiver(queue.main, 5).ids() == ["m"]


def test_a_store_is_silent_from_the_oldest_request_that_it_has_not_answered(
    sim: Simulation, queue: QueueEntity
) -> None:
    first, second = EachReply(), EachReply()
    port = sim.ports[0]
    port.is_hung = True
    queue.send_each([make_message("first")], sim.now, first)
    sim.advance(SILENCE_MAX - 1_000)
    queue.send_each([make_message("second")], sim.now, second)
    sim.advance(1_000)
    port.is_hung = False
    assert port.step(joined_max=1)
    port.is_hung = True
    assert first.good == {0}
    sim.advance(SILENCE_MAX - 1_000)
    assert second.errors == {}
    sim.advance(1)
    assert isinstance(second.errors[0], FragmentUnavailable)
