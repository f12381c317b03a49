"""Transactions with a home: what they send to other entities is kept at home and transferred (docs/contract.md A7)."""

import pytest

from twinbus.broker.consumer import TakenMessage
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.outcomes import COMPLETE
from twinbus.errors import EntityDisabled, EntityNotFound, FragmentUnavailable, NotAllowed
from twinbus.model.content import application_properties
from twinbus.model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import Message
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, SimTransaction, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


def took(sim: Simulation, queue: MessageQueue) -> TakenMessage:
    """The first message of a queue, locked."""
    receiver = sim.receiver(queue, 1)
    queue.detach(receiver, sim.now)
    (delivery,) = receiver.take()
    return delivery


def commit(sim: Simulation, transaction: SimTransaction) -> Answer[None]:
    answer: Answer[None] = Answer()
    transaction.commit(sim.now, answer)
    sim.run()
    return answer


def ids(sim: Simulation, queue: MessageQueue) -> list[str]:
    return sorted(sim.receiver(queue, 99).ids())


def cross(
    sim: Simulation, home: QueueEntity | TopicEntity, queue: MessageQueue, *targets: QueueEntity | TopicEntity
) -> SimTransaction:
    """Settles the first message of a queue and sends `out` to the targets."""
    delivery, transaction = took(sim, queue), sim.transaction()
    transaction.settle(queue, [delivery.lock_token], COMPLETE, sim.now, home)
    for target in targets:
        transaction.send(target, [make_message("out")], sim.now, home)
    return transaction


@pytest.mark.rule("A7.8")
@pytest.mark.parametrize("is_committed", [True, False])
def test_sends_to_other_entities_happen_with_the_settlement_at_home_or_not_at_all(
    sim: Simulation, is_committed: bool
) -> None:
    home, one = sim.queue(QueueDescription("home")), sim.queue(QueueDescription("one"))
    news = sim.topic(TopicDescription("news"))
    reader = sim.subscription(SubscriptionDescription("news", "reader"))
    sim.send(home, make_message("in"))
    transaction = cross(sim, home, home.main, one, news, home)
    assert (one.main.counts().active, home.transfer_counts().active) == (0, 0)
    if is_committed:
        assert commit(sim, transaction).value is None
    else:
        transaction.rollback()
        sim.advance(61_000)
    there = ["out"] if is_committed else []
    assert ids(sim, one.main) == ids(sim, reader.main) == there
    assert ids(sim, home.main) == (["out"] if is_committed else ["in"])


@pytest.mark.rule("A7.9")
def test_a_settlement_on_another_entity_than_the_home_is_refused(sim: Simulation) -> None:
    home, third = sim.queue(QueueDescription("home")), sim.queue(QueueDescription("third"))
    sim.send(third, make_message("m"))
    transaction, delivery = sim.transaction(), took(sim, third.main)
    with pytest.raises(NotAllowed, match="on 'home', the first entity that it used, and can only send to 'third'"):
        transaction.settle(third.main, [delivery.lock_token], COMPLETE, sim.now, home)
    with pytest.raises(NotAllowed):
        transaction.send(third.via("home"), [make_message("m")], sim.now, home)
    cancelled: Answer[None] = Answer()
    transaction.cancel_scheduled(third, [1], sim.now, cancelled, home)
    assert isinstance(cancelled.error, NotAllowed)
    assert commit(sim, transaction).value is None


def test_a_subscription_and_its_topic_are_one_home(sim: Simulation) -> None:
    news, other = sim.topic(TopicDescription("news")), sim.queue(QueueDescription("other"))
    reader = sim.subscription(SubscriptionDescription("news", "reader"))
    sim.send(news, make_message("in"))
    assert commit(sim, cross(sim, news, reader.main, other, news)).value is None
    assert ids(sim, other.main) == ids(sim, reader.main) == ["out"]


@pytest.mark.rule("A7.3")
def test_a_send_to_a_topic_and_a_settlement_on_its_subscription_share_a_transaction(sim: Simulation) -> None:
    news = sim.topic(TopicDescription("news", enable_partitioning=True))
    reader = sim.subscription(SubscriptionDescription("news", "reader"))
    sim.send(news, make_message("in", partition_key="k"))
    delivery, transaction = took(sim, reader.main), sim.transaction()
    transaction.send(news, [make_message("out", partition_key="k")], sim.now)
    transaction.settle(reader.main, [delivery.lock_token], COMPLETE, sim.now)
    assert commit(sim, transaction).value is None
    assert ids(sim, reader.main) == ["out"]


@pytest.mark.rule("A7.7")
@pytest.mark.parametrize("is_sent_first", [True, False])
def test_on_a_partitioned_home_transfers_go_into_the_fragment_that_the_transaction_is_in(
    sim: Simulation, is_sent_first: bool
) -> None:
    """A message with a via-partition-key alone lies in any fragment, and the key would choose fragment 11 for transfers."""
    home = sim.queue(QueueDescription("home", enable_partitioning=True))
    target = sim.queue(QueueDescription("target", enable_partitioning=True))
    sim.send(home, make_message("in", via_partition_key="order-2"))
    delivery, transaction = took(sim, home.main), sim.transaction()
    index = delivery.message.sequence_number >> 48
    assert index != 11

    def send() -> None:
        transaction.send(target, [make_message("out", via_partition_key="order-2")], sim.now, home)

    if is_sent_first:
        send()
    transaction.settle(home.main, [delivery.lock_token], COMPLETE, sim.now, home)
    if not is_sent_first:
        send()
    with pytest.raises(NotAllowed, match="via-partition-key"):
        transaction.send(target, [make_message("no key")], sim.now, home)
    message = make_message("other key", via_partition_key="order-1")
    with pytest.raises(NotAllowed, match="the same session id"):
        transaction.send(target, [message], sim.now, home)
    assert commit(sim, transaction).value is None
    assert [part.tally.last_number & 0xFFFF for part in home.transfers.fragments] == [
        1 if place == index else 0 for place in range(16)
    ]
    assert ids(sim, target.main) == ["out"]


def test_messages_in_different_fragments_do_not_share_a_transaction_even_with_one_key(sim: Simulation) -> None:
    home = sim.queue(QueueDescription("home", enable_partitioning=True))
    for name in ("a", "b"):
        sim.send(home, make_message(name, via_partition_key="k"))
    first, second, transaction = took(sim, home.main), took(sim, home.main), sim.transaction()
    transaction.settle(home.main, [first.lock_token], COMPLETE, sim.now)
    with pytest.raises(NotAllowed, match="different fragments"):
        transaction.settle(home.main, [second.lock_token], COMPLETE, sim.now)


def test_a_home_that_takes_no_messages_still_transfers_and_the_target_is_asked(sim: Simulation) -> None:
    home, target = sim.queue(QueueDescription("home")), sim.queue(QueueDescription("target"))
    shut = sim.queue(QueueDescription("shut", status=EntityStatus.SEND_DISABLED))
    sim.send(home, make_message("in"))
    home.follow_description(QueueDescription("home", status=EntityStatus.SEND_DISABLED), sim.now)
    transaction = cross(sim, home, home.main, target)
    with pytest.raises(EntityDisabled):
        transaction.send(shut, [make_message("x")], sim.now, home)
    with pytest.raises(EntityDisabled):
        transaction.send(home, [make_message("x")], sim.now, home)
    assert commit(sim, transaction).value is None
    assert ids(sim, target.main) == ["out"]


def test_the_commit_fails_when_the_home_was_deleted_meanwhile(sim: Simulation) -> None:
    home, target = sim.queue(QueueDescription("home")), sim.queue(QueueDescription("target"))
    transaction = sim.transaction()
    transaction.send(target, [make_message("out")], sim.now, home)
    deleted: Answer[None] = Answer()
    sim.entities.delete("home", sim.now, deleted)
    sim.run()
    assert isinstance(commit(sim, transaction).error, EntityNotFound)
    assert target.main.counts().active == 0


@pytest.mark.rule("A7.6")
@pytest.mark.parametrize("detects_duplicates", [True, False])
def test_a_crash_between_the_commit_and_the_transfer_loses_nothing_and_doubles_nothing_where_duplicates_are_detected(
    detects_duplicates: bool,
) -> None:
    """The home and the target are in stores of their own; the process ends at each step of the transfer."""
    is_doubled = False
    for steps in range(8):
        sim = Simulation(2)
        home = sim.queue(QueueDescription("home"))
        target = sim.queue(QueueDescription("target", requires_duplicate_detection=detects_duplicates))
        sim.send(home, make_message("in"))
        transaction, answer = cross(sim, home, home.main, target), Answer[None]()
        transaction.commit(sim.now, answer)
        for _ in range(steps):
            any(port.step() for port in sim.ports)
        is_certain = answer.has_come
        sim.restart()
        sim.advance(2_000, 500)
        arrived, left = ids(sim, sim.entities.queue("target").main), ids(sim, sim.entities.queue("home").main)
        is_doubled = is_doubled or len(arrived) > 1
        assert set(arrived) == (set() if left else {"out"}), f"after {steps} steps"
        assert not (is_certain and left)
        assert len(arrived) <= 2
    assert is_doubled is not detects_duplicates


@pytest.mark.rule("A7")
@pytest.mark.parametrize(("fault", "is_there"), [(Fault.FAIL_BEFORE, False), (Fault.LOSE_REPLY, True)])
def test_a_store_that_fails_has_the_settlement_and_the_transfer_or_neither(
    sim: Simulation, fault: Fault, is_there: bool
) -> None:
    home, target = sim.queue(QueueDescription("home")), sim.queue(QueueDescription("target"))
    sim.send(home, make_message("in"))
    transaction, index = cross(sim, home, home.main, target), home.main.fragments[0].broker.index
    sim.ports[index].next_fault = fault
    assert isinstance(commit(sim, transaction).error, FragmentUnavailable)
    sim.return_store(index)
    sim.advance(2_000, 500)
    assert (ids(sim, home.main), ids(sim, target.main)) == (([], ["out"]) if is_there else (["in"], []))


# Via topics


@pytest.mark.rule("A7.6")
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_messages_are_sent_via_a_topic_as_via_a_queue(sim: Simulation, is_partitioned: bool) -> None:
    via = sim.topic(TopicDescription("via", enable_partitioning=is_partitioned))
    reader = sim.subscription(SubscriptionDescription("via", "reader"))
    target = sim.queue(QueueDescription("target"))
    transaction = sim.transaction()
    transaction.send(via.via("target"), [_keyed("a")], sim.now)
    transaction.send(via, [_keyed("b")], sim.now)
    assert commit(sim, transaction).value is None
    assert (ids(sim, target.main), ids(sim, reader.main)) == (["a"], ["b"])
    assert via.transfer_counts().active == 0


def test_what_a_topic_cannot_transfer_ends_in_its_transfer_dead_letter_queue(sim: Simulation) -> None:
    via = sim.topic(TopicDescription("via"))
    transaction = sim.transaction()
    transaction.send(via.via("missing"), [make_message("a")], sim.now)
    assert commit(sim, transaction).value is None
    (delivery,) = sim.receiver(via.transfer_dead_letter, 9).take()
    assert application_properties(delivery.message.content)["DeadLetterReason"] == "EntityNotFound"
    assert delivery.locked_until == sim.now + 60_000


def test_what_waits_in_a_topic_for_its_transfer_survives_a_restart(sim: Simulation) -> None:
    via = sim.topic(TopicDescription("via"))
    target = sim.queue(QueueDescription("target"))
    lost = target.main.fragments[0].broker.index
    assert lost != via.main_fragments[0].broker.index
    sim.lose_store(lost)
    transaction = sim.transaction()
    transaction.send(via.via("target"), [make_message("m")], sim.now)
    commit(sim, transaction)
    assert via.transfer_counts().active == 1
    sim.ports[lost].reopen()
    sim.restart()
    sim.advance(2_000, 500)
    assert ids(sim, sim.entities.queue("target").main) == ["m"]


def _keyed(name: str) -> Message:
    return make_message(name, partition_key="k", via_partition_key="k")


# What the home is like does not matter to what it only passes on


@pytest.mark.rule("A7.6")
@pytest.mark.parametrize("is_via", [False, True])
@pytest.mark.parametrize("time_to_live", [None, 2_000])
def test_what_waits_for_its_transfer_does_not_expire(sim: Simulation, is_via: bool, time_to_live: int | None) -> None:
    """It was acknowledged, and its time to live counts at the destination."""
    home = sim.queue(QueueDescription("home", default_time_to_live=1_000))
    target = sim.queue(QueueDescription("target"))
    lost = target.main.fragments[0].broker.index
    assert lost != home.main.fragments[0].broker.index
    sim.lose_store(lost)
    transaction, message = sim.transaction(), make_message("m", time_to_live=time_to_live)
    if is_via:
        transaction.send(home.via("target"), [message], sim.now)
    else:
        transaction.send(target, [message], sim.now, home)
    assert commit(sim, transaction).value is None
    sim.advance(10_000, 500)
    sim.return_store(lost)
    sim.advance(1_500, 500)
    assert ids(sim, target.main) == ["m"]


@pytest.mark.rule("A7")
def test_a_home_with_message_sessions_and_duplicate_detection_passes_on_what_has_neither(sim: Simulation) -> None:
    home = sim.queue(QueueDescription("home", requires_session=True, requires_duplicate_detection=True))
    one, two = sim.queue(QueueDescription("one")), sim.queue(QueueDescription("two", requires_session=True))
    sim.send(home, make_message("same", session_id="s"))
    lock = sim.accept(home.main, "s").value
    receiver = sim.receiver(home.main, 1, session=lock)
    (delivery,) = receiver.take()
    transaction = sim.transaction()
    transaction.settle(home.main, [delivery.lock_token], COMPLETE, sim.now, home)
    transaction.send(one, [make_message("same"), make_message("same")], sim.now, home)
    transaction.send(two, [make_message("same", session_id="other")], sim.now, home)
    assert commit(sim, transaction).value is None
    assert ids(sim, one.main) == ["same", "same"]
    other = sim.accept(two.main, "other").value
    assert sim.receiver(two.main, 9, session=other).ids() == ["same"]
