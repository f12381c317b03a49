"""Transactions: sends and settlements of one entity, all or nothing (contract A7)."""

import pytest

from twinbus.broker.commands import Peek
from twinbus.broker.consumer import TakenMessage
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.fragment_transaction import DURATION_MAX, MESSAGES_MAX
from twinbus.broker.outcomes import COMPLETE, RELEASE, Abandon, DeadLetter, Defer
from twinbus.errors import (
    EntityDisabled,
    FragmentUnavailable,
    MessageLockLost,
    NotAllowed,
    QuotaExceeded,
    SessionLockLost,
    TransactionTimeout,
    TransactionUnknown,
)
from twinbus.meter.operation import NO_FRAGMENT
from twinbus.model.descriptions import (
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.message import Message
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, SimTransaction, Simulation

NOT_ALLOWED = "amqp:not-allowed"


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q"))


@pytest.fixture
def partitioned() -> tuple[Simulation, QueueEntity]:
    sim = Simulation(16)
    return sim, sim.queue(QueueDescription("q", enable_partitioning=True))


def send(sim: Simulation, transaction: SimTransaction, entity: QueueEntity | TopicEntity, *messages: Message) -> None:
    transaction.send(entity, messages, sim.now)


def commit(sim: Simulation, transaction: SimTransaction) -> Answer[None]:
    answer: Answer[None] = Answer()
    transaction.commit(sim.now, answer)
    sim.run()
    return answer


def committed(sim: Simulation, transaction: SimTransaction) -> None:
    assert commit(sim, transaction).value is None


def locked(sim: Simulation, queue: QueueEntity, *messages: Message) -> list[TakenMessage]:
    sim.send(queue, *messages)
    receiver = sim.receiver(queue.main, len(messages))
    queue.main.detach(receiver, sim.now)
    return receiver.take()


def ids(sim: Simulation, queue: QueueEntity) -> list[str]:
    """Message ids of all that can be received; nobody holds them afterwards."""
    receiver = sim.receiver(queue.main, 1_000)
    queue.main.detach(receiver, sim.now)
    sim.settle(queue.main, receiver.deliveries, RELEASE)
    return receiver.ids()


# Sends


def test_what_is_sent_is_seen_by_nobody_before_the_commit(sim: Simulation, queue: QueueEntity) -> None:
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("a"), make_message("b"))
    peeked: Answer[object] = Answer()
    queue.main.ask(Peek(0, 10), sim.now, peeked)
    sim.run()
    assert (ids(sim, queue), peeked.value, queue.main.counts().size_bytes) == ([], [], 0)
    committed(sim, transaction)
    assert ids(sim, queue) == ["a", "b"]


def test_numbers_stay_without_gaps_when_transactions_are_rolled_back(sim: Simulation, queue: QueueEntity) -> None:
    for number in range(4):
        transaction = sim.transaction()
        send(sim, transaction, queue, make_message(f"m{number}"))
        if number % 2:
            transaction.rollback()
        else:
            commit(sim, transaction)
    receiver = sim.receiver(queue.main, 10)
    assert [delivery.message.sequence_number for delivery in receiver.deliveries] == [1, 2]


def test_a_topic_copies_at_the_commit_to_every_subscription_that_matches() -> None:
    sim = Simulation()
    topic = sim.topic(TopicDescription("t"))
    every = sim.subscription(SubscriptionDescription("t", "every"))
    some = sim.subscription(SubscriptionDescription("t", "some"), [RuleDescription("r", SqlFilter("colour = 'red'"))])
    transaction = sim.transaction()
    send(sim, transaction, topic, make_message("red", application_properties={"colour": "red"}), make_message("plain"))
    assert every.main.counts().active == 0
    commit(sim, transaction)
    assert sim.receiver(every.main, 9).ids() == ["red", "plain"]
    assert sim.receiver(some.main, 9).ids() == ["red"]


def test_a_duplicate_is_dropped_at_the_commit(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", requires_duplicate_detection=True))
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("a"), make_message("b"), make_message("b"))
    sim.send(queue, make_message("a"))
    committed(sim, transaction)
    assert ids(sim, queue) == ["a", "b"]


def test_an_id_that_was_rolled_back_is_no_duplicate(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", requires_duplicate_detection=True))
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("a"))
    transaction.rollback()
    sim.send(queue, make_message("a"))
    assert ids(sim, queue) == ["a"]


def test_a_scheduled_message_waits_for_its_time_after_the_commit(sim: Simulation, queue: QueueEntity) -> None:
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("later", scheduled_at=sim.now + 5_000))
    assert queue.main.counts().scheduled == 0
    commit(sim, transaction)
    assert (queue.main.counts().scheduled, ids(sim, queue)) == (1, [])
    sim.advance(6_000, 1_000)
    assert ids(sim, queue) == ["later"]


@pytest.mark.rule("A7.5")
def test_an_ordinary_entity_takes_several_sessions_in_one_transaction(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", requires_session=True))
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("1", session_id="a"))
    send(sim, transaction, queue, make_message("2", session_id="b"))
    commit(sim, transaction)
    for session_id, name in (("a", "1"), ("b", "2")):
        session = sim.accept(queue.main, session_id).value
        assert sim.receiver(queue.main, 1, session=session).ids() == [name]


# Settlements


@pytest.mark.parametrize(
    ("outcome", "active", "deferred", "dead"),
    [(COMPLETE, 0, 0, 0), (Abandon(), 1, 0, 0), (RELEASE, 1, 0, 0), (Defer(), 0, 1, 0), (DeadLetter("why"), 0, 0, 1)],
)
def test_a_settlement_has_its_effect_at_the_commit(
    sim: Simulation, queue: QueueEntity, outcome: Abandon, active: int, deferred: int, dead: int
) -> None:
    (delivery,) = locked(sim, queue, make_message("m"))
    transaction = sim.transaction()
    transaction.settle(queue.main, [delivery.lock_token], outcome, sim.now)
    sim.run()
    before = queue.main.counts()
    assert (before.active, before.deferred, queue.dead_letter.counts().active) == (1, 0, 0)
    assert ids(sim, queue) == []
    committed(sim, transaction)
    after = queue.main.counts()
    assert (after.active, after.deferred, queue.dead_letter.counts().active) == (active, deferred, dead)
    assert ids(sim, queue) == ["m"] * active


@pytest.mark.rule("A7.1")
def test_sends_and_settlements_are_one_commit_of_the_store(sim: Simulation, queue: QueueEntity) -> None:
    first, second, third = locked(sim, queue, *[make_message(str(number)) for number in range(3)])
    transaction = sim.transaction()
    transaction.settle(queue.main, [first.lock_token], COMPLETE, sim.now)
    send(sim, transaction, queue, make_message("new"))
    transaction.settle(queue.main, [second.lock_token], DeadLetter("why"), sim.now)
    transaction.settle(queue.main, [third.lock_token], Abandon(), sim.now)
    before = sim.ports[0].commit_count
    transaction.commit(sim.now, Answer[None]())
    assert len(sim.ports[0]) == 1
    sim.run()
    assert sim.ports[0].commit_count == before + 1
    assert ids(sim, queue) == ["2", "new"]


def test_after_a_rollback_the_lock_lives_on(sim: Simulation, queue: QueueEntity) -> None:
    (delivery,) = locked(sim, queue, make_message("m"))
    transaction = sim.transaction()
    transaction.settle(queue.main, [delivery.lock_token], COMPLETE, sim.now)
    transaction.rollback()
    assert ids(sim, queue) == []
    assert sim.settle(queue.main, [delivery]).good == {0}


def test_a_message_in_a_transaction_cannot_be_settled_elsewhere(sim: Simulation, queue: QueueEntity) -> None:
    (delivery,) = locked(sim, queue, make_message("m"))
    transaction, other = sim.transaction(), sim.transaction()
    transaction.settle(queue.main, [delivery.lock_token], COMPLETE, sim.now)
    assert isinstance(sim.settle(queue.main, [delivery]).errors[0], NotAllowed)
    answer: Answer[None] = Answer()
    queue.main.settle([delivery.lock_token], COMPLETE, sim.now, answer)
    assert isinstance(answer.error, NotAllowed)
    for twice in (transaction, other):
        with pytest.raises(NotAllowed, match="in a transaction"):
            twice.settle(queue.main, [delivery.lock_token], COMPLETE, sim.now)
    committed(sim, transaction)
    assert queue.main.counts().active == 0


def test_a_lock_that_ends_first_fails_the_whole_commit(sim: Simulation, queue: QueueEntity) -> None:
    (delivery,) = locked(sim, queue, make_message("m"))
    transaction = sim.transaction()
    transaction.settle(queue.main, [delivery.lock_token], COMPLETE, sim.now)
    send(sim, transaction, queue, make_message("new"))
    sim.advance(61_000)
    assert isinstance(commit(sim, transaction).error, MessageLockLost)
    assert ids(sim, queue) == ["m"]


def test_a_lock_may_be_renewed_inside_a_transaction(sim: Simulation, queue: QueueEntity) -> None:
    (delivery,) = locked(sim, queue, make_message("m"))
    transaction = sim.transaction()
    transaction.settle(queue.main, [delivery.lock_token], COMPLETE, sim.now)
    sim.advance(40_000)
    queue.main.renew([delivery.lock_token], sim.now, Answer[list[int]]())
    sim.advance(40_000)
    committed(sim, transaction)
    assert queue.main.counts().active == 0


def test_a_session_that_is_lost_first_fails_the_whole_commit(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", requires_session=True))
    sim.send(queue, make_message("m", session_id="s"))
    receiver = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "s").value)
    transaction = sim.transaction()
    transaction.settle(queue.main, [receiver.deliveries[0].lock_token], COMPLETE, sim.now)
    queue.main.detach(receiver, sim.now)
    assert isinstance(commit(sim, transaction).error, SessionLockLost)
    again = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "s").value)
    assert again.ids() == ["m"]


def test_dead_letters_are_sent_anew_to_their_own_queue_in_one_transaction(sim: Simulation, queue: QueueEntity) -> None:
    sim.settle(queue.main, locked(sim, queue, make_message("m")), DeadLetter("why"))
    (dead,) = sim.receiver(queue.dead_letter, 1).take()
    transaction = sim.transaction()
    transaction.settle(queue.dead_letter, [dead.lock_token], COMPLETE, sim.now)
    send(sim, transaction, queue, make_message("again"))
    committed(sim, transaction)
    assert (queue.dead_letter.counts().active, ids(sim, queue)) == (0, ["again"])


# Failures


@pytest.mark.rule("A7.2")
@pytest.mark.parametrize(("fault", "is_there"), [(Fault.FAIL_BEFORE, False), (Fault.LOSE_REPLY, True)])
def test_a_store_that_fails_has_all_of_it_or_nothing(
    sim: Simulation, queue: QueueEntity, fault: Fault, is_there: bool
) -> None:
    (delivery,) = locked(sim, queue, make_message("old"))
    transaction = sim.transaction()
    transaction.settle(queue.main, [delivery.lock_token], COMPLETE, sim.now)
    send(sim, transaction, queue, make_message("new"))
    sim.ports[0].next_fault = fault
    assert isinstance(commit(sim, transaction).error, FragmentUnavailable)
    sim.return_store(0)
    assert ids(sim, queue) == (["new"] if is_there else ["old"])


@pytest.mark.rule("A7.2")
def test_a_crash_before_the_commit_leaves_nothing_of_it(sim: Simulation, queue: QueueEntity) -> None:
    (delivery,) = locked(sim, queue, make_message("old"))
    transaction = sim.transaction()
    transaction.settle(queue.main, [delivery.lock_token], COMPLETE, sim.now)
    send(sim, transaction, queue, make_message("new"))
    sim.restart()
    assert ids(sim, sim.entities.queue("q")) == ["old"]


def test_a_store_that_was_lost_meanwhile_took_the_locks_with_it(sim: Simulation, queue: QueueEntity) -> None:
    (delivery,) = locked(sim, queue, make_message("old"))
    transaction = sim.transaction()
    transaction.settle(queue.main, [delivery.lock_token], COMPLETE, sim.now)
    sim.lose_store(0)
    sim.return_store(0)
    assert isinstance(commit(sim, transaction).error, MessageLockLost)
    assert ids(sim, queue) == ["old"]


def test_an_entity_that_was_disabled_meanwhile_fails_the_commit(sim: Simulation, queue: QueueEntity) -> None:
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("m"))
    sim.entities.update(QueueDescription("q", status=EntityStatus.SEND_DISABLED), sim.now, Answer[None]())
    assert isinstance(commit(sim, transaction).error, EntityDisabled)
    with pytest.raises(EntityDisabled):
        send(sim, sim.transaction(), queue, make_message("m"))


def test_an_operation_that_failed_unheard_dooms_the_whole(sim: Simulation, queue: QueueEntity) -> None:
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("m"))
    transaction.doom(QuotaExceeded("too much"))
    assert isinstance(commit(sim, transaction).error, QuotaExceeded)
    assert ids(sim, queue) == []


def test_a_transaction_is_discharged_once(sim: Simulation, queue: QueueEntity) -> None:
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("m"))
    commit(sim, transaction)
    assert isinstance(commit(sim, transaction).error, TransactionUnknown)
    with pytest.raises(TransactionUnknown):
        send(sim, transaction, queue, make_message("n"))
    assert ids(sim, queue) == ["m"]


def test_sending_nothing_keeps_a_transaction_in_no_fragment_and_no_entity(sim: Simulation, queue: QueueEntity) -> None:
    transaction = sim.transaction()
    assert transaction.send(queue, [], sim.now) == NO_FRAGMENT
    closed = sim.queue(QueueDescription("closed", status=EntityStatus.SEND_DISABLED))
    with pytest.raises(EntityDisabled):
        send(sim, transaction, closed)
    other = sim.queue(QueueDescription("other"))
    send(sim, transaction, other, make_message("m"))
    committed(sim, transaction)
    assert ids(sim, other) == ["m"]
    with pytest.raises(TransactionUnknown):
        send(sim, transaction, queue)


def test_an_empty_transaction_commits(sim: Simulation) -> None:
    assert commit(sim, sim.transaction()).value is None


# Limits


@pytest.mark.rule("A7.12")
def test_a_transaction_holds_100_messages_and_refuses_the_next(sim: Simulation, queue: QueueEntity) -> None:
    deliveries = locked(sim, queue, *[make_message(str(number)) for number in range(2)])
    transaction = sim.transaction()
    send(sim, transaction, queue, *[make_message(f"new-{number}") for number in range(MESSAGES_MAX - 1)])
    transaction.settle(queue.main, [deliveries[0].lock_token], COMPLETE, sim.now)
    with pytest.raises(QuotaExceeded, match="at most 100 messages"):
        send(sim, transaction, queue, make_message("more"))
    with pytest.raises(QuotaExceeded, match="at most 100 messages"):
        transaction.settle(queue.main, [deliveries[1].lock_token], COMPLETE, sim.now)
    committed(sim, transaction)
    assert MESSAGES_MAX == 100
    assert len(ids(sim, queue)) == 99
    assert sim.settle(queue.main, [deliveries[1]]).good == {0}


@pytest.mark.rule("A7.12")
def test_two_minutes_after_its_first_operation_a_transaction_is_rolled_back(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", lock_duration=300_000))
    (delivery,) = locked(sim, queue, make_message("m"))
    transaction = sim.transaction()
    sim.advance(60_000)
    transaction.settle(queue.main, [delivery.lock_token], COMPLETE, sim.now)
    sim.advance(DURATION_MAX - 1)
    assert not sim.settle(queue.main, [delivery]).good
    sim.advance(1)
    assert sim.settle(queue.main, [delivery]).good == {0}
    error = commit(sim, transaction).error
    assert isinstance(error, TransactionTimeout)
    assert (DURATION_MAX, error.condition) == (120_000, "amqp:transaction:timeout")
    assert "for 2 minutes" in str(error)


def test_a_transaction_commits_just_before_its_two_minutes_are_over(sim: Simulation, queue: QueueEntity) -> None:
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("m"))
    sim.advance(DURATION_MAX - 1)
    committed(sim, transaction)
    assert ids(sim, queue) == ["m"]


def test_transactions_that_are_over_leave_no_timers_behind(sim: Simulation, queue: QueueEntity) -> None:
    timers = sim.brokers[0].transaction_deadlines
    for number in range(10):
        transaction = sim.transaction()
        send(sim, transaction, queue, make_message(str(number)))
        assert len(timers) == 1
        sim.advance(DURATION_MAX - 1 if number == 5 else 1_000)
        committed(sim, transaction)
        assert len(timers) == 0
    assert len(ids(sim, queue)) == 10


def test_each_transaction_has_its_own_two_minutes(sim: Simulation, queue: QueueEntity) -> None:
    first, second, third = sim.transaction(), sim.transaction(), sim.transaction()
    for transaction in (first, second, third):
        send(sim, transaction, queue, make_message("m"))
        sim.advance(50_000)
    second.rollback()
    assert isinstance(commit(sim, first).error, TransactionTimeout)
    assert len(sim.brokers[0].transaction_deadlines) == 1
    sim.advance(DURATION_MAX - 50_001)
    committed(sim, third)


def test_a_full_entity_refuses_at_once_and_again_at_the_commit(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", max_size_mb=1))
    half = b"x" * 600_000
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("a", body=half))
    with pytest.raises(QuotaExceeded):
        send(sim, transaction, queue, make_message("b", body=half))
    sim.send(queue, make_message("c", body=half))
    assert isinstance(commit(sim, transaction).error, QuotaExceeded)
    assert ids(sim, queue) == ["c"]


@pytest.mark.rule("A7.3")
def test_a_transaction_does_not_reach_a_second_entity(sim: Simulation, queue: QueueEntity) -> None:
    other = sim.queue(QueueDescription("other"))
    (elsewhere,) = locked(sim, other, make_message("m"))
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("a"))
    with pytest.raises(NotAllowed, match=r"within one entity.*Send via 'q'") as refusal:
        send(sim, transaction, other, make_message("b"))
    assert refusal.value.condition == NOT_ALLOWED
    with pytest.raises(NotAllowed, match="within one entity"):
        transaction.settle(other.main, [elsewhere.lock_token], COMPLETE, sim.now)
    committed(sim, transaction)
    assert (ids(sim, queue), ids(sim, other)) == (["a"], [])


# Partitioned entities


def test_messages_with_one_key_are_committed_on_a_partitioned_entity(
    partitioned: tuple[Simulation, QueueEntity],
) -> None:
    sim, queue = partitioned
    (delivery,) = locked(sim, queue, make_message("old", partition_key="order-1"))
    transaction = sim.transaction()
    transaction.settle(queue.main, [delivery.lock_token], COMPLETE, sim.now)
    send(sim, transaction, queue, make_message("a", partition_key="order-1"), make_message("b", session_id="order-1"))
    committed(sim, transaction)
    assert queue.main.fragments[13].tally.active_count == 2
    assert ids(sim, queue) == ["a", "b"]


@pytest.mark.rule("A7.4")
@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (make_message("a"), None, "needs a session id or a partition key"),
        (make_message("a", partition_key="k"), make_message("b"), "needs a session id or a partition key"),
        (make_message("a", partition_key="k"), make_message("b", partition_key="l"), "the same session id"),
        (make_message("a", session_id="k"), make_message("b", session_id="l"), "the same session id"),
        (make_message("a", session_id="k"), make_message("b", partition_key="l"), "the same session id"),
        (make_message("a", session_id="k", partition_key="l"), None, "differs from the session id"),
    ],
)
def test_missing_and_different_keys_are_refused_on_a_partitioned_entity(
    partitioned: tuple[Simulation, QueueEntity], first: Message, second: Message | None, words: str
) -> None:
    sim, queue = partitioned
    apart, together = sim.transaction(), sim.transaction()
    with pytest.raises(NotAllowed, match=words) as refusal:
        send(sim, together, queue, *([first] if second is None else [first, second]))
    assert (refusal.value.condition, together.size_bytes) == (NOT_ALLOWED, 0)
    if second is not None:
        send(sim, apart, queue, first)
        with pytest.raises(NotAllowed, match=words):
            send(sim, apart, queue, second)
        committed(sim, apart)
        assert ids(sim, queue) == ["a"]


def test_a_settlement_counts_with_its_key_on_a_partitioned_entity(
    partitioned: tuple[Simulation, QueueEntity],
) -> None:
    sim, queue = partitioned
    (first,) = locked(sim, queue, make_message("a", partition_key="k"))
    (other,) = locked(sim, queue, make_message("b", partition_key="l"))
    (keyless,) = locked(sim, queue, make_message("c"))
    transaction = sim.transaction()
    transaction.settle(queue.main, [first.lock_token], COMPLETE, sim.now)
    with pytest.raises(NotAllowed, match="the same session id"):
        transaction.settle(queue.main, [other.lock_token], COMPLETE, sim.now)
    with pytest.raises(NotAllowed, match="needs a session id"):
        transaction.settle(queue.main, [keyless.lock_token], COMPLETE, sim.now)
    with pytest.raises(NotAllowed, match="the same session id"):
        send(sim, transaction, queue, make_message("d", partition_key="l"))
    committed(sim, transaction)
    assert queue.main.counts().active == 2


def test_where_duplicates_are_detected_the_message_id_is_a_key() -> None:
    sim = Simulation(16)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True, requires_duplicate_detection=True))
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("a"))
    with pytest.raises(NotAllowed, match="the same session id"):
        send(sim, transaction, queue, make_message("b"))
    committed(sim, transaction)
    assert ids(sim, queue) == ["a"]


def test_a_fragment_without_a_store_refuses_what_is_pinned_to_it(
    partitioned: tuple[Simulation, QueueEntity],
) -> None:
    sim, queue = partitioned
    sim.lose_store(13)
    with pytest.raises(FragmentUnavailable):
        send(sim, sim.transaction(), queue, make_message("a", partition_key="order-1"))
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("a", partition_key="order-2"))
    committed(sim, transaction)


def test_a_message_of_a_session_whose_lock_has_ended_cannot_be_settled_though_nobody_was_told(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("s", requires_session=True, lock_duration=30_000))
    sim.send(queue, make_message("m", session_id="x"))
    lock = sim.accept(queue.main, "x").value
    receiver = sim.receiver(queue.main, 1, session=lock)
    (delivery,) = receiver.take()
    sim.clock.advance(30_000)
    with pytest.raises(SessionLockLost):
        sim.transaction().settle(queue.main, [delivery.lock_token], COMPLETE, sim.now, session=lock)


def test_nothing_is_settled_by_no_token(sim: Simulation, queue: QueueEntity) -> None:
    with pytest.raises(MessageLockLost):
        sim.transaction().settle(queue.main, [], COMPLETE, sim.now)


def test_the_state_of_a_session_is_set_at_the_home_of_a_transaction_alone(sim: Simulation, queue: QueueEntity) -> None:
    other = sim.queue(QueueDescription("s", requires_session=True))
    sim.send(other, make_message("m", session_id="x"))
    assert sim.accept(other.main, "x").value.is_held
    with pytest.raises(NotAllowed, match="'s'"):
        sim.transaction().set_session_state(other.main, "x", b"state", sim.now, queue)


@pytest.mark.one_node("asked of one message broker")
def test_a_message_broker_has_open_work_while_a_transaction_is_open(sim: Simulation, queue: QueueEntity) -> None:
    (broker,) = sim.brokers
    assert not broker.has_open_work
    transaction = sim.transaction()
    send(sim, transaction, queue, make_message("m"))
    assert broker.has_open_work
    committed(sim, transaction)
    assert not broker.has_open_work
