"""Topics and their subscriptions (contract A15, A16)."""

import time

import pytest

from tests.broker.measured_store import MeasuredStore
from twinbus.broker.commands import Peek
from twinbus.broker.entity import fan_out, topic_entity, topic_room
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.entity.topic_room import SUM_EVERY, TopicRoom
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.outcomes import Abandon
from twinbus.errors import (
    ArgumentError,
    EntityAlreadyExists,
    EntityNotFound,
    MessageTooLarge,
    NotAllowed,
    QuotaExceeded,
)
from twinbus.model.content import application_properties
from twinbus.model.descriptions import (
    CorrelationFilter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from twinbus.model.rules import index as rule_index
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


@pytest.fixture(params=[False, True], ids=["ordinary", "partitioned"])
def topic(sim: Simulation, request: pytest.FixtureRequest) -> TopicEntity:
    return sim.topic(TopicDescription("t", enable_partitioning=bool(request.param)))


def test_every_subscription_gets_its_copy(sim: Simulation, topic: TopicEntity) -> None:
    receivers = [sim.receiver(sim.subscription(SubscriptionDescription("t", name)).main, 9) for name in "abc"]
    assert sim.send(topic, make_message("1"), make_message("2")).good == {0, 1}
    assert [receiver.ids() for receiver in receivers] == [["1", "2"]] * 3


@pytest.mark.rule("A6")
def test_a_topic_is_used_by_a_send_and_by_a_new_subscription(sim: Simulation, topic: TopicEntity) -> None:
    sim.advance(5)
    assert topic.last_used_at < sim.now
    sim.subscription(SubscriptionDescription("t", "s"))
    assert topic.last_used_at == sim.now
    sim.advance(5)
    sim.send(topic, make_message("m"))
    assert topic.last_used_at == sim.now


def test_copies_are_settled_one_by_one(sim: Simulation, topic: TopicEntity) -> None:
    one, two = (sim.subscription(SubscriptionDescription("t", name)) for name in "ab")
    sim.send(topic, make_message("m"))
    sim.settle(one.main, sim.receiver(one.main, 9).take())
    assert (one.main.counts().active, two.main.counts().active) == (0, 1)


def test_a_copy_has_its_own_number_and_knows_that_of_the_topic(sim: Simulation, topic: TopicEntity) -> None:
    sim.send(topic, make_message("before", partition_key="k"))
    subscription = sim.subscription(SubscriptionDescription("t", "late"))
    sim.send(topic, make_message("m", partition_key="k"))
    (copy,) = sim.receiver(subscription.main, 9).take()
    base = copy.message.sequence_number >> 48 << 48
    assert copy.message.sequence_number == base + 1
    assert copy.message.enqueued_sequence_number == base + 2


def test_the_numbers_of_a_topic_go_on_after_a_restart(sim: Simulation, topic: TopicEntity) -> None:
    sim.subscription(SubscriptionDescription("t", "s"))
    answers: list[Answer[list[int]]] = [Answer(), Answer()]
    topic.send_batch([make_message("a", partition_key="k"), make_message("b", partition_key="k")], sim.now, answers[0])
    sim.run()
    sim.restart()
    sim.entities.topic("t").send_batch([make_message("c", partition_key="k")], sim.now, answers[1])
    sim.run()
    assert answers[1].value == [answers[0].value[-1] + 1]


@pytest.mark.rule("A16.1")
def test_rules_decide_who_gets_a_copy(sim: Simulation, topic: TopicEntity) -> None:
    red = sim.subscription(
        SubscriptionDescription("t", "red"), [RuleDescription("colour", SqlFilter("colour = 'red'"))]
    )
    both = sim.subscription(
        SubscriptionDescription("t", "both"),
        [
            RuleDescription("one", SqlFilter("colour = 'red'")),
            RuleDescription("two", CorrelationFilter(properties=(("size", 1),))),
        ],
    )
    sim.send(topic, make_message("m", application_properties={"colour": "red", "size": 1}))
    sim.send(topic, make_message("n", application_properties={"colour": "blue"}))
    assert sim.receiver(red.main, 9).ids() == ["m"]
    assert sim.receiver(both.main, 9).ids() == ["m"]


@pytest.mark.rule("A16.2")
def test_every_rule_with_an_action_gives_its_own_copy(sim: Simulation, topic: TopicEntity) -> None:
    subscription = sim.subscription(
        SubscriptionDescription("t", "s"),
        [
            RuleDescription("$Default"),
            RuleDescription("one", action=SqlAction("SET n = 1")),
            RuleDescription("two", action=SqlAction("SET n = 2")),
        ],
    )
    sim.send(topic, make_message("m"))
    copies = sim.receiver(subscription.main, 9).take()
    values = [str(application_properties(copy.message.content).get("n", 0)) for copy in copies]
    assert sorted(values) == ["0", "1", "2"]


def test_rules_can_be_added_and_removed(sim: Simulation, topic: TopicEntity) -> None:
    subscription = sim.subscription(SubscriptionDescription("t", "s"))
    sim.entities.remove_rule("T", "S", "$default")
    sim.send(topic, make_message("nobody wants this"))
    sim.entities.add_rule("t", "s", RuleDescription("Red", SqlFilter("colour = 'red'")))
    sim.send(topic, make_message("m", application_properties={"colour": "red"}))
    assert sim.receiver(subscription.main, 9).ids() == ["m"]
    assert list(subscription.rules) == ["red"]
    with pytest.raises(EntityAlreadyExists):
        sim.entities.add_rule("t", "s", RuleDescription("RED"))
    with pytest.raises(EntityNotFound):
        sim.entities.remove_rule("t", "s", "none")


def test_a_rule_that_does_not_parse_makes_no_subscription(sim: Simulation, topic: TopicEntity) -> None:
    with pytest.raises(ArgumentError):
        sim.subscription(SubscriptionDescription("t", "s"), [RuleDescription("bad", SqlFilter("colour = = 1"))])
    assert topic.subscriptions == {}
    assert sim.subscription(SubscriptionDescription("t", "s")).rules


@pytest.mark.rule("A15.7")
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_filter_that_fails_dead_letters_where_the_subscription_says_so(
    sim: Simulation, topic: TopicEntity, is_kept: bool
) -> None:
    subscription = sim.subscription(
        SubscriptionDescription("t", "s", dead_letter_on_filter_error=is_kept),
        [RuleDescription("bad", SqlFilter("n / 0 = 1"))],
    )
    sim.send(topic, make_message("m", application_properties={"n": 1}))
    assert subscription.main.counts().active == 0
    dead = sim.receiver(subscription.dead_letter, 9).take()
    assert len(dead) == (1 if is_kept else 0)
    for letter in dead:
        assert "DeadLetterErrorDescription" in application_properties(letter.message.content)


@pytest.mark.rule("A15.5")
def test_a_message_without_a_session_id_is_dead_lettered_by_a_session_subscription(
    sim: Simulation, topic: TopicEntity
) -> None:
    subscription = sim.subscription(SubscriptionDescription("t", "s", requires_session=True))
    sim.send(topic, make_message("none"), make_message("some", session_id="x"))
    (dead,) = sim.receiver(subscription.dead_letter, 9).take()
    assert application_properties(dead.message.content)["DeadLetterReason"] == "Session ID is null"
    lock = sim.accept(subscription.main, "x").value
    assert sim.receiver(subscription.main, 9, session=lock).ids() == ["some"]


@pytest.mark.rule("A9.1")
@pytest.mark.parametrize("how", ["one by one", "many at once"])
def test_an_action_sets_the_session_of_a_copy_where_that_session_is(
    sim: Simulation, topic: TopicEntity, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "many at once":
        monkeypatch.setattr("twinbus.broker.entity.topic_placement.COPIES_AT_ONCE", 1)
    subscription = sim.subscription(
        SubscriptionDescription("t", "s", requires_session=True),
        [RuleDescription("to-session", action=SqlAction("SET sys.SessionId = customer"))],
    )
    customer = {"customer": "c1"}
    here = [make_message(name, partition_key="C1", application_properties=customer) for name in "abc"]
    elsewhere = [make_message(name, partition_key="other", application_properties=customer) for name in "de"]
    assert not sim.send(topic, *here, *elsewhere).errors
    received = sim.receiver(subscription.main, 9, session=sim.accept(subscription.main, "c1").value).ids()
    assert received == list("abcde" if not topic.description.enable_partitioning else "abc")
    assert not sim.accept(subscription.main).has_come  # nobody else gets the session as the next free one
    dead = sim.receiver(subscription.dead_letter, 9).take()
    texts = [str(application_properties(each.message.content)["DeadLetterErrorDescription"]) for each in dead]
    assert len(received) + len(dead) == 5
    assert all("'c1', which belongs to another fragment" in text for text in texts)


@pytest.mark.rule("A16.3")
def test_copies_are_written_in_one_commit_or_not_at_all(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("one"))
    subscriptions = [sim.subscription(SubscriptionDescription("one", name)) for name in "abc"]
    store = topic.fragments[0].broker.index
    sim.ports[store].next_fault = Fault.FAIL_BEFORE
    assert sim.send(topic, make_message("m")).errors
    sim.return_store(store)
    assert [each.main.counts().active for each in subscriptions] == [0, 0, 0]


def test_a_scheduled_message_is_copied_when_it_is_due(sim: Simulation, topic: TopicEntity) -> None:
    sim.send(topic, make_message("m", scheduled_at=sim.now + 5_000))
    subscription = sim.subscription(SubscriptionDescription("t", "came later"))
    assert topic.counts().scheduled == 1
    sim.advance(5_000)
    assert sim.receiver(subscription.main, 9).ids() == ["m"]
    assert (topic.counts().scheduled, topic.counts().size_bytes) == (0, 0)


@pytest.mark.rule("A13.2")
def test_a_scheduled_message_of_a_topic_can_be_cancelled(sim: Simulation, topic: TopicEntity) -> None:
    subscription = sim.subscription(SubscriptionDescription("t", "s"))
    numbers: Answer[list[int]] = Answer()
    topic.schedule([make_message("m", scheduled_at=sim.now + 5_000)], sim.now, numbers)
    sim.run()
    done: Answer[None] = Answer()
    topic.cancel_scheduled(numbers.value, sim.now, done)
    sim.run()
    assert done.value is None
    sim.advance(5_000)
    assert subscription.main.counts().active == 0


@pytest.mark.rule("A18.3")
def test_a_ping_to_a_topic_reaches_no_subscription(sim: Simulation, topic: TopicEntity) -> None:
    subscription = sim.subscription(SubscriptionDescription("t", "s"))
    assert sim.send(topic, make_message("ping", is_ping=True)).good == {0}
    assert subscription.main.counts().active == 0


@pytest.mark.rule("A10.1")
def test_duplicates_are_detected_by_the_topic(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("d", requires_duplicate_detection=True))
    subscription = sim.subscription(SubscriptionDescription("d", "s"))
    sim.send(topic, make_message("a"), make_message("a"))
    sim.restart()
    sim.send(sim.entities.topic("d"), make_message("a"))
    assert sim.entities.subscription("d", "s").main.counts().active == 1
    assert subscription.id == sim.entities.subscription("d", "s").id


@pytest.mark.rule("A14.1")
def test_both_defaults_of_time_to_live_are_ceilings(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("ttl", default_time_to_live=10_000))
    one = sim.subscription(SubscriptionDescription("ttl", "one"))
    two = sim.subscription(SubscriptionDescription("ttl", "two", default_time_to_live=5_000))
    sim.send(topic, make_message("m", time_to_live=60_000))
    sim.advance(5_000)
    assert (one.main.counts().active, two.main.counts().active) == (1, 0)
    sim.advance(5_000)
    assert one.main.counts().active == 0


def test_a_full_topic_takes_nothing_more(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("small", max_size_mb=1))
    sim.subscription(SubscriptionDescription("small", "a"))
    sim.subscription(SubscriptionDescription("small", "b"))
    assert not sim.send(topic, make_message("1", body=bytes(600_000))).errors
    assert isinstance(sim.send(topic, make_message("2", body=bytes(100_000))).errors[0], QuotaExceeded)


@pytest.mark.rule("A8.2")
def test_a_batch_with_different_keys_is_refused_on_a_partitioned_topic(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("p", enable_partitioning=True))
    answer: Answer[list[int]] = Answer()
    topic.send_batch([make_message("a", partition_key="1"), make_message("b", partition_key="2")], sim.now, answer)
    assert isinstance(answer.error, NotAllowed)


def test_copies_survive_a_restart(sim: Simulation, topic: TopicEntity) -> None:
    sim.subscription(SubscriptionDescription("t", "s"))
    sim.send(topic, make_message("m"))
    sim.restart()
    assert sim.receiver(sim.entities.subscription("t", "s").main, 9).ids() == ["m"]


@pytest.mark.rule("A16")
def test_the_size_of_a_topic_is_not_summed_up_for_every_send(sim: Simulation) -> None:
    """With thousands of subscriptions that would cost more than the copies."""
    asked: list[int] = []
    topic = sim.topic(TopicDescription("t"))
    fragment = topic.fragments[0]

    def parts(index: int) -> list[Fragment]:
        asked.append(index)
        return []

    room = TopicRoom(parts, lambda _: 0, lambda: 0)
    message = make_message("m", body=b"x" * 1_000)
    for _ in range(SUM_EVERY):
        room.check(fragment, [message])
        room.copied(fragment, len(message.content))
    assert len(asked) == 1
    room.copied(fragment, fragment.settings.size_max_bytes)
    room.check(fragment, [message])  # what was copied has left again: the sum shows it
    assert len(asked) == 2
    fragment.tally.size_bytes = fragment.settings.size_max_bytes
    room.copied(fragment, fragment.settings.size_max_bytes)
    with pytest.raises(QuotaExceeded):
        room.check(fragment, [message])


def test_what_would_be_too_much_to_write_once_it_is_copied_is_refused(
    sim: Simulation, topic: TopicEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_room, "COPIES_BYTES_MAX", 1_000_000)
    for name in "abc":
        sim.subscription(SubscriptionDescription("t", name), [RuleDescription("r", SqlFilter("sys.MessageId = 'm'"))])
    large = bytes(400_000)
    assert isinstance(sim.send(topic, make_message("m", body=large)).errors[0], MessageTooLarge)
    later = make_message("m", body=large, scheduled_at=sim.now + 1_000)
    assert isinstance(sim.send(topic, later).errors[0], MessageTooLarge)
    assert sim.send(topic, make_message("for nobody", body=large), make_message("m", body=bytes(200_000))).good == {
        0,
        1,
    }
    assert all(broker.is_available for broker in sim.brokers)


def test_no_message_is_refused_for_the_copies_of_those_that_arrive_with_it(
    sim: Simulation, topic: TopicEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_room, "COPIES_BYTES_MAX", 1_000_000)
    subscriptions = [sim.subscription(SubscriptionDescription("t", name)) for name in "abc"]
    sizes = (100_000, 100_000, 400_000, 100_000, 100_000)
    sent = sim.send(topic, *[make_message(str(place), body=bytes(size)) for place, size in enumerate(sizes)])
    assert sent.good == {0, 1, 3, 4}
    assert isinstance(sent.errors[2], MessageTooLarge)
    assert [sorted(sim.receiver(each.main, 9).ids()) for each in subscriptions] == [["0", "1", "3", "4"]] * 3


def test_copies_that_rules_with_actions_make_count_like_those_of_subscriptions(
    sim: Simulation, topic: TopicEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One subscription may have thousands of such rules, so that even a small message may be too much to write."""
    monkeypatch.setattr(topic_room, "COPIES_BYTES_MAX", 100_000)
    rules = [RuleDescription(f"r{number}", TrueFilter(), SqlAction("SET seen = 1")) for number in range(10)]
    sim.subscription(SubscriptionDescription("t", "s"), rules)
    assert isinstance(sim.send(topic, make_message("m", body=bytes(10_000))).errors[0], MessageTooLarge)
    assert sim.send(topic, make_message("m", body=bytes(9_000))).good == {0}


def test_scheduled_messages_that_are_due_together_are_copied_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_entity, "DUE_BYTES_MAX", 70_000)
    sim = Simulation()
    topic = sim.topic(TopicDescription("t"))
    subscriptions = [sim.subscription(SubscriptionDescription("t", name)) for name in "abc"]
    for number in range(10):
        size = 1_000_000 if number == 5 else 30_000
        sim.send(topic, make_message(str(number), body=bytes(size), scheduled_at=sim.now + 1_000))
    before = sim.ports[0].commit_count
    sim.advance(3_000, step=50)
    assert sim.ports[0].commit_count - before >= 5
    for subscription in subscriptions:
        assert sim.receiver(subscription.main, 20).ids() == [str(number) for number in range(10)]
    assert topic.counts().scheduled == 0


@pytest.mark.one_node("it looks into the store of one")
def test_due_messages_are_written_once_however_many_subscriptions_there_are_by_then() -> None:
    """A journal takes 2 GB at once, and no more than its disk has room for. What does not fit would be due again and again."""
    store, size = MeasuredStore(), 1_000_000
    sim = Simulation(make_store=lambda: store)
    topic = sim.topic(TopicDescription("t"))
    due = [make_message(name, body=bytes(size), scheduled_at=sim.now + 1_000) for name in "abcd"]
    assert sim.send(topic, *due).good == {0, 1, 2, 3}
    subscriptions = [sim.subscription(SubscriptionDescription("t", f"s{number}")) for number in range(100)]
    acting = RuleDescription("r", TrueFilter(), SqlAction("SET seen = 1"))
    subscriptions.append(sim.subscription(SubscriptionDescription("t", "acting"), [acting]))
    store.sizes.clear()
    sim.advance(2_000, step=50)
    assert max(store.sizes) < topic_entity.DUE_BYTES_MAX + size
    for subscription in subscriptions:
        assert sim.receiver(subscription.main, 5).ids() == ["a", "b", "c", "d"]


@pytest.mark.one_node("it looks into the store of one")
def test_copies_of_much_that_is_sent_at_once_share_what_is_written_of_them() -> None:
    store, size = MeasuredStore(), 500_000
    sim = Simulation(make_store=lambda: store)
    topic = sim.topic(TopicDescription("t"))
    subscriptions = [sim.subscription(SubscriptionDescription("t", f"s{number}")) for number in range(60)]
    store.sizes.clear()
    assert sim.send(topic, make_message("m", body=bytes(size))).good == {0}
    assert max(store.sizes) < 2 * size
    assert [sim.receiver(each.main, 5).ids() for each in subscriptions] == [["m"]] * 60


@pytest.mark.one_node("it looks into the memory of one")
def test_copies_for_a_few_of_many_subscriptions_are_kept_in_memory(
    sim: Simulation, topic: TopicEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for them need not wait for the store to read them."""
    monkeypatch.setattr(fan_out, "SHARED_BYTES_MIN", 3_000)
    wanted = SqlFilter("sys.MessageId = 'm'")
    subscriptions = [
        sim.subscription(
            SubscriptionDescription("t", f"s{number}"),
            [RuleDescription("r", wanted if number < 2 else SqlFilter("1 = 0"))],
        )
        for number in range(9)
    ]
    assert sim.send(topic, make_message("m", partition_key="k", body=bytes(1_000))).good == {0}
    taken = [each.main for each in subscriptions[:2]]
    assert [sum(len(fragment.lane.ready) for fragment in queue.fragments) for queue in taken] == [1, 1]
    (first,), (second,) = [sim.receiver(queue, 1).take() for queue in taken]
    sim.settle(taken[0], [first], Abandon())
    assert (first.message.delivery_count, second.message.delivery_count) == (1, 0)


def test_what_was_scheduled_is_published_even_if_its_copies_are_too_large_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_room, "COPIES_BYTES_MAX", 300_000)
    monkeypatch.setattr(fan_out, "SHARED_BYTES_MIN", 100_000)
    sim = Simulation()
    topic = sim.topic(TopicDescription("t"))
    assert sim.send(topic, make_message("m", body=bytes(200_000), scheduled_at=sim.now + 1_000)).good == {0}
    subscriptions = [sim.subscription(SubscriptionDescription("t", name)) for name in "abc"]
    sim.advance(2_000, step=50)
    assert [sim.receiver(each.main, 5).ids() for each in subscriptions] == [["m"]] * 3


@pytest.mark.one_node("it makes the disk of one full")
def test_on_a_full_disk_due_messages_come_one_by_one_as_those_before_are_taken() -> None:
    """Copies take more room than what they are made of, and a store that fails for lack of it keeps receivers from making some."""
    sim = Simulation()
    topic = sim.topic(TopicDescription("t"))
    subscriptions = [sim.subscription(SubscriptionDescription("t", name)) for name in "ab"]
    sim.send(topic, *[make_message(str(number), scheduled_at=sim.now + 1_000) for number in range(9)])
    (port,) = sim.ports
    port.is_full = True
    for number in range(3):
        sim.advance(5_000, step=100)
        for subscription in subscriptions:
            assert subscription.main.counts().active == 1
        for subscription in subscriptions:
            receiver = sim.receiver(subscription.main, 9)
            (delivery,) = receiver.take()
            assert message_id_of(delivery.message.content) == str(number)
            sim.settle(subscription.main, [delivery])
            subscription.main.detach(receiver, sim.now)
    port.is_full = False
    sim.advance(5_000, step=100)
    assert sim.receiver(subscriptions[0].main, 9).ids() == ["3", "4", "5", "6", "7", "8"]


@pytest.mark.one_node("the control plane deletes at all nodes")
@pytest.mark.parametrize("together", [1, 2, 5, 100])
def test_the_rules_of_a_deleted_subscription_are_taken_out_in_steps_and_those_of_others_stay(
    sim: Simulation, topic: TopicEntity, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_index, "UNFILED_TOGETHER", together)
    rules = [RuleDescription(f"r{number}", SqlFilter(f"size + {number} > 0")) for number in range(5)]
    sim.subscription(SubscriptionDescription("t", "going"), rules)
    stays = sim.receiver(sim.subscription(SubscriptionDescription("t", "stays"), rules[:2]).main, 9)
    assert (topic.rules.scanned_count, topic.rules.sql_filter_count) == (5, 7)
    answer: Answer[None] = Answer()
    sim.entities.delete_subscription("t", "going", sim.now, answer)
    sim.run()
    assert answer.value is None
    assert (topic.rules.scanned_count, topic.rules.sql_filter_count) == (2, 2)
    assert not any(broker.long_work for broker in sim.brokers)
    assert sim.send(topic, make_message("1", application_properties={"size": 1})).good == {0}
    assert stays.ids() == ["1"]


def test_a_message_with_many_properties_is_taken_apart_once_for_all_actions(sim: Simulation) -> None:
    """Goal: no sender can stall a namespace with a message. To take it apart for each of the copies takes more than a second."""
    topic = sim.topic(TopicDescription("t"))
    for number in range(100):
        rule = RuleDescription("r", action=SqlAction("SET b = 2; REMOVE p7"))
        sim.subscription(SubscriptionDescription("t", f"s{number}"), (rule,))
    message = make_message("m", application_properties={f"p{number}": number % 100 for number in range(7_000)})
    before = time.thread_time()
    sim.send(topic, message)
    assert time.thread_time() - before < 0.5
    (row,) = sim.ask(sim.entities.subscription("t", "s99").main, Peek(0, 1)).value
    assert len(application_properties(row.content)) == 7_001
