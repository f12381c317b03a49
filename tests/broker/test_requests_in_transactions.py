"""Cancelling scheduled messages and setting session states in transactions (docs/contract.md A7)."""

import pytest

from twinbus.broker.commands import CancelScheduled, GetSessionState, SetSessionState
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.errors import (
    FragmentUnavailable,
    MessageNotFound,
    MessagingError,
    NotAllowed,
    SessionLockLost,
    TransactionUnknown,
)
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, SimTransaction, Simulation

LATER = 60_000


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


def scheduled(sim: Simulation, queue: QueueEntity, name: str = "later", key: str | None = None) -> int:
    answer: Answer[list[int]] = Answer()
    queue.schedule([make_message(name, scheduled_at=sim.now + LATER, partition_key=key)], sim.now, answer)
    sim.run()
    return answer.value[0]


def cancel(sim: Simulation, transaction: SimTransaction, queue: QueueEntity, *numbers: int) -> Answer[None]:
    answer: Answer[None] = Answer()
    transaction.cancel_scheduled(queue, numbers, sim.now, answer)
    sim.run()
    return answer


def commit(sim: Simulation, transaction: SimTransaction) -> MessagingError | None:
    answer: Answer[None] = Answer()
    transaction.commit(sim.now, answer)
    sim.run()
    assert answer.has_come
    return answer.error


@pytest.mark.rule("A7.1")
@pytest.mark.parametrize("is_committed", [True, False])
def test_scheduled_messages_are_cancelled_with_the_commit_and_not_after_a_rollback(
    sim: Simulation, is_committed: bool
) -> None:
    queue, transaction = sim.queue(QueueDescription("q")), sim.transaction()
    numbers = [scheduled(sim, queue, name) for name in ("one", "two")]
    assert cancel(sim, transaction, queue, *numbers).value is None
    transaction.send(queue, [make_message("instead")], sim.now)
    assert queue.main.counts().scheduled == 2
    if is_committed:
        assert commit(sim, transaction) is None
    else:
        transaction.rollback()
    sim.advance(LATER, 1_000)
    assert sorted(sim.receiver(queue.main, 9).ids()) == (["instead"] if is_committed else ["one", "two"])


def test_scheduled_messages_of_a_topic_are_cancelled_with_the_commit(sim: Simulation) -> None:
    topic, transaction = sim.topic(TopicDescription("t")), sim.transaction()
    reader = sim.subscription(SubscriptionDescription("t", "s"))
    made: Answer[list[int]] = Answer()
    topic.schedule([make_message("m", scheduled_at=sim.now + LATER)], sim.now, made)
    sim.run()
    answer: Answer[None] = Answer()
    transaction.cancel_scheduled(topic, made.value, sim.now, answer)
    sim.run()
    assert (answer.value, commit(sim, transaction), topic.counts().scheduled) == (None, None, 0)
    sim.advance(LATER, 1_000)
    assert reader.main.counts().active == 0


@pytest.mark.parametrize("happening", ["it is due", "it is cancelled"])
def test_the_commit_fails_whole_if_a_message_is_no_longer_scheduled(sim: Simulation, happening: str) -> None:
    queue, transaction = sim.queue(QueueDescription("q")), sim.transaction()
    number = scheduled(sim, queue)
    assert cancel(sim, transaction, queue, number).value is None
    transaction.send(queue, [make_message("instead")], sim.now)
    if happening == "it is due":
        sim.advance(LATER, 1_000)
    else:
        assert sim.ask(queue.main, CancelScheduled([number])).value is None
    assert isinstance(commit(sim, transaction), MessageNotFound)
    assert sim.receiver(queue.main, 9).ids() == (["later"] if happening == "it is due" else [])


def test_a_message_that_is_not_scheduled_or_cancelled_twice_is_not_part_of_it(sim: Simulation) -> None:
    queue, transaction = sim.queue(QueueDescription("q")), sim.transaction()
    number = scheduled(sim, queue)
    assert cancel(sim, transaction, queue, number).value is None
    assert isinstance(cancel(sim, transaction, queue, number).error, MessageNotFound)
    assert isinstance(cancel(sim, transaction, queue, 77).error, MessageNotFound)
    assert (commit(sim, transaction), queue.main.counts().scheduled) == (None, 0)


@pytest.mark.one_node("over several nodes a commit waits for the answers, and overtakes nothing")
def test_a_cancellation_that_the_commit_overtakes_is_refused_and_not_forgotten(sim: Simulation) -> None:
    """Both look at the store first, and a client need not wait for one before it asks for the other."""
    queue, transaction = sim.queue(QueueDescription("q")), sim.transaction()
    first, second = scheduled(sim, queue, "first"), scheduled(sim, queue, "second")
    assert cancel(sim, transaction, queue, first).value is None
    late: Answer[None] = Answer()
    transaction.cancel_scheduled(queue, [second], sim.now, late)
    assert commit(sim, transaction) is None
    assert isinstance(late.error, TransactionUnknown)
    assert queue.main.counts().scheduled == 1


def test_on_a_partitioned_entity_cancelled_messages_have_the_key_of_the_transaction(sim: Simulation) -> None:
    queue, transaction = sim.queue(QueueDescription("q", enable_partitioning=True)), sim.transaction()
    number, other, keyless = scheduled(sim, queue, "a", "k"), scheduled(sim, queue, "b", "l"), scheduled(sim, queue)
    assert cancel(sim, transaction, queue, number).value is None
    assert isinstance(cancel(sim, transaction, queue, other).error, NotAllowed)
    assert isinstance(cancel(sim, transaction, queue, keyless).error, NotAllowed)
    transaction.send(queue, [make_message("instead", partition_key="K")], sim.now)
    assert (commit(sim, transaction), queue.main.counts().scheduled) == (None, 2)


@pytest.mark.parametrize(("fault", "is_there"), [(Fault.FAIL_BEFORE, False), (Fault.LOSE_REPLY, True)])
def test_a_store_that_fails_has_the_cancellation_and_the_send_or_neither(fault: Fault, is_there: bool) -> None:
    sim = Simulation()
    queue, transaction = sim.queue(QueueDescription("q")), sim.transaction()
    number = scheduled(sim, queue)
    cancel(sim, transaction, queue, number)
    transaction.send(queue, [make_message("instead")], sim.now)
    sim.ports[0].next_fault = fault
    assert isinstance(commit(sim, transaction), FragmentUnavailable)
    sim.return_store(0)
    counts = queue.main.counts()
    assert (counts.scheduled, counts.active) == ((0, 1) if is_there else (1, 0))


def test_a_store_lost_while_the_commit_looks_for_scheduled_messages_rolls_it_back(sim: Simulation) -> None:
    queue, transaction = sim.queue(QueueDescription("q")), sim.transaction()
    cancel(sim, transaction, queue, scheduled(sim, queue))
    answer: Answer[None] = Answer()
    transaction.commit(sim.now, answer)
    index = queue.main.fragments[0].broker.index
    sim.lose_store(index)
    assert isinstance(answer.error, FragmentUnavailable)
    sim.return_store(index)
    assert queue.main.counts().scheduled == 1


@pytest.mark.rule("A7.1")
@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("is_partitioned", [True, False])
def test_a_session_state_is_set_with_the_commit_and_stays_as_it_was_after_a_rollback(
    sim: Simulation, is_committed: bool, is_partitioned: bool
) -> None:
    queue = sim.queue(QueueDescription("q", requires_session=True, enable_partitioning=is_partitioned))
    sim.send(queue, make_message("m", session_id="s"))
    assert sim.accept(queue.main, "s").value.session_id == "s"
    transaction = sim.transaction()
    transaction.set_session_state(queue.main, "s", b"first", sim.now)
    transaction.set_session_state(queue.main, "s", b"last", sim.now)
    assert transaction.size_bytes == len(b"first" + b"last")
    transaction.send(queue, [make_message("n", session_id="s")], sim.now)
    assert (sim.ask(queue.main, GetSessionState("s")).value, transaction.size_bytes > 9) == (None, True)
    if is_committed:
        assert commit(sim, transaction) is None
    else:
        transaction.rollback()
    assert sim.ask(queue.main, GetSessionState("s")).value == (b"last" if is_committed else None)
    assert queue.main.counts().active == (2 if is_committed else 1)


def test_a_session_state_is_cleared_with_the_commit(sim: Simulation) -> None:
    queue, transaction = sim.queue(QueueDescription("q", requires_session=True)), sim.transaction()
    sim.send(queue, make_message("m", session_id="s"))
    assert sim.accept(queue.main, "s").value.is_held
    sim.ask(queue.main, SetSessionState("s", b"before"))
    transaction.set_session_state(queue.main, "s", None, sim.now)
    assert (sim.ask(queue.main, GetSessionState("s")).value, transaction.size_bytes) == (b"before", 0)
    assert commit(sim, transaction) is None
    assert sim.ask(queue.main, GetSessionState("s")).value is None


@pytest.mark.parametrize("is_held_again", [False, True])
def test_the_commit_fails_if_the_session_is_lost_meanwhile(sim: Simulation, is_held_again: bool) -> None:
    """Whoever holds it now does not expect that another one sets its state."""
    queue, transaction = sim.queue(QueueDescription("q", requires_session=True)), sim.transaction()
    sim.send(queue, make_message("m", session_id="s"))
    lock = sim.accept(queue.main, "s").value
    transaction.set_session_state(queue.main, "s", b"x", sim.now)
    queue.main.release_session(lock, sim.now)
    if is_held_again:
        assert sim.accept(queue.main, "S").value.is_held
    assert isinstance(commit(sim, transaction), SessionLockLost)
    if is_held_again:
        assert sim.ask(queue.main, GetSessionState("s")).value is None
        return
    with pytest.raises(SessionLockLost):
        sim.transaction().set_session_state(queue.main, "s", b"x", sim.now)
