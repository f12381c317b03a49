"""What a fragment takes under a name: whoever asks again gets the same answer, and nothing is stored again (contract A4.6)."""

from collections.abc import Sequence

import pytest

from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.broker.fragment import names
from twinbus.broker.fragment.duplicates import PRUNE_INTERVAL
from twinbus.broker.fragment.names import NAMES_KEPT, SecondTry
from twinbus.broker.target import Target
from twinbus.clock import Millis
from twinbus.errors import (
    EntityDisabled,
    FragmentUnavailable,
    MessagingError,
    OutcomeUnknown,
    QuotaExceeded,
    ServerBusy,
    StoreUnavailable,
)
from twinbus.model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import Message
from twinbus.store.changes import fragment_index, fragment_key
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, EachReply, Simulation

pytestmark = pytest.mark.one_node("between nodes: tests of the cluster")

HOUR: Millis = 3_600_000
PARTITIONED = QueueDescription("q", enable_partitioning=True)


@pytest.fixture
def sim() -> Simulation:
    return Simulation(2)


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(PARTITIONED)


class NumbersReply(EachReply):
    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[int, int] = {}

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis) -> None:
        super().accepted(indexes, numbers, now)
        self.numbers.update(zip(indexes, numbers, strict=True))


class Sent:
    """Of a second try, each by itself or all together."""

    def __init__(
        self, sim: Simulation, target: Target, messages: Sequence[Message], second: SecondTry, *, is_batch: bool
    ) -> None:
        self._is_batch = is_batch
        self._each, self._batch = NumbersReply(), Answer[list[int]]()
        placement = target.placement  # type: ignore[attr-defined]
        if is_batch:
            placement.send_together_again(messages, second, sim.now, self._batch)
        else:
            placement.send_each_again(messages, second, sim.now, self._each)

    @property
    def numbers(self) -> list[int]:
        if self._is_batch:
            return self._batch.value
        return [self._each.numbers[index] for index in sorted(self._each.numbers)]

    @property
    def error(self) -> MessagingError | None:
        return self._batch.error if self._is_batch else self._each.errors.get(0)

    @property
    def has_come(self) -> bool:
        return self._batch.has_come or bool(self._each.good or self._each.errors)


def send(
    sim: Simulation, target: object, *ids: str, fragment: int = 3, is_batch: bool = False, **named: object
) -> Sent:
    messages = [make_message(each, **named) for each in ids]  # type: ignore[arg-type]
    second = SecondTry(fragment, [f"n.{each}" for each in ids])
    sent = Sent(sim, target, messages, second, is_batch=is_batch)  # type: ignore[arg-type]
    sim.run()
    return sent


both_ways = pytest.mark.parametrize("is_batch", [False, True])


@both_ways
def test_what_is_known_by_name_is_acknowledged_with_its_number_and_not_stored_again(
    sim: Simulation, queue: QueueEntity, is_batch: bool
) -> None:
    first = send(sim, queue, "a", "b", is_batch=is_batch)
    again = send(sim, queue, "a", "b", is_batch=is_batch)
    assert again.numbers == first.numbers
    assert {fragment_index(fragment.key) for fragment in queue.main.fragments if fragment.lane.ready} == {3}
    assert sim.receiver(queue.main, 9).ids() == ["a", "b"]


@both_ways
def test_what_another_message_has_as_its_id_is_no_name(sim: Simulation, queue: QueueEntity, is_batch: bool) -> None:
    send(sim, queue, "a", is_batch=is_batch)
    sim.send(queue, make_message("n.a"), make_message("a"))
    assert sorted(sim.receiver(queue.main, 9).ids()) == ["a", "a", "n.a"]


def test_of_messages_together_only_those_that_are_not_known_are_stored(sim: Simulation, queue: QueueEntity) -> None:
    (number,) = send(sim, queue, "b").numbers
    assert send(sim, queue, "a", "b", "c").numbers == [number + 1, number, number + 2]
    assert sim.receiver(queue.main, 9).ids() == ["b", "a", "c"]


@both_ways
def test_a_name_is_written_with_its_message_and_outlives_a_lost_answer(
    sim: Simulation, queue: QueueEntity, is_batch: bool
) -> None:
    port = sim.ports[queue.main.fragments[3].broker.index]
    send(sim, queue, "z", is_batch=is_batch)  # the names have been read
    port.next_fault = Fault.LOSE_REPLY
    assert isinstance(send(sim, queue, "a", is_batch=is_batch).error, OutcomeUnknown)
    sim.return_store(queue.main.fragments[3].broker.index)
    (number,) = send(sim, queue, "a", is_batch=is_batch).numbers
    deliveries = sim.receiver(queue.main, 9).take()
    assert [each.message.sequence_number for each in deliveries] == [number - 1, number]


@both_ways
def test_where_the_store_failed_before_it_wrote_the_message_is_stored_when_it_comes_again(
    sim: Simulation, queue: QueueEntity, is_batch: bool
) -> None:
    send(sim, queue, "z", is_batch=is_batch)
    sim.ports[queue.main.fragments[3].broker.index].next_fault = Fault.FAIL_BEFORE
    assert isinstance(send(sim, queue, "a", is_batch=is_batch).error, OutcomeUnknown)
    sim.return_store(queue.main.fragments[3].broker.index)
    assert send(sim, queue, "a", is_batch=is_batch).error is None
    assert sim.receiver(queue.main, 9).ids() == ["z", "a"]


@both_ways
def test_what_is_on_its_way_to_the_store_is_not_acknowledged_before_it_is_there(
    sim: Simulation, queue: QueueEntity, is_batch: bool
) -> None:
    send(sim, queue, "z", is_batch=is_batch)
    broker = queue.main.fragments[3].broker
    second = SecondTry(3, ["n"])
    sent = [Sent(sim, queue, [make_message("a")], second, is_batch=is_batch) for _ in range(2)]
    assert not sent[1].has_come
    sim.ports[broker.index].next_fault = Fault.FAIL_BEFORE
    sim.run()
    assert isinstance(sent[1].error, OutcomeUnknown)


@both_ways
def test_while_names_are_read_what_comes_waits_in_its_order(
    sim: Simulation, queue: QueueEntity, is_batch: bool
) -> None:
    sent = [Sent(sim, queue, [make_message(name)], SecondTry(3, [name]), is_batch=is_batch) for name in ("a", "b", "a")]
    before = sum(port.query_count for port in sim.ports)
    sim.run()
    assert sum(port.query_count for port in sim.ports) == before + 1
    assert sent[2].numbers == sent[0].numbers
    assert sim.receiver(queue.main, 9).ids() == ["a", "b"]


@both_ways
def test_where_names_cannot_be_read_nothing_was_stored(sim: Simulation, queue: QueueEntity, is_batch: bool) -> None:
    sent = Sent(sim, queue, [make_message("a")], SecondTry(3, ["n"]), is_batch=is_batch)
    sim.lose_store(queue.main.fragments[3].broker.index)
    assert isinstance(sent.error, FragmentUnavailable)
    assert not isinstance(sent.error, OutcomeUnknown)
    sim.return_store(queue.main.fragments[3].broker.index)
    assert send(sim, queue, "a", is_batch=is_batch).error is None


@both_ways
def test_names_are_asked_of_the_store_once_and_by_second_tries_alone(
    sim: Simulation, queue: QueueEntity, is_batch: bool
) -> None:
    sim.restart()
    sim.send(sim.entities.queue("q"), make_message("a"))
    load_count = sum(port.query_count for port in sim.ports)
    assert load_count == len(sim.ports)
    queue = sim.entities.queue("q")
    for _ in range(3):
        send(sim, queue, "b", is_batch=is_batch)
    assert sum(port.query_count for port in sim.ports) == load_count + 1


@both_ways
def test_names_outlive_a_restart(sim: Simulation, queue: QueueEntity, is_batch: bool) -> None:
    first = send(sim, queue, "a", is_batch=is_batch)
    sim.restart()
    queue = sim.entities.queue("q")
    assert send(sim, queue, "a", is_batch=is_batch).numbers == first.numbers
    assert sim.receiver(queue.main, 9).ids() == ["a"]


def names_in_stores(sim: Simulation, queue: QueueEntity) -> int:
    stores = [port.store for port in sim.ports]
    return sum(len(stores[each.broker.index].duplicates(each.key)) for each in queue.main.fragments)


def test_names_are_forgotten_after_their_time(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "a")
    sim.advance(NAMES_KEPT - 1, NAMES_KEPT - 1)
    send(sim, queue, "b")
    assert names_in_stores(sim, queue) == 2
    sim.advance(PRUNE_INTERVAL + 1)
    assert names_in_stores(sim, queue) == 1
    sim.advance(NAMES_KEPT)
    assert names_in_stores(sim, queue) == 0
    send(sim, queue, "a")
    assert sim.receiver(queue.main, 9).ids() == ["a", "b", "a"]


def test_a_name_is_forgotten_from_its_end_on_and_not_before(sim: Simulation) -> None:
    known = names.Names(fragment_key(1, 0), sim.brokers[0])
    known.take(["first"], [1], 1_000)
    known.take(["second"], [2], 2_000)
    assert known.next_end == 1_000 + NAMES_KEPT + PRUNE_INTERVAL
    assert known.forget(999 + NAMES_KEPT) == 0
    assert known.forget(1_000 + NAMES_KEPT) == 1_000 + NAMES_KEPT
    assert known.next_end == 2_000 + NAMES_KEPT + PRUNE_INTERVAL
    assert known.numbers(["second"]) == [2]
    with pytest.raises(KeyError):
        known.numbers(["first"])


def test_names_that_ended_while_nobody_knew_them_are_known_from_the_next_second_try_on_and_forgotten_later(
    sim: Simulation, queue: QueueEntity
) -> None:
    """Whoever wrote them may have had another clock."""
    send(sim, queue, "a")
    sim.restart()
    sim.advance(NAMES_KEPT + PRUNE_INTERVAL)
    queue = sim.entities.queue("q")
    send(sim, queue, "b")
    sim.advance(NAMES_KEPT - 1, NAMES_KEPT - 1)
    assert names_in_stores(sim, queue) == 2
    sim.advance(PRUNE_INTERVAL + 1)
    assert names_in_stores(sim, queue) == 0


@pytest.mark.parametrize("by", [HOUR, -HOUR], ids=["forward", "back"])
def test_names_last_as_long_as_ever_when_the_clock_is_set(sim: Simulation, queue: QueueEntity, by: Millis) -> None:
    (number,) = send(sim, queue, "a").numbers
    sim.advance(NAMES_KEPT // 2)
    sim.set_clock(by)
    sim.advance(NAMES_KEPT // 2 - 1)
    assert send(sim, queue, "a").numbers == [number]
    sim.advance(PRUNE_INTERVAL + 1)
    assert send(sim, queue, "a").numbers == [number + 1]


@pytest.mark.parametrize("by", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_name_that_is_forgotten_takes_none_with_it_out_of_the_store_that_is_known(
    sim: Simulation, queue: QueueEntity, by: Millis
) -> None:
    """The ends in the store are those of the clock as it was: whoever reads them next must find those that count still."""
    send(sim, queue, "a")
    sim.advance(NAMES_KEPT - 1, NAMES_KEPT - 1)
    first = send(sim, queue, "b")
    sim.set_clock(by)
    second = send(sim, queue, "c")
    sim.advance(PRUNE_INTERVAL + 1)
    sim.restart()
    queue = sim.entities.queue("q")
    assert send(sim, queue, "b").numbers == first.numbers
    assert send(sim, queue, "c").numbers == second.numbers
    assert sim.receiver(queue.main, 9).ids() == ["a", "b", "c"]


@both_ways
def test_a_fragment_whose_store_is_about_to_move_takes_nothing(
    sim: Simulation, queue: QueueEntity, is_batch: bool
) -> None:
    queue.main.fragments[3].broker.retire()
    for _ in range(2):
        assert isinstance(send(sim, queue, "a", is_batch=is_batch).error, FragmentUnavailable)


def test_what_is_known_is_acknowledged_where_there_is_no_room_for_the_others(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("small", enable_partitioning=True, max_size_mb=1))
    (number,) = send(sim, queue, "a", body=bytes(600_000)).numbers
    messages = [make_message(name, body=bytes(600_000)) for name in "abc"]
    reply = NumbersReply()
    queue.placement.send_each_again(messages, SecondTry(3, ["n.a", "n.b", "n.c"]), sim.now, reply)
    sim.run()
    assert reply.numbers == {0: number}
    assert {type(error) for error in reply.errors.values()} == {QuotaExceeded}


@both_ways
def test_a_fragment_that_knows_too_many_names_takes_no_more(
    sim: Simulation, queue: QueueEntity, is_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "KEYS_MAX", 2)
    send(sim, queue, "a", "b", is_batch=is_batch)
    assert isinstance(send(sim, queue, "c", is_batch=is_batch).error, ServerBusy)
    assert send(sim, queue, "a", is_batch=is_batch).error is None
    assert send(sim, queue, "c", fragment=4, is_batch=is_batch).error is None


@both_ways
def test_an_entity_that_takes_nothing_takes_no_second_try(sim: Simulation, is_batch: bool) -> None:
    disabled = QueueDescription("off", enable_partitioning=True, status=EntityStatus.SEND_DISABLED)
    sent = send(sim, sim.queue(disabled), "a", is_batch=is_batch)
    assert isinstance(sent.error, EntityDisabled)


@both_ways
def test_who_scheduled_gets_the_number_to_cancel_with(sim: Simulation, queue: QueueEntity, is_batch: bool) -> None:
    send(sim, queue, "a", is_batch=is_batch, scheduled_at=sim.now + 60_000)
    again = send(sim, queue, "a", is_batch=is_batch, scheduled_at=sim.now + 60_000)
    cancelled: Answer[None] = Answer()
    queue.cancel_scheduled(again.numbers, sim.now, cancelled)
    sim.run()
    assert cancelled.value is None
    assert queue.main.counts().scheduled == 0


def test_a_ping_that_comes_again_has_a_number(sim: Simulation, queue: QueueEntity) -> None:
    first = send(sim, queue, "a", is_ping=True)
    assert send(sim, queue, "a", is_ping=True).numbers == first.numbers
    assert queue.main.counts().active == 0


# Topics, and what is sent via an entity


def topic_with(sim: Simulation, count: int) -> tuple[TopicEntity, list[SubscriptionEntity]]:
    topic = sim.topic(TopicDescription("t", enable_partitioning=True))
    return topic, [sim.subscription(SubscriptionDescription("t", f"s{number}")) for number in range(count)]


@both_ways
def test_copies_of_what_a_topic_knows_by_name_are_made_once(sim: Simulation, is_batch: bool) -> None:
    topic, subscriptions = topic_with(sim, 2)
    first = send(sim, topic, "a", is_batch=is_batch)
    assert send(sim, topic, "a", "b", is_batch=is_batch).numbers[0] == first.numbers[0]
    for subscription in subscriptions:
        assert sim.receiver(subscription.main, 9).ids() == ["a", "b"]


@both_ways
def test_copies_that_are_made_in_steps_are_made_once(
    sim: Simulation, is_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, (subscription, _) = topic_with(sim, 2)
    monkeypatch.setattr(type(topic.placement), "count_at_once", 1)
    second = SecondTry(3, [f"n.{number}" for number in range(5)])
    messages = [make_message(str(number)) for number in range(5)]
    sent = [Sent(sim, topic, messages, second, is_batch=is_batch) for _ in range(3)]
    sim.run()
    assert sent[2].numbers == sent[0].numbers
    sim.restart()
    topic = sim.entities.topic("t")
    again = Sent(sim, topic, messages, second, is_batch=is_batch)
    sim.run()
    assert again.numbers == sent[0].numbers
    subscription = sim.entities.subscription("t", "s0")
    assert sim.receiver(subscription.main, 99).ids() == list("01234")


@both_ways
def test_what_waits_its_turn_in_a_topic_while_the_store_is_lost_and_returns_is_not_taken(
    sim: Simulation, is_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of before are forgotten, and those that the store has are not read yet."""
    topic, _ = topic_with(sim, 1)
    monkeypatch.setattr(type(topic.placement), "count_at_once", 1)
    send(sim, topic, "z")
    sent = Sent(sim, topic, [make_message("a"), make_message("b")], SecondTry(3, ["a", "b"]), is_batch=is_batch)
    broker = topic.main_fragments[3].broker
    broker.store_lost(StoreUnavailable("for a moment"))
    broker.store_returned()
    sim.ports[broker.index].run()
    sim.run()
    assert isinstance(sent.error, FragmentUnavailable)
    assert not isinstance(sent.error, OutcomeUnknown)


@pytest.mark.parametrize("detects", [False, True])
@both_ways
def test_what_is_sent_via_an_entity_is_taken_once(sim: Simulation, is_batch: bool, detects: bool) -> None:
    """Also where the entity itself detects duplicates: those have no part in what only passes through."""
    description = QueueDescription("h", enable_partitioning=True, requires_duplicate_detection=detects)
    home, target = sim.queue(description), sim.queue(QueueDescription("target"))
    way = home.via("target")
    send(sim, way, "a", is_batch=is_batch)
    send(sim, way, "a", is_batch=is_batch)
    sim.run()
    assert sim.receiver(target.main, 9).ids() == ["a"]


@both_ways
def test_the_names_of_a_queue_go_with_it(sim: Simulation, queue: QueueEntity, is_batch: bool) -> None:
    send(sim, queue, "a", is_batch=is_batch)
    deleted: Answer[None] = Answer()
    sim.entities.delete("q", sim.now, deleted)
    sim.run()
    again = sim.queue(PARTITIONED)
    send(sim, again, "a", is_batch=is_batch)
    assert sim.receiver(again.main, 9).ids() == ["a"]
