"""A transaction with very many copies: made in steps, and done at the commit with everything else or not at all."""

from collections.abc import Callable
from random import Random

import pytest

from twinbus.broker import held_contents
from twinbus.broker.commands import Peek
from twinbus.broker.consumer import TakenMessage
from twinbus.broker.entity import fan_out, topic_placement
from twinbus.broker.entity.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.broker.fragment_transaction import DURATION_MAX
from twinbus.broker.outcomes import COMPLETE, DeadLetter, Outcome
from twinbus.errors import (
    EntityDisabled,
    EntityNotFound,
    FragmentUnavailable,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    MessagingError,
    StoreUnavailable,
    TransactionUnknown,
)
from twinbus.model.descriptions import (
    EntityStatus,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.message import Message
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, SimTransaction, Simulation

COUNT = 40
NAMES = [str(number) for number in range(COUNT)]
LOCK = 30_000
LATER = 60_000


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_placement, "COPIES_AT_ONCE", 20)
    monkeypatch.setattr(topic_placement, "COPIES_OF_ONE_AT_ONCE", 100)
    monkeypatch.setattr(fan_out, "STEP_COPIES", 20)


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


@pytest.fixture
def topic(sim: Simulation) -> TopicEntity:
    return sim.topic(TopicDescription("t"))


@pytest.fixture
def taken(sim: Simulation, topic: TopicEntity) -> list[SubscriptionEntity]:
    return [
        sim.subscription(SubscriptionDescription("t", f"s{number}", lock_duration=LOCK, max_delivery_count=5))
        for number in range(3)
    ]


def batch(names: list[str] = NAMES) -> list[Message]:
    return [make_message(name) for name in names]


def large(sim: Simulation, topic: TopicEntity) -> SimTransaction:
    transaction = sim.transaction()
    transaction.send(topic, batch(), sim.now)
    return transaction


def commit(sim: Simulation, transaction: SimTransaction) -> Answer[None]:
    """Asked for, and begun."""
    answer: Answer[None] = Answer()
    transaction.commit(sim.now, answer)
    sim.turn()
    assert not answer.has_come
    return answer


def send(sim: Simulation, topic: TopicEntity, *names: str) -> Answer[list[int]]:
    answer: Answer[list[int]] = Answer()
    topic.send_batch(batch(list(names)), sim.now, answer)
    return answer


def ids_in(sim: Simulation, subscription: SubscriptionEntity) -> list[str]:
    return [message_id_of(row.content) for row in sim.ask(subscription.main, Peek(0, 250)).value]


def active(subscriptions: list[SubscriptionEntity]) -> list[int]:
    return [each.main.counts().active for each in subscriptions]


def locked(sim: Simulation, topic: TopicEntity, subscription: SubscriptionEntity) -> TakenMessage:
    sim.send(topic, make_message("cause"))
    receiver = sim.receiver(subscription.main, 1)
    subscription.main.detach(receiver, sim.now)
    (delivery,) = receiver.take()
    return delivery


def store_of(topic: TopicEntity) -> int:
    return topic.main_fragments[0].broker.index


def test_its_copies_take_several_turns_and_are_one_commit_with_its_settlements(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity]
) -> None:
    delivery = locked(sim, topic, taken[0])
    transaction = large(sim, topic)
    transaction.settle(taken[0].main, [delivery.lock_token], COMPLETE, sim.now)
    port = sim.ports[store_of(topic)]
    before, turns = port.commit_count, 1
    answer = commit(sim, transaction)
    while not len(port):
        assert active(taken) == [1, 1, 1]
        sim.turn()
        turns += 1
    assert turns > COUNT * len(taken) // 20
    sim.run()
    assert (answer.value, port.commit_count) == (None, before + 1)
    assert active(taken) == [COUNT, COUNT + 1, COUNT + 1]
    assert ids_in(sim, taken[0]) == NAMES


def test_what_is_sent_before_and_after_it_stays_before_and_after(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity]
) -> None:
    before = send(sim, topic, *[f"before {number}" for number in range(COUNT)])
    answer = commit(sim, large(sim, topic))
    small = sim.transaction()
    small.send(topic, [make_message("small")], sim.now)
    small_answer = commit(sim, small)
    after = send(sim, topic, "after")
    sim.run()
    assert (answer.value, small_answer.value, len(before.value), len(after.value)) == (None, None, COUNT, 1)
    expected = [f"before {number}" for number in range(COUNT)] + NAMES + ["small", "after"]
    assert all(ids_in(sim, each) == expected for each in taken)


def test_a_single_message_that_very_many_actions_change_is_copied_in_steps_in_a_transaction_too(
    sim: Simulation, topic: TopicEntity
) -> None:
    rules = [RuleDescription(f"r{number}", action=SqlAction(f"SET n = {number}")) for number in range(12)]
    subscription = sim.subscription(SubscriptionDescription("t", "s"), rules)
    transaction = sim.transaction()
    transaction.send(topic, [make_message("m")], sim.now)
    answer = commit(sim, transaction)
    assert subscription.main.counts().active == 0
    sim.run()
    assert (answer.value, subscription.main.counts().active) == (None, 12)


def test_nothing_can_be_added_while_the_copies_are_made_and_it_is_no_longer_rolled_back_for_its_age(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity]
) -> None:
    transaction = large(sim, topic)
    sim.advance(DURATION_MAX - 1)
    answer = commit(sim, transaction)
    with pytest.raises(TransactionUnknown):
        transaction.send(topic, [make_message("more")], sim.now)
    sim.clock.advance(DURATION_MAX)
    for broker in sim.brokers:
        broker.tick(sim.now)
    assert not answer.has_come
    sim.run()
    assert answer.value is None
    assert active(taken) == [COUNT] * 3


def test_a_lock_that_ends_while_the_copies_are_made_fails_all_of_it(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity]
) -> None:
    delivery = locked(sim, topic, taken[0])
    transaction = large(sim, topic)
    transaction.settle(taken[0].main, [delivery.lock_token], COMPLETE, sim.now)
    answer = commit(sim, transaction)
    sim.clock.advance(LOCK)
    sim.run()
    assert isinstance(answer.error, MessageLockLost)
    sim.tick()
    assert [ids_in(sim, each) for each in taken] == [["cause"]] * 3
    again = sim.receiver(taken[0].main, 1).take()
    assert sim.settle(taken[0].main, again).good == {0}
    assert sim.send(topic, make_message("next")).good == {0}


def test_what_is_wrong_before_the_copies_are_made_is_said_before(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity]
) -> None:
    delivery = locked(sim, topic, taken[0])
    transaction = large(sim, topic)
    transaction.settle(taken[0].main, [delivery.lock_token], COMPLETE, sim.now)
    sim.clock.advance(LOCK)
    answer: Answer[None] = Answer()
    transaction.commit(sim.now, answer)
    sim.turn()
    assert isinstance(answer.error, MessageLockLost)


@pytest.mark.parametrize("happening", ["disabled", "deleted"])
def test_a_topic_that_takes_nothing_any_more_while_the_copies_are_made_fails_all_of_it(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity], happening: str
) -> None:
    answer, done = commit(sim, large(sim, topic)), Answer[None]()
    if happening == "disabled":
        sim.entities.update(TopicDescription("t", status=EntityStatus.SEND_DISABLED), sim.now, done)
    else:
        sim.entities.delete("t", sim.now, done)
    sim.run()
    assert done.value is None
    assert isinstance(answer.error, EntityDisabled if happening == "disabled" else EntityNotFound)
    assert active(taken) == [0, 0, 0]


def test_a_store_that_is_lost_in_between_has_nothing_of_it(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity]
) -> None:
    answer = commit(sim, large(sim, topic))
    sim.lose_store(store_of(topic))
    assert isinstance(answer.error, FragmentUnavailable)
    sim.return_store(store_of(topic))
    assert ids_in(sim, taken[0]) == []
    send(sim, topic, "next")
    sim.run()
    assert ids_in(sim, taken[0]) == ["next"]


def test_a_store_that_was_lost_and_is_back_in_between_has_nothing_of_it(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity]
) -> None:
    answer = commit(sim, large(sim, topic))
    broker, port = sim.brokers[store_of(topic)], sim.ports[store_of(topic)]
    broker.store_lost(StoreUnavailable("switched off"))
    broker.store_returned()
    port.run()
    sim.run()
    assert isinstance(answer.error, FragmentUnavailable)
    assert ids_in(sim, taken[0]) == []


def test_a_message_broker_has_open_work_until_it_is_decided(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity]
) -> None:
    """Before a store moves to another node, its owner waits for this."""
    number = scheduled(sim, topic)
    transaction = large(sim, topic)
    cancel(sim, transaction, topic, number)
    broker, port = sim.brokers[store_of(topic)], sim.ports[store_of(topic)]
    commit(sim, transaction)
    while not len(port):
        assert broker.has_open_work
        sim.turn()
    sim.turn()
    assert broker.has_open_work  # it asks the store
    sim.run()
    assert not broker.has_open_work


def scheduled(sim: Simulation, topic: TopicEntity) -> int:
    answer: Answer[list[int]] = Answer()
    topic.schedule([make_message("later", scheduled_at=sim.now + LATER)], sim.now, answer)
    sim.run()
    return answer.value[0]


def cancel(sim: Simulation, transaction: SimTransaction, topic: TopicEntity, number: int) -> None:
    answer: Answer[None] = Answer()
    transaction.cancel_scheduled(topic, [number], sim.now, answer)
    sim.run()
    assert answer.value is None


def test_what_is_sent_while_it_looks_for_what_it_cancels_stays_behind_it(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity]
) -> None:
    transaction = large(sim, topic)
    cancel(sim, transaction, topic, scheduled(sim, topic))
    port = sim.ports[store_of(topic)]
    answer = commit(sim, transaction)
    while not len(port):
        sim.turn()
    late = send(sim, topic, "late")
    sim.run()
    assert (answer.value, len(late.value), topic.counts().scheduled) == (None, 1, 0)
    assert ids_in(sim, taken[0]) == [*NAMES, "late"]


def test_a_message_that_is_cancelled_elsewhere_while_the_copies_are_made_fails_all_of_it(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity]
) -> None:
    number = scheduled(sim, topic)
    transaction = large(sim, topic)
    cancel(sim, transaction, topic, number)
    answer, elsewhere = commit(sim, transaction), Answer[None]()
    topic.cancel_scheduled([number], sim.now, elsewhere)
    sim.run()
    assert elsewhere.value is None
    assert isinstance(answer.error, MessageNotFound)
    assert active(taken) == [0, 0, 0]
    assert sim.send(topic, make_message("next")).good == {0}


def test_contents_that_were_left_to_the_store_are_read_when_the_copies_are_made(
    sim: Simulation, topic: TopicEntity, taken: list[SubscriptionEntity], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_contents, "HELD_BYTES_MAX", 0)
    delivery = locked(sim, topic, taken[0])
    transaction = large(sim, topic)
    transaction.settle(taken[0].main, [delivery.lock_token], DeadLetter("why"), sim.now)
    port = sim.ports[store_of(topic)]
    answer = commit(sim, transaction)
    while not len(port):
        sim.turn()
    late = send(sim, topic, "late")
    sim.run()
    assert (answer.value, len(late.value)) == (None, 1)
    assert ids_in(sim, taken[0]) == [*NAMES, "late"]
    (dead,) = sim.receiver(taken[0].dead_letter, 9).take()
    assert message_id_of(dead.message.content) == "cause"


@pytest.mark.one_node("looks into the topic itself")
@pytest.mark.parametrize("is_too_large", [False, True])
def test_the_limit_of_copies_is_looked_at_where_they_are_made(
    sim: Simulation,
    topic: TopicEntity,
    taken: list[SubscriptionEntity],
    is_too_large: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not with each operation: to count them takes as long as to choose them."""
    size = len(taken) * sum([len(message.content) for message in batch()])
    monkeypatch.setattr("twinbus.broker.entity.topic_room.COPIES_BYTES_MAX", size - is_too_large)
    asked: list[Message] = []
    monkeypatch.setattr(topic._room, "_copy_count", asked.append)
    answer = commit(sim, large(sim, topic))
    sim.run()
    assert isinstance(answer.error, MessageTooLarge) == is_too_large
    assert active(taken) == [0 if is_too_large else COUNT] * 3
    assert asked == []


@pytest.mark.one_node("breaks the rules of the topic itself")
def test_a_bug_while_the_copies_are_made_fails_it_and_the_line_goes_on(
    sim: Simulation,
    topic: TopicEntity,
    taken: list[SubscriptionEntity],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a rule that breaks")

    delivery = locked(sim, topic, taken[0])
    transaction = large(sim, topic)
    transaction.settle(taken[0].main, [delivery.lock_token], COMPLETE, sim.now)
    answer = commit(sim, transaction)
    with monkeypatch.context() as patch:
        patch.setattr(topic.rules, "match", broken)
        sim.turn()
    assert type(answer.error) is MessagingError
    assert [record.msg for record in caplog.records] == ["send_broken"]
    assert sim.settle(taken[0].main, [delivery]).good == {0}
    assert sim.send(topic, make_message("next")).good == {0}
    assert active(taken) == [1, 2, 2]


def build(at_once: int, seed: int, patch: Callable[[int], None]) -> dict[str, list[object]]:
    """What is everywhere after a transaction with a bit of everything."""
    patch(at_once)
    random, sim = Random(seed), Simulation()
    topic = sim.topic(TopicDescription("t", requires_duplicate_detection=seed % 2 == 0))
    for number in range(9):
        description = SubscriptionDescription(
            "t", f"s{number}", requires_session=number % 4 == 1, dead_letter_on_filter_error=number % 2 == 0
        )
        rules = [
            RuleDescription("$Default"),
            RuleDescription("high", SqlFilter("n > 20")),
            RuleDescription("act", SqlFilter("n < 10"), SqlAction("SET seen = 'yes'")),
            RuleDescription("bad", SqlFilter("n / 0 > 1")),
        ]
        sim.subscription(description, random.sample(rules, random.randint(1, 3)))
    settled = next(iter(topic.subscriptions.values()))
    sim.send(topic, *[make_message(f"old {number}", application_properties={"n": 7}) for number in range(3)])
    held = sim.receiver(settled.main, 9).take()
    transaction = sim.transaction()
    outcomes: list[Outcome] = [COMPLETE, DeadLetter("why")]
    for delivery, outcome in zip(held, outcomes, strict=False):
        transaction.settle(settled.main, [delivery.lock_token], outcome, sim.now)
    for number in range(30):
        message = make_message(
            str(random.randint(0, 29)),
            session_id=f"s{number % 2}" if number % 5 else None,
            time_to_live=random.choice([None, 10_000, 3_000_000]),
            application_properties={"n": number},
            is_ping=number == 11,
            scheduled_at=sim.now + 500 if number == 13 else None,
        )
        transaction.send(topic, [message], sim.now)
    transaction.send(topic.via("elsewhere"), [make_message("away")], sim.now)
    answer: Answer[None] = Answer()
    transaction.commit(sim.now, answer)
    sim.run()
    assert answer.value is None
    found: dict[str, list[object]] = {"": [topic.counts(), topic.transfer_dead_letter.counts().active]}
    for subscription in topic.subscriptions.values():
        for queue in (subscription.main, subscription.dead_letter):
            rows = sim.ask(queue, Peek(0, 250)).value
            found[f"{subscription.description.name}/{queue.fragments[0].sub_queue.name}"] = [*rows]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_steps_change_nothing_but_the_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def patch(at_once: int) -> None:
        monkeypatch.setattr(topic_placement, "COPIES_AT_ONCE", at_once)

    in_steps, at_once = build(1, seed, patch), build(1_000_000, seed, patch)
    assert in_steps == at_once
    assert sum(map(len, in_steps.values())) > 30
