"""Auto-forwarding of messages and of dead-letters (contract A11)."""

from dataclasses import replace

import pytest

from twinbus.amqp.codec.sections import decode_sections
from twinbus.broker.consumer import TakenMessage
from twinbus.broker.entity.forwarding import RETRY_PAUSE, RUN_MAX
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.topic_placement import COPIES_AT_ONCE
from twinbus.broker.outcomes import DeadLetter
from twinbus.errors import NotAllowed, StoreUnavailable
from twinbus.model.content import application_properties
from twinbus.model.delivery import encode_delivery
from twinbus.model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.hops import HOPS_MAX
from twinbus.model.message import read_content, sent_size
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, EachReply, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


def reason_of(delivery: TakenMessage) -> object:
    return application_properties(delivery.message.content)["DeadLetterReason"]


def only(sim: Simulation, queue: MessageQueue) -> TakenMessage:
    (delivery,) = sim.receiver(queue, 9).take()
    return delivery


@pytest.mark.rule("A11.1")
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_messages_are_forwarded_in_order_and_keep_their_first_number(sim: Simulation, is_partitioned: bool) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_to="Target", enable_partitioning=is_partitioned))
    sim.send(source, *[make_message(str(number), partition_key="k") for number in range(200)])
    receiver = sim.receiver(target.main, 500)
    assert [delivery.message.enqueued_sequence_number & 0xFFFF for delivery in receiver.deliveries] == list(
        range(1, 201)
    )
    assert receiver.ids() == [str(number) for number in range(200)]
    assert source.main.counts().active == 0


@pytest.mark.rule("A11.3")
def test_the_key_counts_again_at_a_partitioned_destination(sim: Simulation) -> None:
    target = sim.queue(QueueDescription("target", enable_partitioning=True))
    source = sim.queue(QueueDescription("source", forward_to="target"))
    sim.send(source, make_message("m", partition_key="order-1"))
    assert target.main.fragments[13].tally.active_count == 1


def test_what_waited_is_forwarded_when_forwarding_is_switched_on(sim: Simulation) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source"))
    sim.send(source, make_message("m"))
    sim.entities.update(QueueDescription("source", forward_to="target"), sim.now, Answer[None]())
    sim.run()
    assert sim.receiver(target.main, 1).ids() == ["m"]


def test_nobody_receives_from_a_queue_that_forwards(sim: Simulation) -> None:
    sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_to="target"))
    with pytest.raises(NotAllowed, match="target"):
        sim.receiver(source.main, 1)


@pytest.mark.parametrize("forwarding", ["messages", "dead letters"])
def test_who_receives_from_a_queue_that_begins_to_forward_is_told_and_can_settle_what_he_has(
    sim: Simulation, forwarding: str
) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", enable_partitioning=True))
    queue = source.main if forwarding == "messages" else source.dead_letter
    sim.send(source, make_message("before"))
    if queue is not source.main:
        sim.settle(source.main, [only(sim, source.main)], DeadLetter())
    receiver = sim.receiver(queue, 500)
    held = receiver.take()
    description = QueueDescription(
        "source",
        enable_partitioning=True,
        forward_to="target" if queue is source.main else None,
        forward_dead_letters_to=None if queue is source.main else "target",
    )
    sim.entities.update(description, sim.now, Answer[None]())
    sim.run()
    with pytest.raises(NotAllowed, match="forwards its messages to 'target'"):
        raise receiver.lost or AssertionError("nobody told the receiver")
    assert sim.settle(queue, held).good == {0}
    sim.send(source, *[make_message(str(number)) for number in range(100)])
    assert receiver.ids() == []
    assert target.main.counts().active == (100 if queue is source.main else 0)


@pytest.mark.rule("A11.4")
@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (None, "EntityNotFound"),
        (QueueDescription("target", status=EntityStatus.SEND_DISABLED), "EntityDisabled"),
        (QueueDescription("target", max_size_mb=0), "QuotaExceeded"),
        (QueueDescription("target", requires_session=True), "NotAllowed"),
    ],
)
def test_a_target_that_cannot_take_it_sends_the_message_to_the_transfer_dead_letter_queue(
    sim: Simulation, target: QueueDescription | None, reason: str
) -> None:
    if target is not None:
        sim.queue(target)
    source = sim.queue(QueueDescription("source", forward_to="target"))
    sim.send(source, make_message("m"))
    dead = only(sim, source.transfer_dead_letter)
    assert reason_of(dead) == reason
    assert dead.message.enqueued_sequence_number == 1
    assert source.main.counts().active == 0


LARGE_KB = 2_048


@pytest.mark.rule("A11")
@pytest.mark.parametrize("size", [256 * 1024, 1_000_000])
def test_a_message_too_large_for_the_target_goes_to_the_transfer_dead_letter_queue(sim: Simulation, size: int) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_to="target", max_message_size_kb=LARGE_KB))
    sim.send(source, make_message("1"), make_message("2", body=bytes(size)), make_message("3"))
    dead = only(sim, source.transfer_dead_letter)
    assert reason_of(dead) == "MessageTooLarge"
    assert "'target' accepts messages of at most 262144 bytes" in str(
        application_properties(dead.message.content)["DeadLetterErrorDescription"]
    )
    assert sim.receiver(target.main, 9).ids() == ["1", "3"]
    assert source.main.counts().active == 0


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_message_may_be_as_large_as_the_target_takes(sim: Simulation, beyond: int) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_to="target", max_message_size_kb=LARGE_KB))
    around_body = sent_size(make_message("m", body=bytes(1_000)).content) - 1_000
    sim.send(source, make_message("m", body=bytes(256 * 1024 - around_body + beyond)))
    assert (target.main.counts().active, source.transfer_dead_letter.counts().active) == (1 - beyond, beyond)


@pytest.mark.parametrize("target", [QueueDescription("target"), TopicDescription("target")])
def test_a_subscription_forwards_what_the_target_takes(
    sim: Simulation, target: QueueDescription | TopicDescription
) -> None:
    if isinstance(target, QueueDescription):
        sim.queue(target)
    else:
        sim.topic(target)
    topic = sim.topic(TopicDescription("topic", max_message_size_kb=LARGE_KB))
    subscription = sim.subscription(SubscriptionDescription("topic", "on", forward_to="target"))
    sim.send(topic, make_message("large", body=bytes(1_000_000)), make_message("small", body=bytes(200_000)))
    assert message_id_of(only(sim, subscription.transfer_dead_letter).message.content) == "large"


def test_what_the_broker_writes_on_a_message_does_not_make_it_too_large(sim: Simulation) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_dead_letters_to="target"))
    message = make_message("m", body=bytes(256 * 1024 - 40))
    sim.send(source, message)
    why = DeadLetter("reason" * 100, "description" * 100)
    sim.settle(source.main, sim.receiver(source.main, 1).take(), why)
    assert sim.receiver(target.main, 1).ids() == ["m"]


def test_a_target_whose_store_is_unhealthy_gets_the_message_when_it_is_back(sim: Simulation) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_to="target"))
    store = target.main.fragments[0].broker.index
    sim.lose_store(store)
    sim.send(source, make_message("a"), make_message("b"))
    sim.advance(60_000, 500)
    assert source.main.counts().active == 2
    sim.return_store(store)
    sim.advance(2_000, 500)
    assert sim.receiver(target.main, 9).ids() == ["a", "b"]
    assert source.main.counts().active == source.transfer_dead_letter.counts().active == 0


@pytest.mark.rule("A11.5")
def test_a_target_that_cannot_be_reached_is_asked_again_after_a_pause(sim: Simulation) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_to="target"))
    store = target.main.fragments[0].broker.index
    sim.lose_store(store)
    sim.send(source, make_message("m"))
    sim.return_store(store)
    sim.advance(RETRY_PAUSE - 1)
    assert source.main.counts().active == 1
    sim.advance(1)
    assert source.main.counts().active == 0
    assert sim.receiver(target.main, 1).ids() == ["m"]


def test_only_one_run_is_held_while_the_target_cannot_be_reached(sim: Simulation) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_to="target"))
    store = target.main.fragments[0].broker.index
    sim.lose_store(store)
    sim.send(source, *[make_message(str(number)) for number in range(300)])
    sim.advance(10_000, 500)
    assert len(source.main.fragments[0].locks) <= RUN_MAX
    sim.return_store(store)
    sim.advance(2_000, 500)
    assert sim.receiver(target.main, 500).ids() == [str(number) for number in range(300)]


@pytest.mark.rule("A11.5")
@pytest.mark.parametrize("fault", list(Fault))
def test_a_message_is_forwarded_at_least_once_when_its_own_store_fails_meanwhile(sim: Simulation, fault: Fault) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_to="target"))
    store = source.main.fragments[0].broker.index
    port = sim.ports[store]
    port.is_hung = True
    sim.send(source, make_message("m"))
    port.is_hung = False
    port.step()  # durable at the source, and so on its way to the target
    port.next_fault = fault  # which hits the removal
    sim.run()
    sim.return_store(store)
    sim.advance(2_000, 500)
    names = sim.receiver(target.main, 9).ids()
    assert set(names) == {"m"}
    assert len(names) == (1 if fault is Fault.LOSE_REPLY else 2)
    assert source.main.counts().active == 0


@pytest.mark.one_node("which answers come in between is chosen by hand")
def test_a_refusal_that_comes_when_the_store_was_lost_and_is_back_moves_nothing_twice() -> None:
    sim = Simulation(2)
    source = sim.queue(QueueDescription("source"))
    topic = sim.topic(TopicDescription("full", max_size_mb=0))
    sim.send(source, make_message("m"))
    store = source.main.fragments[0].broker
    assert topic.main_fragments[0].broker is not store
    topic.send_batch([make_message("large")] * (COPIES_AT_ONCE + 1), sim.now, Answer[list[int]]())
    sim.entities.update(QueueDescription("source", forward_to="full"), sim.now, Answer[None]())
    assert len(source.main.fragments[0].locks) == 1, "it waits behind the batch, to be refused"
    store.store_lost(StoreUnavailable("gone"))
    store.store_returned()
    sim.ports[store.index].run()
    sim.run()
    assert reason_of(only(sim, source.transfer_dead_letter)) == "QuotaExceeded"
    assert source.main.counts().active == 0


def test_messages_waiting_to_be_forwarded_survive_a_restart(sim: Simulation) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_to="target"))
    sim.lose_store(target.main.fragments[0].broker.index)
    sim.send(source, make_message("m"))
    sim.restart()
    sim.advance(2_000, 500)
    assert sim.receiver(sim.entities.queue("target").main, 9).ids() == ["m"]


def chain(sim: Simulation, length: int) -> None:
    for number in range(length):
        sim.queue(QueueDescription(f"q{number}", forward_to=f"q{number + 1}"))
    sim.queue(QueueDescription(f"q{length}"))


@pytest.mark.rule("A11.7")
def test_a_message_goes_as_far_as_the_hop_limit(sim: Simulation) -> None:
    chain(sim, HOPS_MAX)
    sim.send(sim.entities.queue("q0"), make_message("m"))
    delivery = only(sim, sim.entities.queue(f"q{HOPS_MAX}").main)
    assert delivery.message.enqueued_sequence_number == 1
    assert delivery.message.delivery_count == 0


@pytest.mark.rule("A11.7", "A15.6")
def test_a_message_that_would_go_further_is_dead_lettered(sim: Simulation) -> None:
    chain(sim, HOPS_MAX + 1)
    sim.send(sim.entities.queue("q0"), make_message("m"))
    dead = only(sim, sim.entities.queue(f"q{HOPS_MAX}").dead_letter)
    assert reason_of(dead) == "MaxTransferHopCountExceeded"
    assert dead.message.enqueued_sequence_number == 1


def test_a_circle_of_queues_ends_at_the_hop_limit(sim: Simulation) -> None:
    one = sim.queue(QueueDescription("one", forward_to="two"))
    two = sim.queue(QueueDescription("two", forward_to="one"))
    sim.send(one, make_message("m"))
    assert one.dead_letter.counts().active + two.dead_letter.counts().active == 1
    assert one.main.counts().active == two.main.counts().active == 0


@pytest.mark.rule("A11.7")
def test_hops_count_on_through_a_topic_and_do_not_show_at_its_other_subscriptions(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("t"))
    around = sim.subscription(SubscriptionDescription("t", "around", forward_to="back"))
    plain = sim.subscription(SubscriptionDescription("t", "plain"))
    sim.queue(QueueDescription("back", forward_to="t"))
    sim.send(topic, make_message("m"))
    dead = only(sim, around.dead_letter)
    assert reason_of(dead) == "MaxTransferHopCountExceeded"
    copies = sim.receiver(plain.main, 9).take()
    assert [copy.message.enqueued_sequence_number for copy in copies] == [1] * (1 + HOPS_MAX // 2)


def test_hops_do_not_show_when_forwarding_is_switched_off(sim: Simulation) -> None:
    end = sim.queue(QueueDescription("end"))
    middle = sim.queue(QueueDescription("middle", forward_to="end"))
    first = sim.queue(QueueDescription("first", forward_to="middle"))
    sim.lose_store(end.main.fragments[0].broker.index)
    sim.send(first, *[make_message(str(number)) for number in range(150)])
    sim.entities.update(QueueDescription("middle"), sim.now, Answer[None]())
    sim.advance(2_000, 500)
    numbers = [delivery.message.enqueued_sequence_number for delivery in sim.receiver(middle.main, 500).take()]
    assert sorted(numbers) == list(range(1, 151))
    sim.restart()
    again = sim.receiver(sim.entities.queue("middle").main, 500).take()
    assert [delivery.message.enqueued_sequence_number for delivery in again] == list(range(1, 151))


@pytest.mark.rule("A11.2")
def test_dead_letters_are_forwarded_and_name_their_source(sim: Simulation) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("Sales/Source", forward_dead_letters_to="target"))
    sim.send(source, make_message("m"))
    sim.settle(source.main, sim.receiver(source.main, 1).take(), DeadLetter("why"))
    delivery = only(sim, target.main)
    assert reason_of(delivery) == "why"
    encoded = encode_delivery(delivery.message.content, sequence_number=1, enqueued_at=0, delivery_count=0)
    # As the service writes names there: in lower case.
    annotations = decode_sections(encoded).message_annotations or {}
    assert annotations["x-opt-deadletter-source"] == "sales/source"
    assert source.dead_letter.counts().active == 0


@pytest.mark.rule("A11.1")
def test_a_subscription_forwards_to_a_queue_and_a_queue_to_a_topic(sim: Simulation) -> None:
    end = sim.queue(QueueDescription("end"))
    topic = sim.topic(TopicDescription("t"))
    sim.subscription(SubscriptionDescription("t", "s", forward_to="end"))
    start = sim.queue(QueueDescription("start", forward_to="t"))
    sim.send(start, make_message("via queue"))
    sim.send(topic, make_message("via topic"))
    assert sim.receiver(end.main, 9).ids() == ["via queue", "via topic"]


def test_a_forwarded_message_is_a_message_like_any_other(sim: Simulation) -> None:
    target = sim.queue(QueueDescription("target", requires_duplicate_detection=True))
    source = sim.queue(QueueDescription("source", forward_to="target"))
    sim.send(source, make_message("m", time_to_live=60_000), make_message("m"))
    delivery = only(sim, target.main)
    assert read_content(delivery.message.content).time_to_live == 60_000
    assert delivery.message.expires_at == sim.now + 60_000


@pytest.mark.rule("A11.5")
def test_messages_of_a_run_that_cannot_be_delivered_one_after_the_other_all_come_later() -> None:
    """The first answer comes at once, the second when the pause after the first is over."""
    sim = Simulation(16)
    target = sim.queue(QueueDescription("target", enable_partitioning=True))
    source = sim.queue(QueueDescription("source", forward_to="target"))
    ill, slow = 13, 11  # fragments of the keys
    sim.lose_store(ill)
    sim.ports[slow].is_hung = True
    sim.send(source, make_message("slow", partition_key="order-2"), make_message("ill", partition_key="order-1"))
    sim.advance(RETRY_PAUSE)
    sim.lose_store(slow)
    sim.ports[slow].is_hung = False
    sim.run()
    for index in (ill, slow):
        sim.return_store(index)
    sim.advance(RETRY_PAUSE)
    assert sorted(sim.receiver(target.main, 10).ids()) == ["ill", "slow"]
    assert source.main.counts().active == 0


@pytest.mark.rule("A17.2")
def test_a_queue_that_is_disabled_sends_no_further_run_on(sim: Simulation) -> None:
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source"))
    sim.send(source, *[make_message(str(number)) for number in range(3 * RUN_MAX)])
    forwarding = QueueDescription("source", forward_to="target")
    sim.entities.update(forwarding, sim.now, Answer[None]())
    sim.entities.update(replace(forwarding, status=EntityStatus.RECEIVE_DISABLED), sim.now, Answer[None]())
    sim.run()
    assert target.main.counts().active == RUN_MAX
    assert source.main.counts().active == 2 * RUN_MAX
    sim.entities.update(forwarding, sim.now, Answer[None]())
    sim.run()
    assert target.main.counts().active == 3 * RUN_MAX


def test_what_becomes_ready_while_the_gate_is_closed_is_forwarded_when_it_opens(sim: Simulation) -> None:
    """Messages, dead letters and those that are sent via an entity."""
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_to="target"))
    dying = sim.queue(QueueDescription("dying", forward_dead_letters_to="target"))
    gates = [broker.forwarding_gate for broker in sim.brokers]
    for gate in gates:
        gate.close()
    for name in ("forwarded", "forwarded too"):
        sim.send(source, make_message(name))
    sim.send(dying, make_message("dead"))
    sim.settle(dying.main, sim.receiver(dying.main, 1).take(), DeadLetter("reason", "description"))
    dying.via("target").send_each([make_message("via")], sim.now, EachReply())
    sim.advance(10 * RETRY_PAUSE)
    assert target.main.counts().active == 0
    assert not any(broker.forwarding for broker in sim.brokers)
    for gate in gates:
        gate.open(sim.now)
    sim.run()
    assert sorted(sim.receiver(target.main, 9).ids()) == ["dead", "forwarded", "forwarded too", "via"]
    sim.send(source, make_message("later"))
    assert target.main.counts().active == 5
