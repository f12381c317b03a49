"""Rules of the contract that concern more than one part of the broker, each sentence as a test."""

import pytest

from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.outcomes import Abandon, DeadLetter, Defer
from twinbus.errors import FragmentUnavailable, NotAllowed
from twinbus.model.content import application_properties
from twinbus.model.dead_letter_reasons import MAX_DELIVERY_COUNT_EXCEEDED
from twinbus.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from twinbus.model.message_limits import HEADER_SIZE_MAX
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Simulation

STORES = 16


@pytest.fixture
def sim() -> Simulation:
    return Simulation(STORES)


def reasons(sim: Simulation, queue: MessageQueue) -> list[object]:
    found = sim.receiver(queue, 100).take()
    return [application_properties(delivery.message.content)["DeadLetterReason"] for delivery in found]


@pytest.mark.rule("A1.4")
def test_each_fragment_has_the_full_size_that_was_asked_for(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True, max_size_mb=5120))
    assert [fragment.settings.size_max_bytes for fragment in queue.main.fragments] == [5 * 1024**3] * 16


@pytest.mark.rule("A1.2")
def test_neither_throughput_nor_availability_hangs_on_one_store(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for number in range(32):
        sim.send(queue, make_message(str(number)))
    assert {fragment.tally.active_count for fragment in queue.main.fragments} == {2}
    for index in range(15):
        sim.lose_store(index)
    assert sim.send(queue, make_message("last")).good == {0}
    assert len(sim.receiver(queue.main, 100).take()) == 3


@pytest.mark.rule("A4.10")
def test_nothing_else_in_the_namespace_notices_a_store_that_is_down(sim: Simulation) -> None:
    ordinary = [sim.queue(QueueDescription(f"q{number}")) for number in range(STORES)]
    sim.lose_store(3)
    outcomes = {queue.main.fragments[0].broker.index: sim.send(queue, make_message("m")) for queue in ordinary}
    assert {index for index, sent in outcomes.items() if sent.good == {0}} == set(range(STORES)) - {3}
    assert isinstance(outcomes[3].errors[0], FragmentUnavailable)


@pytest.mark.rule("A5.3")
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_every_settlement_works_alike_on_ordinary_and_partitioned_entities(
    sim: Simulation, is_partitioned: bool
) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=is_partitioned, max_delivery_count=2))
    for number in range(4):
        sim.send(queue, make_message(str(number)))
    receiver = sim.receiver(queue.main, 4)
    done, again, aside, dead = receiver.take()
    assert sim.settle(queue.main, [done]).good == {0}
    assert sim.settle(queue.main, [again], Abandon()).good == {0}
    assert sim.settle(queue.main, [aside], Defer()).good == {0}
    assert sim.settle(queue.main, [dead], DeadLetter("mine")).good == {0}
    counts = queue.main.counts()
    assert (counts.active, counts.deferred, queue.dead_letter.counts().active) == (1, 1, 1)
    receiver.credit = 1
    queue.main.pump(sim.now, receiver)
    assert [delivery.message.delivery_count for delivery in receiver.take()] == [1]


@pytest.mark.rule("A11.3", "A10")
def test_a_forwarded_message_is_a_duplicate_where_it_arrives(sim: Simulation) -> None:
    target = sim.queue(QueueDescription("target", requires_duplicate_detection=True))
    first = sim.queue(QueueDescription("first", forward_to="target"))
    second = sim.queue(QueueDescription("second", forward_to="target", enable_partitioning=True))
    for source in (first, second, first):
        assert sim.send(source, make_message("same")).good == {0}
    assert (first.main.counts().active, second.main.counts().active) == (0, 0)
    assert sim.receiver(target.main, 10).ids() == ["same"]


@pytest.mark.rule("A15.4")
def test_a_message_whose_properties_grow_beyond_the_limit_is_dead_lettered(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 1)
    assert sim.settle(queue.main, receiver.take(), Abandon({"note": "x" * HEADER_SIZE_MAX})).good == {0}
    assert queue.main.counts().active == 0
    (dead,) = sim.receiver(queue.dead_letter, 1).take()
    properties = application_properties(dead.message.content)
    assert properties["DeadLetterReason"] == "HeaderSizeExceeded"
    assert "note" not in properties
    assert queue.dead_letter.counts().size_bytes == len(dead.message.content)


@pytest.mark.rule("A15.4")
def test_an_action_that_makes_a_message_too_large_dead_letters_it(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("t"))
    rules = [RuleDescription("grow", TrueFilter(), SqlAction("SET a = p + p; SET b = p + p"))]
    subscription = sim.subscription(SubscriptionDescription("t", "s"), rules)
    sim.send(topic, make_message("m", application_properties={"p": "x" * 15_000}))
    assert reasons(sim, subscription.dead_letter) == ["HeaderSizeExceeded"]
    assert subscription.main.counts().active == 0


@pytest.mark.rule("A15.8")
def test_a_receiver_gives_reasons_of_its_own_and_too_many_properties_are_left_out(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m"))
    held = sim.receiver(queue.main, 1).take()
    sim.settle(queue.main, held, DeadLetter("mine", "because", {"note": "x" * HEADER_SIZE_MAX}))
    (dead,) = sim.receiver(queue.dead_letter, 1).take()
    assert application_properties(dead.message.content) == {
        "DeadLetterReason": "mine",
        "DeadLetterErrorDescription": "because",
    }


@pytest.mark.rule("A15.1")
def test_the_reasons_of_the_broker_are_the_names_of_the_contract(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", max_delivery_count=1, dead_letter_on_expiry=True))
    sim.send(queue, make_message("often"))
    receiver = sim.receiver(queue.main, 1)
    sim.settle(queue.main, receiver.take(), Abandon())
    queue.main.detach(receiver, sim.now)
    sim.send(queue, make_message("old", time_to_live=1_000))
    sim.advance(2_000, 500)
    topic = sim.topic(TopicDescription("t"))
    talks = sim.subscription(SubscriptionDescription("t", "talks", requires_session=True))
    broken = sim.subscription(SubscriptionDescription("t", "broken"), [RuleDescription("r", SqlFilter("1 / zero > 1"))])
    sim.send(topic, make_message("m", application_properties={"zero": 0}))
    assert reasons(sim, queue.dead_letter) == [MAX_DELIVERY_COUNT_EXCEEDED, "TTLExpiredException"]
    assert MAX_DELIVERY_COUNT_EXCEEDED == "MaxDeliveryCountExceeded"
    assert reasons(sim, talks.dead_letter) == ["Session ID is null"]
    assert reasons(sim, broken.dead_letter) == ["FilterError"]


@pytest.mark.rule("A16.1")
def test_rules_without_an_action_give_one_copy_whatever_number_of_them_match(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("t", enable_partitioning=True))
    rules = [RuleDescription("one", SqlFilter("a = 1")), RuleDescription("two", SqlFilter("b = 2"))]
    rules += [RuleDescription("act", SqlFilter("a = 1"), SqlAction("SET c = 3"))]
    subscription = sim.subscription(SubscriptionDescription("t", "s"), rules)
    sim.send(topic, make_message("m", application_properties={"a": 1, "b": 2}))
    found = [application_properties(each.message.content) for each in sim.receiver(subscription.main, 10).take()]
    assert sorted(len(properties) for properties in found) == [2, 4]  # an action's copy also names its rule


@pytest.mark.rule("A8.2")
def test_a_batch_of_several_sessions_is_refused_on_a_partitioned_entity_alone(sim: Simulation) -> None:
    messages = [make_message("a", session_id="0"), make_message("b", session_id="1")]
    for is_partitioned in (False, True):
        name = f"talks-{is_partitioned}"
        queue = sim.queue(QueueDescription(name, requires_session=True, enable_partitioning=is_partitioned))
        answers: list[object] = []
        queue.send_batch(messages, sim.now, answers.append)
        sim.run()
        assert isinstance(answers[0], NotAllowed) is is_partitioned


@pytest.mark.rule("A18.2")
def test_a_ping_has_a_number_like_any_message(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    answers: list[object] = []
    for message in (make_message("ping", is_ping=True), make_message("m")):
        queue.send_batch([message], sim.now, answers.append)
    sim.run()
    assert answers == [[1], [2]]
    assert sim.receiver(queue.main, 10).ids() == ["m"]
