"""A batch with very many copies: made in steps, decided and committed as one, in order with what is sent beside it."""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from twinbus.broker.commands import Peek
from twinbus.broker.entity import fan_out, topic_placement, topic_room
from twinbus.broker.entity.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, MessageNotFound, MessageTooLarge, StoreUnavailable
from twinbus.meter.operation import Operation
from twinbus.model.descriptions import (
    CorrelationFilter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.message import Message
from twinbus.store.changes import Change, Copied, SharedRows
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, EachReply, Simulation

COUNT = 40


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_placement, "COPIES_AT_ONCE", 20)
    monkeypatch.setattr(topic_placement, "COPIES_OF_ONE_AT_ONCE", 100)
    monkeypatch.setattr(fan_out, "STEP_COPIES", 20)
    monkeypatch.setattr(fan_out, "STEP_SHAPED", 2 * COUNT + 1)


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


@pytest.fixture
def topic(sim: Simulation) -> TopicEntity:
    return sim.topic(TopicDescription("t"))


def batch(count: int = COUNT, **properties: str) -> list[Message]:
    return [make_message(str(number), **properties) for number in range(count)]  # type: ignore[arg-type]


def begin(sim: Simulation, topic: TopicEntity, messages: list[Message]) -> Answer[list[int]]:
    answer: Answer[list[int]] = Answer()
    topic.send_batch(messages, sim.now, answer)
    return answer


def subscriptions(sim: Simulation, count: int = 3) -> list[SubscriptionEntity]:
    return [sim.subscription(SubscriptionDescription("t", f"s{number}")) for number in range(count)]


def ids_in(sim: Simulation, subscription: SubscriptionEntity) -> list[str]:
    rows = sim.ask(subscription.main, Peek(0, 250)).value
    return [message_id_of(row.content) for row in rows]


@pytest.mark.one_node("asks the placement of the topic itself")
@pytest.mark.parametrize("many", ["filters", "actions"])
def test_what_a_batch_costs_counts_the_filters_and_actions_of_a_single_subscription_too(
    sim: Simulation, topic: TopicEntity, many: str
) -> None:
    names = [f"r{number}" for number in range(60)]
    rules = [RuleDescription(name, SqlFilter(f"colour LIKE '{name}%'")) for name in names]
    if many == "actions":
        rules = [RuleDescription(name, action=SqlAction("SET n = 1")) for name in names[:3]]
    subscription = sim.subscription(SubscriptionDescription("t", "s"), rules)
    answer = begin(sim, topic, [make_message(str(n), application_properties={"colour": "r1"}) for n in range(10)])
    assert not len(sim.ports[topic.main_fragments[0].broker.index])  # nothing is decided in the call that sends
    turns = 0
    while not answer.has_come:
        turns += 1
        sim.turn()
        if not sim.later:
            sim.run()
    assert turns >= 10
    assert subscription.main.counts().active == (10 if many == "filters" else 30)
    for name in names:
        if name in subscription.rules:
            sim.entities.remove_rule("t", "s", name)
    assert topic.placement.count_at_once == 20 // 2  # what is gone costs nothing any more


@pytest.mark.parametrize(("size", "expected"), [(0, 6), (fan_out.BYTES_PER_COPY * fan_out.ACTION_COST, 12)])
def test_a_single_message_that_very_many_actions_change_is_copied_in_steps_the_larger_the_more(
    sim: Simulation, topic: TopicEntity, monkeypatch: pytest.MonkeyPatch, size: int, expected: int
) -> None:
    monkeypatch.setattr(fan_out, "STEP_COPIES", 2 * fan_out.ACTION_COST)
    rules = [RuleDescription(f"r{number}", action=SqlAction(f"SET n = {number}")) for number in range(12)]
    subscription = sim.subscription(SubscriptionDescription("t", "s"), rules)
    port = sim.ports[topic.main_fragments[0].broker.index]
    before, turns = port.commit_count, 0
    answer = begin(sim, topic, [make_message("m", body=bytes(size))])
    later = begin(sim, topic, [make_message("later")])
    while not len(port):
        assert subscription.main.counts().active == 0
        sim.turn()
        turns += 1
    assert expected <= turns <= expected + 2
    sim.run()
    assert port.commit_count == before + 2
    assert (len(answer.value), len(later.value)) == (1, 1)
    assert sim.receiver(subscription.main, 99).ids() == ["m"] * 12 + ["later"] * 12


def test_a_large_batch_takes_several_turns_and_is_one_commit(sim: Simulation, topic: TopicEntity) -> None:
    taken = subscriptions(sim)
    port = sim.ports[topic.main_fragments[0].broker.index]
    before = port.commit_count
    answer = begin(sim, topic, batch())
    turns = 0
    while not len(port):
        assert [each.main.counts().active for each in taken] == [0, 0, 0]
        sim.turn()
        turns += 1
    assert turns > COUNT * len(taken) // 20
    sim.run()
    assert answer.value == [*range(1, COUNT + 1)]
    assert port.commit_count == before + 1
    assert [each.main.counts().active for each in taken] == [COUNT] * 3


def test_rows_are_shared_among_subscriptions_in_steps_too(
    sim: Simulation, topic: TopicEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriptions(sim, 8)
    port = sim.ports[topic.main_fragments[0].broker.index]

    def turns_of_a_batch() -> int:
        begin(sim, topic, batch())
        turns = 0
        while not len(port):
            sim.turn()
            turns += 1
        sim.run()
        return turns

    in_steps = turns_of_a_batch()
    monkeypatch.setattr(fan_out, "STEP_SHAPED", 9 * COUNT)
    assert in_steps == turns_of_a_batch() + 2, "three subscriptions, three more, and the rest"


class KeptCounts:
    """A meter that keeps how many messages it is told of."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def record(self, operation: Operation, /) -> None:
        self.counts.append(operation.messages)


def test_what_one_subscription_takes_is_written_in_parts_that_others_share(
    sim: Simulation, topic: TopicEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fan_out, "SHARED_TOGETHER", 15)
    taken = subscriptions(sim)
    expiring = sim.subscription(SubscriptionDescription("t", "expiring", default_time_to_live=5_000))
    index = topic.main_fragments[0].broker.index
    port, written, meter = sim.ports[index], list[SharedRows](), KeptCounts()
    sim.brokers[index].meter = meter
    commit = port.store.commit

    def noted(changes: list[Change]) -> None:
        written.extend([change.rows for change in changes if isinstance(change, Copied)])
        commit(changes)

    monkeypatch.setattr(port.store, "commit", noted)
    begin(sim, topic, batch())
    sim.run()
    assert [len(rows) for rows in written] == [15, 15, 10] * 4
    assert len({id(rows) for rows in written}) == 6
    assert meter.counts == [COUNT] * 4
    expected = [str(number) for number in range(COUNT)]
    assert [ids_in(sim, each) for each in taken] == [expected] * 3
    assert sim.receiver(taken[0].main, 1_000).ids() == expected
    assert [each.main.counts().active for each in (*taken, expiring)] == [COUNT] * 4
    sim.advance(7_000, 500)
    assert expiring.main.counts().active == 0


def test_what_is_sent_later_does_not_overtake_a_large_batch(sim: Simulation, topic: TopicEntity) -> None:
    (first, *_) = subscriptions(sim)
    receiver = sim.receiver(first.main, 1_000)
    answers = [
        begin(sim, topic, batch()),
        begin(sim, topic, [make_message("one")]),
        begin(sim, topic, batch(30, partition_key="k")),
    ]
    sim.turn()
    assert sim.send(topic, make_message("two")).good == {0}
    assert all(answer.has_come for answer in answers)
    expected = [str(n) for n in range(COUNT)] + ["one"] + [str(n) for n in range(30)] + ["two"]
    assert receiver.ids() == expected


def test_independent_messages_are_cut_into_parts_that_stay_in_order(sim: Simulation, topic: TopicEntity) -> None:
    (first, *_) = subscriptions(sim)
    port = sim.ports[topic.main_fragments[0].broker.index]
    before = port.commit_count
    reply = sim.send(topic, *batch())
    assert reply.good == {*range(COUNT)}
    assert port.commit_count > before + 1
    assert ids_in(sim, first) == [str(number) for number in range(COUNT)]


def test_a_store_that_is_lost_in_between_has_nothing_of_the_batch(sim: Simulation, topic: TopicEntity) -> None:
    (first, *_) = subscriptions(sim)
    answer = begin(sim, topic, batch())
    sim.turn()
    index = topic.main_fragments[0].broker.index
    sim.lose_store(index)
    assert isinstance(answer.error, FragmentUnavailable)
    sim.return_store(index)
    assert ids_in(sim, first) == []
    begin(sim, topic, batch(1))
    sim.run()
    assert ids_in(sim, first) == ["0"]


def test_a_store_that_was_lost_and_is_back_in_between_has_nothing_of_the_batch(
    sim: Simulation, topic: TopicEntity
) -> None:
    (first, *_) = subscriptions(sim)
    index = topic.main_fragments[0].broker.index
    answer = begin(sim, topic, batch())
    sim.turn()
    broker, port = sim.brokers[index], sim.ports[index]
    broker.store_lost(StoreUnavailable("switched off"))
    broker.store_returned()
    port.run()
    sim.run()
    assert isinstance(answer.error, FragmentUnavailable)
    assert ids_in(sim, first) == []


def test_a_batch_without_a_key_goes_to_another_fragment_where_its_store_is_lost(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("t", enable_partitioning=True))
    (first, *_) = subscriptions(sim)
    answer = begin(sim, topic, batch())
    sim.turn()
    sim.lose_store(topic.main_fragments[0].broker.index)
    sim.run()
    assert len(answer.value) == COUNT
    assert answer.value[0] >> 48 != 0
    assert first.main.counts().active == COUNT


def test_a_subscription_that_is_deleted_in_between_gets_no_copy(sim: Simulation, topic: TopicEntity) -> None:
    first, second, _ = subscriptions(sim)
    answer = begin(sim, topic, batch())
    sim.turn()
    deleted: Answer[None] = Answer()
    sim.entities.delete_subscription("t", "s0", sim.now, deleted)
    for port in sim.ports:
        port.run()
    sim.run()
    assert deleted.has_come
    assert len(answer.value) == COUNT
    assert ids_in(sim, second) == [str(number) for number in range(COUNT)]
    assert first.main.counts().active == 0


def test_a_subscription_that_is_deleted_in_between_gets_no_dead_letter(sim: Simulation, topic: TopicEntity) -> None:
    """Its rows would be those of a fragment that the store does not have: the store would refuse the whole batch."""
    (kept, *_) = subscriptions(sim)
    gone = sim.subscription(SubscriptionDescription("t", "gone", requires_session=True))
    answer = begin(sim, topic, batch())
    sim.turn()
    sim.turn()
    deleted: Answer[None] = Answer()
    sim.entities.delete_subscription("t", "gone", sim.now, deleted)
    for port in sim.ports:
        port.run()
    sim.run()
    assert deleted.has_come
    assert len(answer.value) == COUNT
    assert len(ids_in(sim, kept)) == COUNT
    assert gone.dead_letter.counts().active == 0


def test_copies_beyond_the_limit_refuse_the_whole_batch(
    sim: Simulation, topic: TopicEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, *_) = subscriptions(sim)
    monkeypatch.setattr("twinbus.broker.entity.topic_room.COPIES_BYTES_MAX", 2_000)
    answer = begin(sim, topic, batch())
    sim.run()
    assert isinstance(answer.error, MessageTooLarge)
    assert ids_in(sim, first) == []


@pytest.mark.parametrize("is_too_large", [False, True])
def test_the_limit_of_copies_is_for_the_bytes_of_each_in_every_subscription(
    sim: Simulation, topic: TopicEntity, is_too_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = subscriptions(sim)
    messages = batch()
    size = len(copied) * sum([len(message.content) for message in messages])
    monkeypatch.setattr("twinbus.broker.entity.topic_room.COPIES_BYTES_MAX", size - is_too_large)
    answer = begin(sim, topic, messages)
    sim.run()
    assert len(ids_in(sim, copied[0])) == (0 if is_too_large else COUNT)
    assert isinstance(answer.error, MessageTooLarge) == is_too_large


def test_duplicates_in_a_large_batch_are_dropped(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("t", requires_duplicate_detection=True))
    (first, *_) = subscriptions(sim)
    sim.send(topic, make_message("3"))
    answer = begin(sim, topic, [*batch(), make_message("7")])
    sim.run()
    assert [place for place, number in enumerate(answer.value) if number == 0] == [3, COUNT]
    assert len(set(answer.value)) == COUNT
    again = begin(sim, topic, batch())
    sim.run()
    assert set(again.value) == {0}
    assert len(ids_in(sim, first)) == COUNT


def test_a_transaction_waits_behind_a_large_batch(sim: Simulation, topic: TopicEntity) -> None:
    (first, *_) = subscriptions(sim)
    begin(sim, topic, batch())
    sim.turn()
    transaction, answer = sim.transaction(), Answer[None]()
    transaction.send(topic, [make_message("in a transaction")], sim.now)
    transaction.commit(sim.now, answer)
    sim.run()
    assert answer.value is None
    assert ids_in(sim, first) == [*[str(number) for number in range(COUNT)], "in a transaction"]


def test_scheduled_messages_that_are_due_come_behind_a_large_batch(sim: Simulation, topic: TopicEntity) -> None:
    (first, *_) = subscriptions(sim)
    due = [make_message(f"due {number}", scheduled_at=sim.now + 1_000) for number in range(9)]
    begin(sim, topic, due)
    sim.run()
    sim.clock.advance(1_000)
    begin(sim, topic, batch())
    sim.turn()
    for broker in sim.brokers:
        broker.tick(sim.now)
    for port in sim.ports:
        port.run()
    sim.run()
    sim.tick()
    sim.clock.advance(1_000)
    sim.tick()
    ids = ids_in(sim, first)
    assert ids[:COUNT] == [str(number) for number in range(COUNT)]
    assert sorted(ids[COUNT:]) == [f"due {number}" for number in range(9)]


class SendsAgain(EachReply):
    """A sender with one message on its way, until it is over."""

    is_over = False

    def __init__(self, sim: Simulation, topic: TopicEntity) -> None:
        super().__init__()
        self._sim, self._topic = sim, topic
        self.send()

    def send(self) -> None:
        self._topic.send_each([make_message("x")], self._sim.now, self)

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis) -> None:
        if not self.is_over:
            self.send()


def look_for_due(sim: Simulation) -> None:
    for broker in sim.brokers:
        broker.tick(sim.now)
    for port in sim.ports:
        port.run()


def test_scheduled_messages_that_are_due_have_their_turn_among_senders_who_are_always_there(
    sim: Simulation, topic: TopicEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_placement, "COPIES_OF_ONE_AT_ONCE", 0)
    (first, *_) = subscriptions(sim)
    begin(sim, topic, [make_message(f"due {number}", scheduled_at=sim.now + 1_000) for number in range(3)])
    sim.run()
    senders = [SendsAgain(sim, topic) for _ in range(3)]
    sim.clock.advance(1_000)
    for _ in range(50):
        look_for_due(sim)
        sim.turn()
    for sender in senders:
        sender.is_over = True
    assert topic.counts().scheduled == 0
    assert [each for each in ids_in(sim, first) if each != "x"] == ["due 0", "due 1", "due 2"]


def due_in_line(sim: Simulation, topic: TopicEntity) -> list[int]:
    """The number of a message that waits for its turn behind a large batch."""
    scheduled = begin(sim, topic, [make_message("due", scheduled_at=sim.now + 1_000)])
    sim.run()
    sim.clock.advance(1_000)
    begin(sim, topic, batch())
    sim.turn()
    look_for_due(sim)
    return scheduled.value


def test_a_due_message_that_waits_for_its_turn_cannot_be_cancelled_any_more(
    sim: Simulation, topic: TopicEntity
) -> None:
    (first, *_) = subscriptions(sim)
    numbers, cancelled = due_in_line(sim, topic), Answer[None]()
    topic.cancel_scheduled(numbers, sim.now, cancelled)
    for port in sim.ports:
        port.run()
    assert isinstance(cancelled.error, MessageNotFound)
    look_for_due(sim)
    sim.run()
    sim.tick()
    assert ids_in(sim, first)[COUNT:] == ["due"]
    assert topic.counts().scheduled == 0


def test_a_due_message_whose_store_is_lost_while_it_waits_for_its_turn_is_copied_once(
    sim: Simulation, topic: TopicEntity
) -> None:
    (first, *_) = subscriptions(sim)
    due_in_line(sim, topic)
    store = topic.main_fragments[0].broker.index
    sim.lose_store(store)
    sim.return_store(store)
    sim.run()
    sim.tick()
    assert [each for each in ids_in(sim, first) if each == "due"] == ["due"]
    assert topic.counts().scheduled == 0


def due_with_actions(sim: Simulation, topic: TopicEntity) -> SubscriptionEntity:
    """Its copies have been begun with; what is sent meanwhile is "later"."""
    rules = [RuleDescription(f"r{number}", action=SqlAction(f"SET n = {number}")) for number in range(12)]
    subscription = sim.subscription(SubscriptionDescription("t", "s"), rules)
    begin(sim, topic, [make_message("due", scheduled_at=sim.now + 1_000)])
    sim.run()
    sim.clock.advance(1_000)
    look_for_due(sim)
    sim.turn()
    begin(sim, topic, [make_message("later")])
    return subscription


def test_a_due_message_that_very_many_actions_change_is_copied_in_steps_too(
    sim: Simulation, topic: TopicEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_room, "COPIES_BYTES_MAX", 1)  # it was taken when it was sent
    port, turns = sim.ports[topic.main_fragments[0].broker.index], 1
    subscription = due_with_actions(sim, topic)
    while not len(port):
        assert (subscription.main.counts().active, topic.counts().scheduled) == (0, 1)
        sim.turn()
        turns += 1
    assert turns >= 12
    sim.run()
    assert (subscription.main.counts().active, topic.counts().scheduled) == (12, 0)


def test_what_is_sent_while_a_due_message_is_copied_stays_behind_it(sim: Simulation, topic: TopicEntity) -> None:
    subscription = due_with_actions(sim, topic)
    sim.run()
    assert ids_in(sim, subscription) == ["due"] * 12 + ["later"] * 12


@pytest.mark.parametrize("at_once", [0, 1_000])
def test_copies_of_a_due_message_have_the_number_that_it_had_first(
    sim: Simulation, topic: TopicEntity, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_placement, "COPIES_OF_ONE_AT_ONCE", at_once)
    (first, *_) = subscriptions(sim)
    topic.send_each([make_message("due", scheduled_at=sim.now + 1_000)], sim.now, EachReply(), [77])
    sim.run()
    sim.advance(2_000, 500)
    (row,) = sim.ask(first.main, Peek(0, 9)).value
    assert row.enqueued_sequence_number == 77


def test_a_due_message_whose_store_is_lost_while_it_is_copied_is_copied_once(
    sim: Simulation, topic: TopicEntity, caplog: pytest.LogCaptureFixture
) -> None:
    subscription = due_with_actions(sim, topic)
    store = topic.main_fragments[0].broker.index
    broker, port = sim.brokers[store], sim.ports[store]
    broker.store_lost(StoreUnavailable("switched off"))
    broker.store_returned()
    port.run()
    sim.run()
    sim.tick()
    assert ids_in(sim, subscription) == ["later"] * 12 + ["due"] * 12
    assert "send_broken" not in caplog.messages


def test_a_due_message_for_which_there_is_no_room_when_it_is_copied_waits(sim: Simulation, topic: TopicEntity) -> None:
    full = sim.subscription(SubscriptionDescription("t", "full"))
    sim.send(topic, make_message("before"))
    subscription = due_with_actions(sim, topic)
    port = sim.ports[topic.main_fragments[0].broker.index]
    port.is_full = True
    sim.run()
    assert (subscription.main.counts().active, topic.counts().scheduled) == (0, 1)
    receiver = sim.receiver(full.main, 9)
    sim.settle(full.main, receiver.take())
    sim.advance(3_000, 500)
    assert ids_in(sim, subscription) == ["due"] * 12


def test_receivers_of_all_subscriptions_learn_of_their_copies(sim: Simulation, topic: TopicEntity) -> None:
    receivers = [sim.receiver(each.main, 1_000) for each in subscriptions(sim, 60)]
    begin(sim, topic, batch(3))
    sim.run()
    assert [receiver.ids() for receiver in receivers] == [["0", "1", "2"]] * 60


def test_copies_expire(sim: Simulation, topic: TopicEntity) -> None:
    (first, *_) = subscriptions(sim)
    begin(sim, topic, [make_message(str(number), time_to_live=5_000) for number in range(COUNT)])
    sim.run()
    assert first.main.counts().active == COUNT
    sim.advance(7_000, 500)
    assert first.main.counts().active == 0


def test_message_sessions_of_a_large_batch_are_free_at_once(sim: Simulation, topic: TopicEntity) -> None:
    subscription = sim.subscription(SubscriptionDescription("t", "s", requires_session=True))
    subscriptions(sim)
    begin(sim, topic, [make_message(str(number), session_id=f"session {number % 3}") for number in range(COUNT)])
    sim.run()
    for number in range(3):
        lock = sim.accept(subscription.main).value
        assert lock.session_id == f"session {number}"
        ids = sim.receiver(subscription.main, 1_000, session=lock).ids()
        assert ids == [str(each) for each in range(COUNT) if each % 3 == number]


def everything(sim: Simulation, topic: TopicEntity) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for subscription in topic.subscriptions.values():
        for queue in (subscription.main, subscription.dead_letter):
            rows = sim.ask(queue, Peek(0, 250)).value
            found[f"{subscription.description.name}/{queue.fragments[0].sub_queue.name}"] = [*rows]
    return found


def build(at_once: int, seed: int, patch: Callable[[int], None]) -> tuple[dict[str, list[object]], list[int]]:
    patch(at_once)
    random, sim = Random(seed), Simulation()
    topic = sim.topic(TopicDescription("t", default_time_to_live=1_000_000))
    for number in range(12):
        description = SubscriptionDescription(
            "t",
            f"s{number}",
            requires_session=number % 4 == 1,
            default_time_to_live=(50_000 if number % 3 else 2_000_000),
            dead_letter_on_filter_error=number % 2 == 0,
        )
        rules = [
            RuleDescription("$Default"),
            RuleDescription("high", SqlFilter("n > 20")),
            RuleDescription("act", SqlFilter("n < 10"), SqlAction("SET seen = 'yes'")),
            RuleDescription("one", CorrelationFilter(properties=(("n", 5),))),
            RuleDescription("bad", SqlFilter("n / 0 > 1")),
        ]
        sim.subscription(description, random.sample(rules, random.randint(1, 3)))
    messages = [
        make_message(
            str(number),
            session_id=f"s{number % 2}" if number % 5 else None,
            time_to_live=random.choice([None, 10_000, 3_000_000]),
            application_properties={"n": number},
            is_ping=number == 11,
            scheduled_at=sim.now + 500 if number == 13 else None,
        )
        for number in range(30)
    ]
    numbers = begin(sim, topic, messages)
    sim.run()
    sim.advance(1_000, 100)
    assert topic.counts().scheduled == 0
    return everything(sim, topic), numbers.value


@pytest.mark.parametrize("seed", range(12))
def test_steps_change_nothing_but_the_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def patch(at_once: int) -> None:
        monkeypatch.setattr(topic_placement, "COPIES_AT_ONCE", at_once)
        monkeypatch.setattr(topic_placement, "COPIES_OF_ONE_AT_ONCE", at_once)
        monkeypatch.setattr(fan_out, "SHARED_TOGETHER", 3 * at_once)

    in_steps, at_once = build(1, seed, patch), build(1_000_000, seed, patch)
    assert in_steps == at_once
    assert sum(map(len, in_steps[0].values())) > 30
