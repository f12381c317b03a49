"""Messages repaired where they lie: moved home or elsewhere, changed on the way, or removed; in one place at every moment."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from twinbus.broker.commands import (
    REFUSALS_MAX,
    REPAIRED_NUMBERS_MAX,
    ListFragments,
    PreviewRepair,
    Repair,
    RepairPage,
)
from twinbus.broker.consumer import TakenMessage
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.operations import repair
from twinbus.broker.outcomes import COMPLETE, Abandon, DeadLetter, Defer
from twinbus.errors import (
    ArgumentError,
    EntityDisabled,
    EntityNotFound,
    FragmentUnavailable,
    MessagingError,
    NotAllowed,
    QuotaExceeded,
    ServerBusy,
)
from twinbus.model.content import application_properties, properties
from twinbus.model.descriptions import (
    EntityStatus,
    QueueDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.partition_key import candidates
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, Simulation

HOUR = 3_600_000


@pytest.fixture
def sim() -> Simulation:
    return Simulation(4)


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q", enable_partitioning=True, lock_duration=5_000))


def bury(sim: Simulation, queue: QueueEntity, *names: str, reason: str = "broken", colour: str = "red") -> None:
    """Send messages, and dead-letter them."""
    for name in names:
        sim.send(queue, make_message(name, body=name.encode(), application_properties={"colour": colour}))
    dead_letter_all(sim, queue.main, reason)


def dead_letter_all(sim: Simulation, queue: MessageQueue, reason: str = "broken") -> None:
    receiver = sim.receiver(queue, 1_000)
    sim.settle(queue, receiver.take(), DeadLetter(reason, "a description"))
    queue.detach(receiver, sim.now)


def repaired(sim: Simulation, queue: MessageQueue, **wanted: object) -> list[RepairPage]:
    """The pages of a repair of all fragments."""
    pages = []
    for head in sim.ask(queue, ListFragments()).value:
        following: int | None = head.first_number
        while following is not None and following <= head.last_number:
            page = sim.ask(queue, Repair(following, head.last_number, **wanted)).value  # type: ignore[arg-type]
            pages.append(page)
            following = page.next_number
    return pages


def count(pages: list[RepairPage]) -> int:
    return sum(len(page.numbers) for page in pages)


def taken(sim: Simulation, queue: MessageQueue) -> list[TakenMessage]:
    """All that can be received; it is completed."""
    receiver = sim.receiver(queue, 1_000)
    queue.detach(receiver, sim.now)
    deliveries = receiver.take()
    sim.settle(queue, deliveries, COMPLETE)
    return deliveries


def names(sim: Simulation, queue: MessageQueue) -> list[str]:
    return sorted(message_id_of(delivery.message.content) for delivery in taken(sim, queue))


def test_a_dead_letter_comes_home_as_it_was_before(sim: Simulation, queue: QueueEntity) -> None:
    sent = make_message("m", body=b"text", time_to_live=HOUR, application_properties={"colour": "red"})
    sim.send(queue, sent)
    dead_letter_all(sim, queue.main)
    sim.advance(2 * HOUR)  # longer than it may live: a dead letter does not expire, and its time starts anew
    assert count(repaired(sim, queue.dead_letter)) == 1
    assert queue.dead_letter.counts().active == 0
    found = taken(sim, queue.main)[0].message
    assert found.content == sent.content
    assert (found.delivery_count, found.enqueued_at, found.expires_at) == (0, sim.now, sim.now + HOUR)


@pytest.mark.parametrize(("resets", "expected"), [(False, 2), (True, 0)])
def test_a_repair_leaves_the_delivery_count_alone_unless_asked_to(sim: Simulation, resets: bool, expected: int) -> None:
    queue = sim.queue(QueueDescription("strict", max_delivery_count=2, lock_duration=5_000))
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 10)
    sim.advance(5_001)
    sim.advance(5_001)
    queue.main.detach(receiver, sim.now)
    assert queue.dead_letter.counts().active == 1
    assert count(repaired(sim, queue.dead_letter, resets_delivery_count=resets)) == 1
    assert taken(sim, queue.main)[0].message.delivery_count == expected


def test_an_action_that_leaves_the_key_alone_brings_a_message_of_an_ordinary_queue_home(sim: Simulation) -> None:
    """As it was before, and not as one that is sent anew."""
    queue = sim.queue(QueueDescription("plain"))
    sim.send(queue, make_message("m", partition_key="order-1"))
    for outcome in (Abandon(), DeadLetter("why")):
        receiver = sim.receiver(queue.main, 1)
        sim.settle(queue.main, receiver.take(), outcome)
        queue.main.detach(receiver, sim.now)
    assert count(repaired(sim, queue.dead_letter, action=SqlAction("SET colour = 'blue'"))) == 1
    (found,) = taken(sim, queue.main)
    assert found.message.delivery_count == 1


@pytest.mark.parametrize("destination", [None, "other"])
def test_a_repaired_message_knows_the_number_that_it_had_first(sim: Simulation, destination: str | None) -> None:
    plain, other = sim.queue(QueueDescription("plain")), sim.queue(QueueDescription("other"))
    sim.send(plain, make_message("first"))
    assert names(sim, plain.main) == ["first"]
    sim.send(plain, make_message("second"))
    source = plain.main
    if destination is None:
        dead_letter_all(sim, plain.main)
        source = plain.dead_letter
    assert count(repaired(sim, source, destination=destination)) == 1
    (found,) = taken(sim, plain.main if destination is None else other.main)
    assert found.message.enqueued_sequence_number == 2


def test_a_repair_takes_those_that_the_filter_matches(sim: Simulation, queue: QueueEntity) -> None:
    bury(sim, queue, "a", "b", reason="timeout")
    bury(sim, queue, "c", reason="poison")
    pages = repaired(sim, queue.dead_letter, filter=SqlFilter("DeadLetterReason = 'timeout' AND colour = 'red'"))
    assert (count(pages), sum(page.examined_count for page in pages)) == (2, 3)
    assert names(sim, queue.main) == ["a", "b"]
    assert names(sim, queue.dead_letter) == ["c"]


def test_an_action_changes_messages_on_the_way(sim: Simulation, queue: QueueEntity) -> None:
    bury(sim, queue, "m", reason="wrong colour")
    action = SqlAction("SET was = DeadLetterReason; SET colour = 'blue'; SET sys.Label = 'repaired'")
    repaired(sim, queue.dead_letter, action=action)
    content = taken(sim, queue.main)[0].message.content
    assert application_properties(content) == {"colour": "blue", "was": "wrong colour"}
    assert properties(content).subject == "repaired"


def test_what_is_removed_is_gone(sim: Simulation, queue: QueueEntity) -> None:
    bury(sim, queue, "a", "b")
    assert count(repaired(sim, queue.dead_letter, removes=True, filter=SqlFilter("sys.MessageId = 'a'"))) == 1
    assert names(sim, queue.main) == []
    assert names(sim, queue.dead_letter) == ["b"]


def test_messages_are_repaired_by_number(sim: Simulation, queue: QueueEntity) -> None:
    bury(sim, queue, *map(str, range(40)))
    heads = [head for head in sim.ask(queue.dead_letter, ListFragments()).value if head.active > 1]
    first = heads[0].first_number
    page = sim.ask(queue.dead_letter, Repair(first, first, numbers=[first])).value
    assert page.numbers == [first]
    assert queue.main.counts().active == 1


def test_as_many_numbers_as_may_be_named_at_a_time_are_repaired(sim: Simulation) -> None:
    plain = sim.queue(QueueDescription("plain"))
    bury(sim, plain, "a", "b", "c")
    wanted = Repair(1, 9, numbers=[1, 3, *range(4, REPAIRED_NUMBERS_MAX + 2)])
    assert sim.ask(plain.dead_letter, wanted).value.numbers == [1, 3]
    assert names(sim, plain.main) == ["a", "c"]


def test_messages_that_somebody_holds_are_left_alone(sim: Simulation, queue: QueueEntity) -> None:
    bury(sim, queue, *map(str, range(20)))
    holder = sim.receiver(queue.dead_letter, 3)
    held = holder.take()
    holder.credit = 0
    pages = repaired(sim, queue.dead_letter)
    assert (count(pages), sum(page.held_count for page in pages)) == (17, 3)
    assert sim.settle(queue.dead_letter, held).good == {0, 1, 2}
    assert queue.dead_letter.counts().active == 0


def test_dead_letters_of_a_subscription_go_back_to_it_alone(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("t", enable_partitioning=True))
    one, other = (sim.subscription(SubscriptionDescription("t", name)) for name in ("one", "other"))
    sim.send(topic, *[make_message(str(number)) for number in range(5)])
    dead_letter_all(sim, one.main)
    assert count(repaired(sim, one.dead_letter)) == 5
    assert names(sim, one.main) == ["0", "1", "2", "3", "4"]
    assert other.main.counts().active == 5


def test_a_dead_letter_goes_back_to_its_message_session(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("talks", enable_partitioning=True, requires_session=True))
    sim.send(queue, make_message("m", session_id="s"))
    lock = sim.accept(queue.main, "s").value
    sim.settle(queue.main, sim.receiver(queue.main, 1, session=lock).take(), DeadLetter("why"))
    queue.main.release_session(lock, sim.now)
    assert count(repaired(sim, queue.dead_letter)) == 1
    lock = sim.accept(queue.main, "s").value
    assert sim.receiver(queue.main, 1, session=lock).ids() == ["m"]


def test_a_dead_letter_that_lost_its_session_id_does_not_go_back_among_message_sessions(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("ordered", requires_session=True))
    sim.send(queue, make_message("m", session_id="s"))
    receiver = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "s").value)
    sim.settle(queue.main, receiver.take(), DeadLetter("broken"))
    (page,) = repaired(sim, queue.dead_letter, action=SqlAction("SET sys.SessionId = NULL"))
    assert page.numbers == []
    assert [refusal.reason for refusal in page.refusals] == [
        "'ordered' requires message sessions. Set sys.SessionId in the action."
    ]
    assert queue.dead_letter.counts().active == 1


@pytest.mark.parametrize("destination", [None, "once", "ONCE"])
def test_duplicate_detection_does_not_drop_what_comes_home(sim: Simulation, destination: str | None) -> None:
    """Whether or not home is named."""
    queue = sim.queue(QueueDescription("once", enable_partitioning=True, requires_duplicate_detection=True))
    bury(sim, queue, "m")
    assert count(repaired(sim, queue.dead_letter, destination=destination)) == 1
    assert queue.transfer_counts().active == 0
    assert names(sim, queue.main) == ["m"]


def test_messages_for_another_entity_are_sent_on_from_their_own(sim: Simulation, queue: QueueEntity) -> None:
    other = sim.queue(QueueDescription("other", enable_partitioning=True))
    bury(sim, queue, *map(str, range(20)))
    assert count(repaired(sim, queue.dead_letter, destination="OTHER", action=SqlAction("SET colour = 'blue'"))) == 20
    sim.tick()
    found = taken(sim, other.main)
    assert {message_id_of(each.message.content) for each in found} == set(map(str, range(20)))
    assert all(application_properties(each.message.content) == {"colour": "blue"} for each in found)
    assert queue.transfer_counts().active == 0


def test_a_destination_that_detects_duplicates_needs_a_new_id(sim: Simulation, queue: QueueEntity) -> None:
    other = sim.queue(QueueDescription("other", requires_duplicate_detection=True))
    bury(sim, queue, "m")
    page = next(page for page in repaired(sim, queue.dead_letter, destination="other") if page.refused_count)
    assert "newid()" in page.refusals[0].reason
    assert queue.dead_letter.counts().active == 1
    renamed = SqlAction("SET sys.MessageId = 'fresh'")
    assert count(repaired(sim, queue.dead_letter, destination="other", action=renamed)) == 1
    sim.tick()
    assert names(sim, other.main) == ["fresh"]


def test_a_message_with_a_new_key_goes_to_the_fragment_of_that_key(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("talks", enable_partitioning=True, requires_session=True))
    for name in ("a", "b", "c"):
        sim.send(queue, make_message(name, session_id=name))
        lock = sim.accept(queue.main, name).value
        sim.settle(queue.main, sim.receiver(queue.main, 1, session=lock).take(), DeadLetter("why"))
        queue.main.release_session(lock, sim.now)
    assert count(repaired(sim, queue.dead_letter, action=SqlAction("SET sys.SessionId = 'new'"))) == 3
    sim.tick()
    lock = sim.accept(queue.main, "new").value
    assert sorted(sim.receiver(queue.main, 9, session=lock).ids()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("session_id", "partition_key", "why"),
    [(None, "old", "partition key"), ("old", None, "belongs to another fragment of its topic")],
)
def test_a_message_of_a_subscription_keeps_its_key(
    sim: Simulation, session_id: str | None, partition_key: str | None, why: str
) -> None:
    topic = sim.topic(TopicDescription("t", enable_partitioning=True))
    subscription = sim.subscription(SubscriptionDescription("t", "s"))
    messages = [make_message(str(number), session_id=session_id, partition_key=partition_key) for number in range(3)]
    sim.send(topic, *messages)
    dead_letter_all(sim, subscription.main)
    pages = repaired(sim, subscription.dead_letter, action=SqlAction("SET sys.SessionId = 'new'"))
    assert (count(pages), sum(page.refused_count for page in pages)) == (0, 3)
    assert all(why in refusal.reason.lower() for page in pages for refusal in page.refusals)
    assert subscription.dead_letter.counts().active == 3


def test_a_message_of_a_subscription_that_has_no_key_stays_in_its_fragment(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("t", enable_partitioning=True))
    subscription = sim.subscription(SubscriptionDescription("t", "s"))
    sim.send(topic, *[make_message(str(number)) for number in range(3)])
    dead_letter_all(sim, subscription.main)
    assert count(repaired(sim, subscription.dead_letter, action=SqlAction("SET colour = 'blue'"))) == 3
    assert names(sim, subscription.main) == ["0", "1", "2"]


def test_an_action_that_fails_leaves_the_message_where_it_is(sim: Simulation, queue: QueueEntity) -> None:
    bury(sim, queue, *map(str, range(2 * REFUSALS_MAX)), reason="why")
    head = max(sim.ask(queue.dead_letter, ListFragments()).value, key=lambda head: head.active)
    page = sim.ask(
        queue.dead_letter, Repair(head.first_number, head.last_number, action=SqlAction("SET sys.MessageId = missing"))
    ).value
    assert (page.numbers, page.refused_count) == ([], head.active)
    assert queue.dead_letter.counts().active == 2 * REFUSALS_MAX


def test_no_more_reasons_are_given_than_fit_in_a_page(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("plain"))
    bury(sim, queue, *map(str, range(REFUSALS_MAX + 1)))
    page = repaired(sim, queue.dead_letter, action=SqlAction("SET sys.MessageId = missing"))[0]
    assert (page.refused_count, len(page.refusals)) == (REFUSALS_MAX + 1, REFUSALS_MAX)


def test_one_command_looks_at_a_bounded_number_of_messages(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("plain"))
    bury(sim, queue, *map(str, range(10)))
    page = sim.ask(queue.dead_letter, Repair(1, 10, count_max=4)).value
    assert (page.numbers, page.examined_count, page.next_number) == ([1, 2, 3, 4], 4, 5)
    page = sim.ask(queue.dead_letter, Repair(5, 9, count_max=100)).value
    assert (page.numbers, page.next_number) == ([5, 6, 7, 8, 9], None)


def test_large_messages_are_read_a_few_at_a_time(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their numbers too, and for a preview: a thousand may be named, and each may have a hundred megabytes."""
    monkeypatch.setattr(repair, "STEP_BYTES_MAX", 500)
    monkeypatch.setattr(repair, "PREVIEW_BYTES_MAX", 500)
    plain = sim.queue(QueueDescription("plain"))
    for number in range(5):
        sim.send(plain, make_message(str(number), body=bytes(400)))
    dead_letter_all(sim, plain.main)
    shown = sim.ask(plain.dead_letter, PreviewRepair(Repair(1, 5), 5)).value
    assert ([each.before.sequence_number for each in shown.previews], shown.next_number) == ([1], 2)
    port = sim.ports[plain.fragments[0].broker.index]
    before = port.commit_count
    page = sim.ask(plain.dead_letter, Repair(1, 9, numbers=[9, 1, 2, 4, 5, 8])).value
    assert (page.numbers, page.next_number) == ([1, 2, 4, 5], None)
    assert port.commit_count == before + 4


def test_a_preview_shows_what_would_change_and_changes_nothing(sim: Simulation, queue: QueueEntity) -> None:
    plain = sim.queue(QueueDescription("plain"))
    bury(sim, plain, *map(str, range(5)), colour="red")
    wanted = Repair(1, 5, action=SqlAction("SET colour = 'blue'"), filter=SqlFilter("sys.MessageId <> '0'"))
    page = sim.ask(plain.dead_letter, PreviewRepair(wanted, 2)).value
    assert [message_id_of(each.before.content) for each in page.previews] == ["1", "2"]
    after = [each.after for each in page.previews]
    assert all(row is not None and application_properties(row.content) == {"colour": "blue"} for row in after)
    assert page.next_number == 4
    assert plain.dead_letter.counts().active == 5
    removal = sim.ask(plain.dead_letter, PreviewRepair(Repair(1, 5, removes=True), 9)).value
    assert [(each.after, each.refusal) for each in removal.previews] == [(None, None)] * 5
    refused = sim.ask(
        plain.dead_letter, PreviewRepair(replace(wanted, action=SqlAction("SET sys.MessageId = missing")), 9)
    ).value
    assert all(each.after is None and each.refusal for each in refused.previews)


def test_a_message_that_expires_at_this_moment_is_neither_shown_nor_repaired(sim: Simulation) -> None:
    plain, other = sim.queue(QueueDescription("plain")), sim.queue(QueueDescription("other"))
    sim.send(plain, make_message("a", time_to_live=1_000), make_message("b", time_to_live=1_001))
    sim.clock.advance(1_000)
    wanted = Repair(1, 9, destination="other")
    shown = sim.ask(plain.main, PreviewRepair(wanted, 9)).value
    assert [message_id_of(each.before.content) for each in shown.previews] == ["b"]
    assert sim.ask(plain.main, wanted).value.numbers == [2]
    assert other.main.counts().active == 1


@pytest.mark.parametrize("way", ["removed", "moved"])
def test_deferred_and_put_off_messages_are_repaired_however_long_they_lie(sim: Simulation, way: str) -> None:
    plain, other = sim.queue(QueueDescription("plain")), sim.queue(QueueDescription("other"))
    sim.send(plain, make_message("deferred", time_to_live=HOUR), make_message("put off", time_to_live=HOUR))
    deferred, put_off = sim.receiver(plain.main, 2).take()
    sim.settle(plain.main, [deferred], Defer())
    sim.settle(plain.main, [put_off], Abandon(delay=3 * HOUR))
    sim.advance(2 * HOUR)
    wanted = Repair(1, 9, removes=True) if way == "removed" else Repair(1, 9, destination="other")
    wanted = replace(wanted, states=tuple(MessageState))
    assert len(sim.ask(plain.main, PreviewRepair(wanted, 9)).value.previews) == 2
    assert sim.ask(plain.main, wanted).value.numbers == [1, 2]
    assert other.main.counts().active == (0 if way == "removed" else 2)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (Repair(1, 9, filter=SqlFilter("colour =")), ArgumentError),
        (Repair(1, 9, action=SqlAction("SET sys.SequenceNumber = 1")), ArgumentError),
        (Repair(9, 1), ArgumentError),
        (Repair(1, 9, numbers=[]), ArgumentError),
        (Repair(1, 9, numbers=[1] * (REPAIRED_NUMBERS_MAX + 1)), ArgumentError),
        (Repair(1, 9, destination="missing"), EntityNotFound),
        (Repair(1, 9, destination="closed"), EntityDisabled),
        (Repair(1, 9, destination="q", removes=True), ArgumentError),
        (Repair(1, 9, action=SqlAction("SET a = 1"), removes=True), ArgumentError),
        (Repair(1, 2 << SEQUENCE_BITS), NotAllowed),
    ],
)
def test_a_repair_that_makes_no_sense_is_refused(
    sim: Simulation, queue: QueueEntity, wanted: Repair, error: type[MessagingError]
) -> None:
    sim.queue(QueueDescription("closed", status=EntityStatus.SEND_DISABLED))
    bury(sim, queue, "m")
    with pytest.raises(error):
        _ = sim.ask(queue.dead_letter, wanted).value
    assert queue.dead_letter.counts().active == 1


@pytest.mark.parametrize(
    ("destination", "said"), [(None, "Name a destination"), ("q", "'q' is where the messages are")]
)
def test_messages_that_are_no_dead_letters_need_another_place_to_go(
    sim: Simulation, queue: QueueEntity, destination: str | None, said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        _ = sim.ask(queue.main, Repair(1, 9, destination=destination)).value


def test_messages_move_from_one_queue_to_another(sim: Simulation, queue: QueueEntity) -> None:
    other = sim.queue(QueueDescription("other"))
    sim.send(queue, *[make_message(str(number)) for number in range(20)])
    assert count(repaired(sim, queue.main, destination="other", filter=SqlFilter("sys.MessageId LIKE '1%'"))) == 11
    sim.tick()
    assert other.main.counts().active == 11
    assert queue.main.counts().active == 9


def test_a_queue_that_takes_no_messages_gets_no_dead_letters_back(sim: Simulation, queue: QueueEntity) -> None:
    bury(sim, queue, "m")
    queue.follow_description(replace(queue.description, status=EntityStatus.SEND_DISABLED), sim.now)
    with pytest.raises(EntityDisabled):
        repaired(sim, queue.dead_letter)


@pytest.mark.parametrize("destination", [None, "other"])
def test_a_store_whose_disk_is_nearly_full_gets_no_repaired_messages_but_lets_them_be_removed(
    sim: Simulation, queue: QueueEntity, destination: str | None
) -> None:
    sim.queue(QueueDescription("other", enable_partitioning=True))
    bury(sim, queue, *map(str, range(20)))
    for port in sim.ports:
        port.is_full = True
    with pytest.raises(ServerBusy, match="nearly full"):
        repaired(sim, queue.dead_letter, destination=destination)
    assert queue.dead_letter.counts().active == 20
    assert count(repaired(sim, queue.dead_letter, removes=True)) == 20


def test_what_waits_for_a_destination_that_is_down_does_not_pile_up(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "WAITING_MAX", 2)
    plain, other = sim.queue(QueueDescription("plain")), sim.queue(QueueDescription("other"))
    bury(sim, plain, *map(str, range(10)))
    sim.lose_store(next(broker.index for broker in sim.brokers if broker is other.main.fragments[0].broker))
    assert sim.ask(plain.dead_letter, Repair(1, 2, destination="other")).value.numbers == [1, 2]
    with pytest.raises(ServerBusy):
        _ = sim.ask(plain.dead_letter, Repair(3, 10, destination="other")).value
    assert plain.dead_letter.counts().active == 8


@pytest.mark.parametrize("numbers", [None, range(1, 11)])
def test_a_repair_that_cannot_go_on_says_what_it_has_repaired(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch, numbers: range | None
) -> None:
    """Whoever asks for the rest learns why."""
    monkeypatch.setattr(repair, "STEP_COUNT_MAX", 2)
    monkeypatch.setattr(repair, "WAITING_MAX", 4)
    plain, other = sim.queue(QueueDescription("plain")), sim.queue(QueueDescription("other"))
    bury(sim, plain, *map(str, range(10)))
    sim.lose_store(next(broker.index for broker in sim.brokers if broker is other.main.fragments[0].broker))
    wanted = Repair(1, 10, numbers=numbers, destination="other")
    page = sim.ask(plain.dead_letter, wanted).value
    assert (page.numbers, page.examined_count, page.next_number) == ([1, 2, 3, 4], 4, 5)
    rest = replace(wanted, first=5, numbers=None if numbers is None else range(5, 11))
    assert isinstance(sim.ask(plain.dead_letter, rest).error, ServerBusy)
    assert plain.dead_letter.counts().active == 6


@pytest.mark.parametrize("destination", ["near", "far", None])
def test_a_repair_stops_when_its_destination_takes_no_more(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch, destination: str | None
) -> None:
    """Disabled or deleted, while the repair is under way."""
    monkeypatch.setattr(repair, "STEP_COUNT_MAX", 2)
    plain = sim.queue(QueueDescription("plain"))
    sim.queue(QueueDescription("near", enable_partitioning=True))
    sim.queue(QueueDescription("far"))
    bury(sim, plain, *map(str, range(10)))
    answer: Answer[RepairPage] = Answer()
    plain.dead_letter.ask(Repair(1, 10, destination=destination), sim.now, answer)
    while plain.dead_letter.counts().active == 10:
        sim.ports[plain.fragments[0].broker.index].step()
    changed = sim.entities.queue(destination or "plain")
    closed = replace(changed.description, status=EntityStatus.SEND_DISABLED)
    sim.entities.update(closed, sim.now, Answer[None]())
    sim.run()
    assert len(answer.value.numbers) < 10
    rest = Repair(answer.value.next_number or 0, 10, destination=destination)
    assert isinstance(sim.ask(plain.dead_letter, rest).error, EntityDisabled)


def test_a_repair_whose_store_is_lost_meanwhile_says_what_is_durable(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "STEP_COUNT_MAX", 2)
    plain = sim.queue(QueueDescription("plain"))
    bury(sim, plain, *map(str, range(10)))
    broker = plain.dead_letter.fragments[0].broker
    answer: Answer[RepairPage] = Answer()
    plain.dead_letter.ask(Repair(1, 10), sim.now, answer)
    while plain.dead_letter.counts().active > 4:
        sim.ports[broker.index].step()
    sim.lose_store(broker.index)
    assert (answer.value.numbers, answer.value.next_number) == ([1, 2, 3, 4], 5)


def test_a_fragment_whose_store_is_lost_cannot_be_repaired(sim: Simulation, queue: QueueEntity) -> None:
    bury(sim, queue, *map(str, range(20)))
    head = sim.ask(queue.dead_letter, ListFragments()).value[0]
    broker = queue.dead_letter.fragments[0].broker
    sim.lose_store(broker.index)
    with pytest.raises(FragmentUnavailable):
        _ = sim.ask(queue.dead_letter, Repair(head.first_number, head.last_number)).value
    sim.return_store(broker.index)
    assert count(repaired(sim, queue.dead_letter)) == 20


def test_a_message_for_a_queue_in_the_same_store_goes_there_in_one_commit(sim: Simulation, queue: QueueEntity) -> None:
    """So it is never on its way, and cannot arrive twice."""
    other = sim.queue(QueueDescription("other", enable_partitioning=True, default_time_to_live=60_000))
    bury(sim, queue, *map(str, range(20)))
    assert count(repaired(sim, queue.dead_letter, destination="other")) == 20
    assert (queue.transfer_counts().active, other.main.counts().active) == (0, 20)
    found = taken(sim, other.main)
    assert {each.message.delivery_count for each in found} == {0}
    assert all(each.message.expires_at <= sim.now + 60_000 for each in found)


def test_a_scheduled_message_that_is_moved_waits_for_its_time_at_its_new_place() -> None:
    sim = Simulation()
    plain, other = sim.queue(QueueDescription("plain")), sim.queue(QueueDescription("other"))
    sim.send(plain, make_message("m", scheduled_at=sim.now + HOUR))
    wanted = Repair(1, 9, destination="other", states=(MessageState.SCHEDULED,))
    assert sim.ask(plain.main, wanted).value.numbers == [1]
    sim.tick()
    assert (other.main.counts().active, other.main.counts().scheduled) == (0, 1)


def test_a_message_that_is_too_large_for_its_new_place_is_found_among_those_that_could_not_be_sent_on() -> None:
    sim = Simulation()
    plain = sim.queue(QueueDescription("plain", max_message_size_kb=2_048))
    other = sim.queue(QueueDescription("other", max_message_size_kb=1_024))
    sim.send(plain, make_message("m", body=bytes(1_500 * 1_024)))
    assert sim.ask(plain.main, Repair(1, 9, destination="other")).value.numbers == [1]
    sim.tick()
    assert (other.main.counts().active, plain.transfer_dead_letter.counts().active) == (0, 1)


def test_a_message_without_a_session_id_is_not_moved_among_message_sessions() -> None:
    sim = Simulation()
    plain, ordered = sim.queue(QueueDescription("plain")), sim.queue(QueueDescription("ordered", requires_session=True))
    sim.send(plain, make_message("in s", session_id="s"), make_message("without"))
    assert sim.ask(plain.main, Repair(1, 9, destination="ordered")).value.numbers == [1, 2]
    sim.tick()
    assert (ordered.main.counts().active, plain.transfer_dead_letter.counts().active) == (1, 1)


def test_messages_of_the_session_with_an_empty_id_are_moved_to_one_place() -> None:
    sim = Simulation(1)
    plain = sim.queue(QueueDescription("plain", enable_partitioning=True))
    ordered = sim.queue(QueueDescription("ordered", enable_partitioning=True, requires_session=True))
    for number in range(32):
        sim.send(plain, make_message(str(number), session_id=""))
    assert all(fragment.tally.active_count for fragment in plain.main.fragments)
    assert count(repaired(sim, plain.main, destination="ordered")) == 32
    assert sim.receiver(ordered.main, 99, session=sim.accept(ordered.main, "").value).ids() != []
    (home,) = candidates("", 16, 0)
    assert ordered.main.fragments[home].tally.active_count == 32


def test_a_message_that_gets_an_id_that_its_new_place_knows_is_a_duplicate_there() -> None:
    sim = Simulation()
    plain = sim.queue(QueueDescription("plain"))
    once = sim.queue(QueueDescription("once", requires_duplicate_detection=True))
    sim.send(once, make_message("known"))
    sim.send(plain, make_message("m"))
    wanted = Repair(1, 9, destination="once", action=SqlAction("SET sys.MessageId = 'known'"))
    assert sim.ask(plain.main, wanted).value.numbers == [1]
    sim.tick()
    assert (once.main.counts().active, plain.holdings().transfer.active) == (1, 0)


def test_messages_without_a_key_go_to_the_fragments_of_the_same_index() -> None:
    """So fragments fill alike, though all of those in one store could take them."""
    sim = Simulation(1)
    queue, other = [sim.queue(QueueDescription(path, enable_partitioning=True)) for path in ("q", "other")]
    bury(sim, queue, *map(str, range(64)))
    buried = [fragment.tally.active_count for fragment in queue.dead_letter.fragments]
    assert all(buried)
    assert count(repaired(sim, queue.dead_letter, destination="other")) == 64
    assert [fragment.tally.active_count for fragment in other.main.fragments] == buried


def test_a_queue_that_is_full_takes_nothing_and_the_messages_stay(sim: Simulation) -> None:
    source, other = (
        sim.queue(QueueDescription("source", enable_partitioning=True)),
        sim.queue(QueueDescription("other")),
    )
    bury(sim, source, *map(str, range(64)))
    other.main.fragments[0].settings.size_max_bytes = 1
    near = [each for each in source.dead_letter.fragments if each.broker is other.main.fragments[0].broker]
    heads = {head.fragment: head for head in sim.ask(source.dead_letter, ListFragments()).value}
    for fragment in near:
        head = heads[fragment.index]
        with pytest.raises(QuotaExceeded):
            _ = sim.ask(source.dead_letter, Repair(head.first_number, head.last_number, destination="other")).value
    assert other.main.counts().active == 0
    assert source.dead_letter.counts().active == 64


def rehearse_to_another_queue(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(repair, "STEP_COUNT_MAX", random.randint(1, 5))
    sim = Simulation(4, seed=seed)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    sim.queue(QueueDescription("other", enable_partitioning=True))
    wanted = [str(number) for number in range(30)]
    bury(sim, queue, *wanted)
    heads = sim.ask(queue.dead_letter, ListFragments()).value
    for _ in range(100):
        head = random.choice(heads)
        answer: Answer[RepairPage] = Answer()
        command = Repair(head.first_number, max(head.first_number, head.last_number), destination="other")
        queue.dead_letter.ask(command, sim.now, answer)
        for _ in range(random.randint(0, 12)):
            random.choice(sim.ports).step()
        if random.random() < 0.3:
            sim.restart()
            queue = sim.entities.queue("q")
    sim.run()
    while count(repaired(sim, queue.dead_letter, destination="other")):
        pass
    sim.tick()
    assert names(sim, sim.entities.queue("other").main) == sorted(wanted)
    assert queue.dead_letter.counts().active == queue.transfer_counts().active == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_repair_to_another_queue_killed_anywhere_arrives_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both queues have fragments in the same stores."""
    rehearse_to_another_queue(seed, monkeypatch)


def rehearse_and_resume(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is stepped by hand; after some steps the process ends, or a store is lost, and the repair starts again."""
    random = Random(seed)
    monkeypatch.setattr(repair, "STEP_COUNT_MAX", random.randint(1, 5))
    sim = Simulation(4, seed=seed)
    queue = sim.queue(
        QueueDescription("q", enable_partitioning=True, requires_duplicate_detection=random.random() < 0.5)
    )
    wanted = [f"good {number}" for number in range(30)]
    bury(sim, queue, *wanted)
    bury(sim, queue, *[f"bad {number}" for number in range(10)], colour="grey")
    sent = {f"good {number}": f"good {number}".encode() for number in range(30)}
    heads = sim.ask(queue.dead_letter, ListFragments()).value
    for _ in range(200):
        head = random.choice(heads)
        answer: Answer[RepairPage] = Answer()
        command = Repair(
            head.first_number, max(head.first_number, head.last_number), filter=SqlFilter("colour = 'red'")
        )
        queue.dead_letter.ask(command, sim.now, answer)
        for _ in range(random.randint(0, 12)):
            random.choice(sim.ports).step()
        if random.random() < 0.3:
            sim.restart()
            queue = sim.entities.queue("q")
        elif random.random() < 0.2:
            lost = random.randrange(4)
            sim.lose_store(lost)
            sim.return_store(lost)
    sim.run()
    while count(repaired(sim, queue.dead_letter, filter=SqlFilter("colour = 'red'"))):
        pass
    home = taken(sim, queue.main)
    assert sorted(message_id_of(each.message.content) for each in home) == sorted(sent)
    assert all(application_properties(each.message.content) == {"colour": "red"} for each in home)
    assert names(sim, queue.dead_letter) == sorted(f"bad {number}" for number in range(10))


@pytest.mark.parametrize("seed", range(12))
def test_a_repair_killed_anywhere_and_resumed_loses_doubles_and_changes_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearse_and_resume(seed, monkeypatch)


@pytest.mark.nightly
@pytest.mark.parametrize("rehearse", [rehearse_to_another_queue, rehearse_and_resume])
@pytest.mark.parametrize("first", range(100, 500, 50))
def test_repairs_killed_anywhere_are_resumed_in_many_histories(
    first: int, rehearse: Callable[[int, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + 50):
        rehearse(seed, monkeypatch)
