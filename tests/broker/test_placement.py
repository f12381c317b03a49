"""Which fragment takes a message (contract A2, A3, A4, A8)."""

from collections.abc import Callable, Iterable

import pytest

from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.runs import Detour
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.message_broker import WAITING_BYTES_MAX
from twinbus.broker.outcomes import DeadLetter
from twinbus.errors import (
    EntityDisabled,
    FragmentUnavailable,
    MessagingError,
    NotAllowed,
    OutcomeUnknown,
    QuotaExceeded,
    ServerBusy,
)
from twinbus.model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import Message
from twinbus.model.partition_key import candidates
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, EachReply, Simulation

KEYS = {"order-1": 13, "order-2": 11, "contoso": 8}
KEY_OF_FRAGMENT_0 = next(str(number) for number in range(200) if candidates(str(number), 16, 0) == [0])


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q", enable_partitioning=True))


def where(queue: QueueEntity) -> dict[str, int]:
    """Fragment by message id, of everything ready."""
    return {
        message_id_of(row.content): fragment.index for fragment in queue.main.fragments for row in fragment.lane.ready
    }


@pytest.mark.rule("A3.1")
def test_a_message_with_a_key_goes_to_the_fragment_of_its_key(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, *[make_message(key, partition_key=key) for key in KEYS])
    assert where(queue) == KEYS


@pytest.mark.rule("A2.1")
def test_the_session_id_pins_before_the_partition_key(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m", session_id="order-1", partition_key="order-1"))
    assert where(queue) == {"m": 13}


@pytest.mark.rule("A2.3")
def test_a_partition_key_that_differs_from_the_session_id_is_refused(sim: Simulation, queue: QueueEntity) -> None:
    reply = sim.send(queue, make_message("a", session_id="x", partition_key="y"), make_message("b"))
    assert isinstance(reply.errors[0], NotAllowed)
    assert reply.good == {1}


@pytest.mark.rule("A2.2")
def test_the_message_id_pins_only_where_duplicates_are_detected(sim: Simulation) -> None:
    strict = sim.queue(QueueDescription("d", enable_partitioning=True, requires_duplicate_detection=True))
    sim.send(strict, *[make_message(key) for key in KEYS])
    assert where(strict) == KEYS


@pytest.mark.rule("A2.4")
@pytest.mark.parametrize("key", [{"partition_key": ""}, {"session_id": ""}, {"session_id": "", "partition_key": ""}])
def test_an_empty_key_is_no_key(sim: Simulation, queue: QueueEntity, key: dict[str, str]) -> None:
    for number in range(16):
        sim.send(queue, make_message(str(number), **key))  # type: ignore[arg-type]
    assert sorted(where(queue).values()) == list(range(16))


@pytest.mark.rule("A2.5")
def test_an_empty_session_id_is_a_session_where_sessions_are_required(sim: Simulation) -> None:
    talks = sim.queue(QueueDescription("talks", enable_partitioning=True, requires_session=True))
    news = sim.topic(TopicDescription("news", enable_partitioning=True))
    reader = sim.subscription(SubscriptionDescription("news", "reader", requires_session=True))
    for target, source in ((talks, talks.main), (news, reader.main)):
        for number in range(3):
            sim.send(target, make_message(str(number), session_id=""))
        lock = sim.accept(source, "").value
        assert sim.receiver(source, 9, session=lock).ids() == ["0", "1", "2"]


@pytest.mark.rule("A3.4")
def test_messages_without_a_key_go_round_by_run(sim: Simulation, queue: QueueEntity) -> None:
    for burst in range(3):
        sim.send(queue, *[make_message(f"{burst}-{number}") for number in range(10)])
    assert [fragment.tally.active_count for fragment in queue.main.fragments] == [10, 10, 10] + [0] * 13


def test_messages_without_a_key_join_the_turn_of_a_fragment_that_still_writes(
    sim: Simulation, queue: QueueEntity
) -> None:
    for burst in range(3):
        queue.send_each([make_message(f"{burst}-{number}") for number in range(100)], sim.now, EachReply())
    sim.run()
    assert [fragment.tally.active_count for fragment in queue.main.fragments][:3] == [256, 44, 0]


def test_a_long_burst_is_split_into_runs(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, *[make_message(str(number)) for number in range(600)])
    assert [fragment.tally.active_count for fragment in queue.main.fragments][:4] == [256, 256, 88, 0]


@pytest.mark.rule("A4.1")
def test_a_message_without_a_key_passes_by_a_fragment_that_is_unhealthy(sim: Simulation, queue: QueueEntity) -> None:
    sim.lose_store(0)
    sim.lose_store(1)
    assert sim.send(queue, make_message("m")).good == {0}
    assert where(queue)["m"] not in {0, 1}


@pytest.mark.rule("A4.3")
def test_a_message_with_a_key_fails_while_its_fragment_is_unhealthy(sim: Simulation, queue: QueueEntity) -> None:
    sim.lose_store(13)
    reply = sim.send(queue, make_message("a", partition_key="order-1"), make_message("b", partition_key="order-2"))
    assert isinstance(reply.errors[0], FragmentUnavailable)
    assert reply.good == {1}
    sim.return_store(13)
    assert sim.send(queue, make_message("a", partition_key="order-1")).good == {0}


@pytest.mark.rule("A4.1")
@pytest.mark.parametrize("fault", list(Fault))
def test_a_run_goes_on_to_the_next_fragment_when_its_store_fails_meanwhile(
    sim: Simulation, queue: QueueEntity, fault: Fault
) -> None:
    sim.ports[0].next_fault = fault
    assert sim.send(queue, make_message("a"), make_message("b")).good == {0, 1}
    places = where(queue)
    assert places["a"] == places["b"] != 0


def test_a_message_with_a_key_is_refused_when_its_store_fails_meanwhile(sim: Simulation, queue: QueueEntity) -> None:
    sim.ports[13].next_fault = Fault.FAIL_BEFORE
    reply = sim.send(queue, make_message("m", partition_key="order-1"))
    assert isinstance(reply.errors[0], FragmentUnavailable)


@pytest.mark.rule("A4.6")
def test_a_run_leaves_a_store_that_does_not_answer(sim: Simulation, queue: QueueEntity) -> None:
    sim.ports[0].is_hung = True
    reply = sim.send(queue, make_message("m"))
    sim.advance(15_000)
    assert reply.good == set()
    sim.advance(1)
    assert reply.good == {0}
    assert queue.main.counts().is_limited


def test_a_store_that_answers_after_all_serves_again(sim: Simulation, queue: QueueEntity) -> None:
    sim.ports[0].is_hung = True
    sim.send(queue, make_message("m"))
    sim.advance(15_001)
    sim.ports[0].is_hung = False
    sim.run()
    assert not queue.main.counts().is_limited
    # The silent store did write: at least once.
    assert sim.receiver(queue.main, 10).ids() == ["m", "m"]


def test_nothing_is_left_to_try_when_all_stores_are_unhealthy(sim: Simulation, queue: QueueEntity) -> None:
    for index in range(16):
        sim.lose_store(index)
    assert isinstance(sim.send(queue, make_message("m")).errors[0], FragmentUnavailable)


@pytest.mark.rule("A8.1")
def test_a_batch_goes_to_one_fragment_whole(sim: Simulation, queue: QueueEntity) -> None:
    answer: Answer[list[int]] = Answer()
    queue.send_batch([make_message(str(number)) for number in range(200)], sim.now, answer)
    sim.run()
    assert answer.value == list(range(1, 201))
    assert queue.main.fragments[0].tally.active_count == 200


def test_a_batch_goes_on_to_the_next_fragment_whole(sim: Simulation, queue: QueueEntity) -> None:
    sim.ports[0].next_fault = Fault.FAIL_BEFORE
    answer: Answer[list[int]] = Answer()
    queue.send_batch([make_message("a"), make_message("b")], sim.now, answer)
    sim.run()
    first, second = answer.value
    assert first >> SEQUENCE_BITS != 0
    assert second == first + 1


@pytest.mark.rule("A8.2")
@pytest.mark.parametrize("other", ["order-2", None])
def test_a_batch_with_different_keys_is_refused_on_a_partitioned_queue(
    sim: Simulation, queue: QueueEntity, other: str | None
) -> None:
    answer: Answer[list[int]] = Answer()
    batch = [make_message("a", partition_key="order-1"), make_message("b", partition_key=other)]
    queue.send_batch(batch, sim.now, answer)
    sim.run()
    assert isinstance(answer.error, NotAllowed)
    assert queue.main.counts().active == 0


def test_keys_that_differ_in_case_alone_are_one_key_in_a_batch(sim: Simulation, queue: QueueEntity) -> None:
    answer: Answer[list[int]] = Answer()
    same = make_message("c", session_id="order-1", partition_key="ORDER-1")
    batch = [make_message("a", partition_key="order-1"), make_message("b", partition_key="Order-1"), same]
    queue.send_batch(batch, sim.now, answer)
    sim.run()
    assert len(answer.value) == 3
    assert where(queue) == {"a": 13, "b": 13, "c": 13}


def test_a_batch_with_different_keys_is_fine_on_an_ordinary_queue(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("ordinary"))
    answer: Answer[list[int]] = Answer()
    queue.send_batch([make_message("a", partition_key="1"), make_message("b", partition_key="2")], sim.now, answer)
    sim.run()
    assert answer.value == [1, 2]


@pytest.mark.rule("A1.5")
def test_numbers_of_a_fragment_start_at_one_and_have_no_gaps(sim: Simulation, queue: QueueEntity) -> None:
    for _ in range(3):
        sim.send(queue, make_message("m", partition_key="order-1"))
    sim.ports[13].next_fault = Fault.FAIL_BEFORE
    sim.send(queue, make_message("lost", partition_key="order-1"))
    sim.return_store(13)
    sim.send(queue, make_message("m", partition_key="order-1"))
    numbers = [delivery.message.sequence_number for delivery in sim.receiver(queue.main, 9).take()]
    assert numbers == [(13 << SEQUENCE_BITS) + n for n in (1, 2, 3, 4)]


def test_a_full_queue_takes_nothing_more_until_something_leaves(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("small", max_size_mb=1))
    big = [make_message(str(number), body=bytes(300_000)) for number in range(4)]
    assert sim.send(queue, *big[:3]).good == {0, 1, 2}
    refused = sim.send(queue, big[3]).errors[0]
    assert isinstance(refused, QuotaExceeded)
    assert "fragment" not in str(refused), "it is not partitioned"
    sim.settle(queue.main, sim.receiver(queue.main, 1).take())
    assert sim.send(queue, big[3]).good == {0}


def test_a_queue_takes_messages_until_its_size_is_reached(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("small"))
    message = make_message("m")
    queue.main.fragments[0].settings.size_max_bytes = 2 * len(message.content)
    assert sim.send(queue, message, message).good == {0, 1}
    assert isinstance(sim.send(queue, message).errors[0], QuotaExceeded)


def test_dead_letters_count_in_the_size_of_their_queue(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("small", max_size_mb=1))
    sim.send(queue, make_message("m", body=bytes(900_000)))
    sim.settle(queue.main, sim.receiver(queue.main, 1).take(), DeadLetter("why"))
    assert isinstance(sim.send(queue, make_message("n", body=bytes(200_000))).errors[0], QuotaExceeded)
    sim.settle(queue.dead_letter, sim.receiver(queue.dead_letter, 1).take())
    assert sim.send(queue, make_message("n", body=bytes(200_000))).good == {0}


@pytest.mark.rule("A17.1")
@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED])
def test_an_entity_that_is_disabled_takes_no_messages(sim: Simulation, status: EntityStatus) -> None:
    queue = sim.queue(QueueDescription("off", status=status))
    assert isinstance(sim.send(queue, make_message("m")).errors[0], EntityDisabled)


@pytest.mark.rule("A17.2")
@pytest.mark.parametrize("status", [EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED])
def test_an_entity_that_is_disabled_gives_no_messages(sim: Simulation, status: EntityStatus) -> None:
    queue = sim.queue(QueueDescription("off"))
    receiver = sim.receiver(queue.main, 5)
    sim.entities.update(QueueDescription("off", status=status), sim.now, Answer[None]())
    sim.send(queue, make_message("m"))
    assert receiver.take() == []
    with pytest.raises(EntityDisabled):
        sim.receiver(queue.main, 1)


def test_an_entity_that_is_active_again_gives_what_waited(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("off"))
    receiver = sim.receiver(queue.main, 5)
    sim.entities.update(QueueDescription("off", status=EntityStatus.RECEIVE_DISABLED), sim.now, Answer[None]())
    sim.send(queue, make_message("m"))
    sim.entities.update(QueueDescription("off"), sim.now, Answer[None]())
    assert receiver.ids() == ["m"]


@pytest.mark.rule("A18.1")
def test_a_ping_is_accepted_and_never_delivered_to_a_receiver(sim: Simulation, queue: QueueEntity) -> None:
    receiver = sim.receiver(queue.main, 50)
    ping = make_message("ping", session_id="random", is_ping=True, time_to_live=1_000)
    assert sim.send(queue, ping, make_message("m")).good == {0, 1}
    assert receiver.ids() == ["m"]
    sim.restart()
    sim.advance(2_000)
    assert sim.receiver(sim.entities.queue("q").main, 50).ids() == ["m"]
    assert sim.entities.queue("q").dead_letter.counts().active == 0


@pytest.mark.rule("A18.3")
def test_a_ping_for_later_is_never_delivered_either(sim: Simulation, queue: QueueEntity) -> None:
    receiver = sim.receiver(queue.main, 50)
    assert sim.send(queue, make_message("ping", is_ping=True, scheduled_at=sim.now + 1_000)).good == {0}
    assert queue.main.counts().scheduled == 0
    sim.advance(2_000)
    assert receiver.ids() == []


@pytest.mark.rule("A18.1")
def test_a_ping_fails_while_the_store_does(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("ordinary"))
    sim.lose_store(queue.main.fragments[0].broker.index)
    assert isinstance(sim.send(queue, make_message("ping", is_ping=True)).errors[0], FragmentUnavailable)


@pytest.fixture(params=["far behind", "on a full disk"])
def strain(request: pytest.FixtureRequest, sim: Simulation) -> Callable[[Iterable[int]], None]:
    def of(stores: Iterable[int]) -> None:
        for index in stores:
            if request.param == "far behind":
                sim.ports[index].waiting_bytes = WAITING_BYTES_MAX + 1
            else:
                sim.ports[index].is_full = True

    return of


def test_a_message_without_a_key_goes_on_from_a_store_under_strain(
    sim: Simulation, queue: QueueEntity, strain: Callable[[Iterable[int]], None]
) -> None:
    strain(range(15))
    assert sim.send(queue, *[make_message(str(number)) for number in range(4)]).good == {0, 1, 2, 3}
    assert set(where(queue).values()) == {15}


def test_a_message_that_only_a_store_under_strain_can_take_is_refused_for_now(
    sim: Simulation, queue: QueueEntity, strain: Callable[[Iterable[int]], None]
) -> None:
    strain([KEYS["order-1"]])
    pinned = sim.send(queue, make_message("a", partition_key="order-1"), make_message("b", partition_key="order-2"))
    assert type(pinned.errors[0]) is ServerBusy
    assert pinned.good == {1}
    strain(range(16))
    assert type(sim.send(queue, make_message("c")).errors[0]) is ServerBusy
    transaction = sim.transaction()
    with pytest.raises(ServerBusy):
        transaction.send(queue, [make_message("d", partition_key="order-2")], sim.now)


def test_a_store_takes_messages_until_more_wait_than_may(sim: Simulation, queue: QueueEntity) -> None:
    for port in sim.ports:
        port.waiting_bytes = WAITING_BYTES_MAX
    assert sim.send(queue, make_message("m")).good == {0}


def test_messages_are_received_and_settled_while_the_store_is_under_strain(
    sim: Simulation, queue: QueueEntity, strain: Callable[[Iterable[int]], None]
) -> None:
    sim.send(queue, make_message("m"))
    strain(range(16))
    assert sim.settle(queue.main, sim.receiver(queue.main, 1).take()).good == {0}


# A fragment that is full is like one whose store is down


@pytest.fixture
def small(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("small", max_size_mb=1, enable_partitioning=True))


def big(name: str, key: str | None = None) -> Message:
    """Of these a fragment of a small queue holds one."""
    return make_message(name, body=bytes(600_000), partition_key=key)


def fill(sim: Simulation, target: QueueEntity | TopicEntity, *fragments: int) -> None:
    keys = {candidates(str(number), 16, 0)[0]: str(number) for number in range(200)}
    for index in fragments:
        assert sim.send(target, big(f"filling {index}", keys[index])).good == {0}


@pytest.mark.rule("A4.2")
def test_a_message_without_a_key_passes_by_a_fragment_that_is_full(sim: Simulation, small: QueueEntity) -> None:
    fill(sim, small, 0, 1, 2)
    assert sim.send(small, big("m")).good == {0}
    assert where(small)["m"] > 2
    assert small.placement.detours == {Detour.FULL: 1}


@pytest.mark.rule("A4.2")
def test_only_when_all_fragments_are_full_the_queue_is(sim: Simulation, small: QueueEntity) -> None:
    replies = [sim.send(small, big(str(number))) for number in range(17)]
    assert [reply.good for reply in replies[:16]] == [{0}] * 16
    assert sorted(where(small).values()) == list(range(16))
    with pytest.raises(QuotaExceeded, match="'small' is full: none of its 16 fragments has room"):
        raise replies[16].errors[0]


@pytest.mark.rule("A4.4")
def test_a_message_with_a_key_learns_that_its_fragment_is_full_and_others_are_not(
    sim: Simulation, small: QueueEntity
) -> None:
    fill(sim, small, KEYS["order-1"])
    refused = sim.send(small, big("m", "order-1")).errors[0]
    assert isinstance(refused, QuotaExceeded)
    assert "with the key 'order-1' is full; messages with other keys, or without one, still fit" in str(refused)
    transaction = sim.transaction()
    with pytest.raises(QuotaExceeded, match="'order-1' is full"):
        transaction.send(small, [big("m", "order-1")], sim.now)


@pytest.mark.rule("A4.4")
def test_where_no_fragment_has_room_a_key_is_not_to_blame(sim: Simulation, small: QueueEntity) -> None:
    fill(sim, small, *range(16))
    with pytest.raises(QuotaExceeded, match="none of its 16 fragments has room"):
        raise sim.send(small, big("m", "order-1")).errors[0]


@pytest.mark.rule("A4.4")
def test_messages_of_a_full_session_are_advised_to_nothing_impossible(sim: Simulation) -> None:
    talks = sim.queue(QueueDescription("talks", max_size_mb=1, enable_partitioning=True, requires_session=True))
    both = [make_message(str(number), body=bytes(600_000), session_id="order-1") for number in range(2)]
    with pytest.raises(QuotaExceeded, match="messages of other sessions still fit"):
        raise sim.send(talks, *both).errors[1]


@pytest.mark.rule("A4")
def test_while_a_fragment_cannot_be_reached_the_queue_is_not_known_to_be_full(
    sim: Simulation, small: QueueEntity
) -> None:
    fill(sim, small, *range(15))
    sim.lose_store(small.main.fragments[15].broker.index)
    assert isinstance(sim.send(small, big("m")).errors[0], FragmentUnavailable)


def test_a_burst_is_divided_where_no_fragment_has_room_for_all_of_it(sim: Simulation, small: QueueEntity) -> None:
    burst = [make_message(str(number), body=bytes(400_000)) for number in range(35)]
    reply = sim.send(small, *burst)
    assert len(reply.good) == 32
    assert all(isinstance(error, QuotaExceeded) for error in reply.errors.values())
    assert sorted(where(small).values()) == sorted([*range(16)] * 2)


def test_a_small_message_is_not_refused_for_the_size_of_the_one_before(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("ordinary", max_size_mb=1))
    sim.send(queue, big("first"))
    assert sim.send(queue, big("second"), make_message("small")).good == {1}


def test_a_batch_without_a_key_goes_whole_to_a_fragment_with_room(sim: Simulation, small: QueueEntity) -> None:
    fill(sim, small, 0)
    answer: Answer[list[int]] = Answer()
    small.send_batch([make_message("a", body=bytes(500_000)), make_message("b", body=bytes(500_000))], sim.now, answer)
    sim.run()
    first, second = answer.value
    assert first >> SEQUENCE_BITS != 0
    assert second == first + 1


def test_a_scheduled_message_without_a_key_passes_by_a_fragment_that_is_full(
    sim: Simulation, small: QueueEntity
) -> None:
    fill(sim, small, 0)
    answer: Answer[list[int]] = Answer()
    small.schedule([make_message("m", body=bytes(600_000), scheduled_at=sim.now + 1_000)], sim.now, answer)
    sim.run()
    assert answer.value[0] >> SEQUENCE_BITS != 0


def test_a_topic_is_full_only_when_all_fragments_are(sim: Simulation) -> None:
    topic = sim.topic(TopicDescription("news", max_size_mb=1, enable_partitioning=True))
    reader = sim.subscription(SubscriptionDescription("news", "reader"))
    replies = [sim.send(topic, big(str(number))) for number in range(17)]
    assert [reply.good for reply in replies[:16]] == [{0}] * 16
    assert isinstance(replies[16].errors[0], QuotaExceeded)
    assert reader.main.counts().active == 16


def test_forwarding_passes_by_a_fragment_that_is_full(sim: Simulation, small: QueueEntity) -> None:
    fill(sim, small, 0)
    sim.send(small, make_message("more", body=bytes(300_000), partition_key=KEY_OF_FRAGMENT_0))
    first = sim.queue(QueueDescription("first", forward_to="small"))
    sim.send(first, make_message("m", body=bytes(200_000)))
    assert where(small)["m"] != 0
    assert first.transfer_dead_letter.counts().active == 0


# One other try after an outcome that nobody knows


def copies(sim: Simulation, queue: QueueEntity, name: str) -> int:
    for index in range(16):
        sim.return_store(index)
    return sim.receiver(queue.main, 100).ids().count(name)


@pytest.mark.one_node("between nodes that one is asked again: in tests of the cluster")
@pytest.mark.rule("A4.6")
@pytest.mark.parametrize("is_batch", [False, True])
def test_after_a_lost_reply_one_other_fragment_is_tried(sim: Simulation, queue: QueueEntity, is_batch: bool) -> None:
    for port in sim.ports:
        port.next_fault = Fault.LOSE_REPLY
    error = _send_one(sim, queue, is_batch)
    assert isinstance(error, OutcomeUnknown)
    assert "may have been done" in str(error)
    for port in sim.ports:
        port.next_fault = None
    assert copies(sim, queue, "m") == 2


@pytest.mark.one_node("what goes from one database to another between nodes is in tests of the cluster")
@pytest.mark.rule("A4.6")
@pytest.mark.parametrize("left", [None, 0, -1], ids=["all have room", "the first", "the last"])
@pytest.mark.parametrize("is_batch", [False, True])
def test_after_a_lost_reply_a_store_of_another_database_is_tried(
    sim: Simulation, queue: QueueEntity, is_batch: bool, left: int | None
) -> None:
    """Those of one database fail together: a second lost reply would leave the sender with an error."""
    for broker in sim.brokers:
        broker.database = broker.index // 8
    first = queue.main.fragments[0].broker
    others = [each.broker.index for each in queue.main.fragments if each.broker.database != first.database]
    for index in others:
        sim.ports[index].is_full = left is not None and index != others[left]
    for port in sim.ports[8 * first.database : 8 * first.database + 8] if first.database is not None else ():
        port.next_fault = Fault.LOSE_REPLY
    assert _send_one(sim, queue, is_batch) is None
    (index,) = where(queue).values()
    assert queue.main.fragments[index].broker.database != first.database


@pytest.mark.one_node("between nodes that one is asked again: in tests of the cluster")
@pytest.mark.rule("A4.6")
def test_after_silence_one_other_fragment_is_tried(sim: Simulation, queue: QueueEntity) -> None:
    for port in sim.ports:
        port.is_hung = True
    reply = sim.send(queue, make_message("m"))
    sim.advance(15_001, 100)
    assert not reply.errors
    sim.advance(15_101, 100)
    assert isinstance(reply.errors[0], OutcomeUnknown)
    for port in sim.ports:
        port.is_hung = False
    sim.run()
    assert copies(sim, queue, "m") == 2


@pytest.mark.rule("A4.5")
def test_fragments_that_cannot_take_a_message_are_no_try(sim: Simulation, small: QueueEntity) -> None:
    fill(sim, small, 1, 2)
    sim.lose_store(small.main.fragments[3].broker.index)
    sim.ports[small.main.fragments[0].broker.index].next_fault = Fault.LOSE_REPLY
    assert sim.send(small, big("m")).good == {0}
    assert where(small)["m"] > 3
    assert small.placement.detours[Detour.UNKNOWN] == 1
    assert copies(sim, small, "m") == 2


@pytest.mark.rule("A4.5")
def test_a_refused_commit_may_go_on_to_any_fragment(sim: Simulation, queue: QueueEntity) -> None:
    for port in sim.ports[:15]:
        port.next_fault = Fault.REFUSE
    assert sim.send(queue, make_message("m")).good == {0}
    assert queue.placement.detours.keys() == {Detour.UNAVAILABLE}
    assert copies(sim, queue, "m") == 1


@pytest.mark.rule("A4.7", "A10")
def test_where_duplicates_are_detected_no_message_is_there_twice(sim: Simulation) -> None:
    strict = sim.queue(QueueDescription("d", enable_partitioning=True, requires_duplicate_detection=True))
    for port in sim.ports:
        port.next_fault = Fault.LOSE_REPLY
    for _ in range(3):
        sim.send(strict, make_message("m"))
    for port in sim.ports:
        port.next_fault = None
    for index in range(16):
        sim.return_store(index)
    assert sim.send(strict, make_message("m")).good == {0}
    assert sim.receiver(strict.main, 100).ids() == ["m"]


def _send_one(sim: Simulation, queue: QueueEntity, is_batch: bool) -> MessagingError | None:
    if not is_batch:
        return sim.send(queue, make_message("m")).errors.get(0)
    answer: Answer[list[int]] = Answer()
    queue.send_batch([make_message("m")], sim.now, answer)
    sim.run()
    return answer.error
