"""Sending via another entity: the queue between takes it, and hands it on by itself (contract A7, A11)."""

import pytest

from twinbus.broker.entity.forwarding import RUN_MAX
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.outcomes import COMPLETE
from twinbus.errors import NotAllowed
from twinbus.model.content import annotation, application_properties
from twinbus.model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import Message, sent_size
from twinbus.model.message_limits import LARGE_MESSAGE_KB_MAX, MESSAGE_SIZE_MAX
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, EachReply, SimTransaction, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


def send_via(sim: Simulation, queue: QueueEntity, destination: str, *messages: Message) -> EachReply:
    reply = EachReply()
    queue.via(destination).send_each(messages, sim.now, reply)
    sim.run()
    return reply


def committed(sim: Simulation, transaction: SimTransaction) -> None:
    answer: Answer[None] = Answer()
    transaction.commit(sim.now, answer)
    sim.run()
    assert answer.value is None


def waiting(queue: QueueEntity) -> int:
    return sum(fragment.tally.active_count for fragment in queue.transfers.fragments)


def test_what_is_sent_via_a_queue_arrives_at_its_destination_in_order_and_unchanged(sim: Simulation) -> None:
    via, target = sim.queue(QueueDescription("via")), sim.queue(QueueDescription("target"))
    names = [str(number) for number in range(3 * RUN_MAX)]
    reply = send_via(sim, via, "Target", *[make_message(name) for name in names])
    assert len(reply.good) == len(names)
    receiver = sim.receiver(target.main, 500)
    assert annotation(receiver.deliveries[0].message.content, "x-opt-transfer-destination") is None
    assert receiver.ids() == names
    assert (via.main.counts().active, waiting(via)) == (0, 0)


def test_a_queue_is_a_way_to_several_destinations_and_to_topics(sim: Simulation) -> None:
    via, one = sim.queue(QueueDescription("via")), sim.queue(QueueDescription("one"))
    sim.topic(TopicDescription("news"))
    reader = sim.subscription(SubscriptionDescription("news", "reader"))
    for name in ("a", "b", "c"):
        send_via(sim, via, "one" if name == "b" else "news", make_message(name))
    assert sim.receiver(one.main, 9).ids() == ["b"]
    assert sim.receiver(reader.main, 9).ids() == ["a", "c"]


def test_a_message_moves_on_in_one_transaction_with_the_completion_of_its_cause(sim: Simulation) -> None:
    via, target = sim.queue(QueueDescription("via")), sim.queue(QueueDescription("target"))
    sim.send(via, make_message("order"))
    (order,) = sim.receiver(via.main, 1).take()
    transaction = sim.transaction()
    transaction.settle(via.main, [order.lock_token], COMPLETE, sim.now)
    transaction.send(via.via("target"), [make_message("invoice")], sim.now)
    transaction.send(via.via("elsewhere"), [make_message("lost")], sim.now)
    transaction.send(via, [make_message("reminder")], sim.now)
    assert sim.receiver(target.main, 9).deliveries == []
    committed(sim, transaction)
    assert target.main.counts().active == 1
    assert (via.main.counts().active, via.transfer_dead_letter.counts().active) == (1, 1)


def test_nothing_is_transferred_after_a_rollback(sim: Simulation) -> None:
    via, target = sim.queue(QueueDescription("via")), sim.queue(QueueDescription("target"))
    transaction = sim.transaction()
    transaction.send(via.via("target"), [make_message("m")], sim.now)
    transaction.rollback()
    sim.run()
    assert (waiting(via), target.main.counts().active) == (0, 0)


@pytest.mark.parametrize("status", [None, EntityStatus.SEND_DISABLED])
def test_what_cannot_be_delivered_ends_in_the_transfer_dead_letter_queue(
    sim: Simulation, status: EntityStatus | None
) -> None:
    via = sim.queue(QueueDescription("via"))
    if status is not None:
        sim.queue(QueueDescription("target", status=status))
    send_via(sim, via, "target", make_message("m"))
    (delivery,) = sim.receiver(via.transfer_dead_letter, 9).take()
    reason = application_properties(delivery.message.content)["DeadLetterReason"]
    assert reason == ("EntityNotFound" if status is None else "EntityDisabled")
    assert annotation(delivery.message.content, "x-opt-transfer-destination") == "target"


@pytest.mark.rule("A7.7")
def test_the_via_partition_key_chooses_the_fragment_and_the_own_key_counts_at_the_destination(sim: Simulation) -> None:
    via = sim.queue(QueueDescription("via", enable_partitioning=True))
    target = sim.queue(QueueDescription("target", enable_partitioning=True))
    home = target.main.fragments[13].broker.index  # of order-1
    sim.lose_store(home)
    send_via(sim, via, "target", make_message("m", partition_key="order-1", via_partition_key="order-2"))
    assert via.transfers.fragments[11].tally.active_count == 1
    assert (via.transfer_counts().active, via.holdings().transfer.active) == (1, 1)
    sim.return_store(home)
    sim.advance(2_000, 500)
    assert (waiting(via), target.main.fragments[13].tally.active_count) == (0, 1)


def test_on_a_partitioned_queue_the_via_partition_key_is_the_key_of_the_transaction(sim: Simulation) -> None:
    via, target = sim.queue(QueueDescription("via", enable_partitioning=True)), sim.queue(QueueDescription("target"))
    way = via.via("target")
    sim.send(via, make_message("cause", partition_key="order-1"))
    (cause,) = sim.receiver(via.main, 1).take()
    transaction = sim.transaction()
    transaction.settle(via.main, [cause.lock_token], COMPLETE, sim.now)
    for refused, words in (
        (make_message("a", partition_key="order-1"), "via-partition-key"),
        (make_message("b", via_partition_key="order-2"), "the same session id"),
    ):
        with pytest.raises(NotAllowed, match=words):
            transaction.send(way, [refused], sim.now)
    good = make_message("c", session_id="of the destination", via_partition_key="order-1")
    transaction.send(way, [good], sim.now)
    committed(sim, transaction)
    assert sim.receiver(target.main, 9).ids() == ["c"]
    assert via.main.counts().active == 0


def test_a_session_is_asked_for_by_the_destination_and_not_on_the_way(sim: Simulation) -> None:
    via = sim.queue(QueueDescription("via", requires_session=True))
    target = sim.queue(QueueDescription("target"))
    strict = sim.queue(QueueDescription("strict", requires_session=True))
    send_via(sim, via, "target", make_message("m"))
    send_via(sim, via, "strict", make_message("n"))
    assert sim.receiver(target.main, 9).ids() == ["m"]
    assert (strict.main.counts().active, via.transfer_dead_letter.counts().active) == (0, 1)


def test_a_scheduled_message_waits_for_its_time_at_the_destination(sim: Simulation) -> None:
    via, target = sim.queue(QueueDescription("via")), sim.queue(QueueDescription("target"))
    send_via(sim, via, "target", make_message("m", scheduled_at=sim.now + 10_000))
    assert (waiting(via), target.main.counts().scheduled) == (0, 1)


def test_what_waits_for_its_transfer_survives_a_restart(sim: Simulation) -> None:
    via = sim.queue(QueueDescription("via"))
    target = sim.queue(QueueDescription("target", enable_partitioning=True))
    home = target.main.fragments[13].broker.index  # of order-1
    sim.lose_store(home)
    send_via(sim, via, "target", make_message("m", partition_key="order-1"))
    assert waiting(via) == 1
    sim.ports[home].reopen()
    sim.restart()
    sim.advance(2_000, 500)
    assert sim.receiver(sim.entities.queue("target").main, 9).ids() == ["m"]


def test_where_a_message_is_to_go_does_not_make_it_too_large_for_it(sim: Simulation) -> None:
    via = sim.queue(QueueDescription("via", max_message_size_kb=LARGE_MESSAGE_KB_MAX))
    target = sim.queue(QueueDescription("target"))
    message = make_message("m", body=bytes(MESSAGE_SIZE_MAX - 100))
    spare = MESSAGE_SIZE_MAX - sent_size(message.content)
    send_via(sim, via, "target", make_message("m", body=bytes(MESSAGE_SIZE_MAX - 100 + spare)))
    assert sim.receiver(target.main, 1).ids() == ["m"]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_transfer_goes_on_after_either_store_was_lost_in_its_middle(lost: int) -> None:
    sim = Simulation(2)
    via, target = sim.queue(QueueDescription("via")), sim.queue(QueueDescription("target"))
    stores = [queue.main.fragments[0].broker.index for queue in (via, target)]
    sim.ports[stores[1]].is_hung = True
    reply = send_via(sim, via, "target", *[make_message(str(number)) for number in range(3)])
    assert (len(reply.good), waiting(via)) == (3, 3)
    sim.ports[stores[lost]].is_hung = False
    sim.lose_store(stores[lost])
    sim.ports[stores[1]].is_hung = False
    sim.run()
    sim.return_store(stores[lost])
    sim.advance(3_000, 500)
    assert waiting(via) == 0
    names = sim.receiver(target.main, 99).ids()
    assert list(dict.fromkeys(names)) == ["0", "1", "2"]
    if lost == 1:
        assert len(names) == 3


def test_a_batch_that_is_sent_via_a_queue_arrives_as_a_whole(sim: Simulation) -> None:
    via, target = sim.queue(QueueDescription("via")), sim.queue(QueueDescription("target"))
    answer: Answer[list[int]] = Answer()
    via.via("target").send_batch([make_message("a"), make_message("b")], sim.now, answer)
    sim.run()
    assert len(answer.value) == 2
    assert sim.receiver(target.main, 9).ids() == ["a", "b"]
