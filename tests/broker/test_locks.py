"""Locks on messages and how they end."""

from dataclasses import replace
from random import Random

import pytest

from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.fragment import lane
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.locks import STALE_TOKENS_MAX, LockTable
from twinbus.broker.held_contents import HeldContents
from twinbus.broker.outcomes import COMPLETE, RELEASE, Complete
from twinbus.clock import NEVER, Millis
from twinbus.errors import MessageLockLost
from twinbus.model.content import application_properties
from twinbus.model.descriptions import QueueDescription
from twinbus.store.changes import StoredMessage
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation

LOCK = 30_000


def lock_table(index: int = 0, seed: int = 0) -> LockTable:
    return LockTable(index, Random(seed), HeldContents(), lambda _: None)


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q", lock_duration=LOCK, max_delivery_count=2))


def test_a_message_whose_lock_ended_comes_again_with_a_higher_count(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 2)
    (first,) = receiver.take()
    assert first.locked_until == sim.now + LOCK
    sim.advance(LOCK - 1)
    assert receiver.take() == []
    sim.advance(1)
    (second,) = receiver.take()
    assert second.message.delivery_count == 1
    assert second.lock_token != first.lock_token


def test_settling_after_the_lock_ended_fails_even_before_the_next_tick(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    deliveries = sim.receiver(queue.main, 1).take()
    sim.clock.advance(LOCK)
    assert isinstance(sim.settle(queue.main, deliveries, Complete()).errors[0], MessageLockLost)


def test_locks_that_end_too_often_dead_letter_the_message(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    sim.receiver(queue.main, 2)
    sim.advance(LOCK)
    sim.advance(LOCK)
    (dead,) = sim.receiver(queue.dead_letter, 1).take()
    assert application_properties(dead.message.content)["DeadLetterReason"] == "MaxDeliveryCountExceeded"


@pytest.mark.rule("A5.5")
def test_a_renewed_lock_lasts_from_the_renewal_on(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    deliveries = sim.receiver(queue.main, 5).take()
    sim.advance(LOCK - 1)
    answer: Answer[list[Millis]] = Answer()
    queue.main.renew([deliveries[0].lock_token], sim.now, answer)
    assert answer.value == [sim.now + LOCK]
    sim.advance(LOCK - 1)
    assert sim.settle(queue.main, deliveries).good == {0}


@pytest.mark.rule("A8.6")
def test_locks_of_several_fragments_are_renewed_together_or_not_at_all() -> None:
    sim = Simulation(4)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True, lock_duration=LOCK))
    for name in "ab":
        sim.send(queue, make_message(name))
    deliveries = sim.receiver(queue.main, 2).take()
    tokens = [delivery.lock_token for delivery in deliveries]
    assert len({token[0] for token in tokens}) == 2
    sim.advance(LOCK - 1)
    renewed: Answer[list[Millis]] = Answer()
    queue.main.renew(tokens, sim.now, renewed)
    assert renewed.value == [sim.now + LOCK] * 2
    sim.advance(LOCK - 1)
    assert sim.settle(queue.main, deliveries[:1]).good == {0}
    again: Answer[list[Millis]] = Answer()
    queue.main.renew(tokens, sim.now, again)
    assert isinstance(again.error, MessageLockLost)
    sim.advance(1)
    assert isinstance(sim.settle(queue.main, deliveries[1:]).errors[0], MessageLockLost)


def test_renewing_is_all_or_nothing(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    (delivery,) = sim.receiver(queue.main, 1).take()
    sim.advance(LOCK - 1)
    answer: Answer[list[Millis]] = Answer()
    queue.main.renew([delivery.lock_token, b"\0" * 16], sim.now, answer)
    assert isinstance(answer.error, MessageLockLost)
    sim.advance(1)
    assert isinstance(sim.settle(queue.main, [delivery]).errors[0], MessageLockLost)


def test_a_receiver_that_leaves_keeps_its_locks(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 1)
    queue.main.detach(receiver, sim.now)
    assert sim.receiver(queue.main, 1).take() == []
    assert sim.settle(queue.main, receiver.take()).good == {0}


def test_a_shorter_lock_duration_counts_for_the_next_message(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("long"), make_message("short"))
    receiver = sim.receiver(queue.main, 1)
    answer: Answer[None] = Answer()
    sim.entities.update(QueueDescription("Q", lock_duration=5_000, max_delivery_count=9), sim.now, answer)
    receiver.credit = 1
    queue.main.pump(sim.now)
    assert receiver.ids() == ["long", "short"]
    receiver.credit = 9
    sim.advance(5_000)
    assert receiver.ids() == ["short"]


def test_a_lock_that_is_renewed_for_a_shorter_time_ends_with_it(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    (held,) = sim.receiver(queue.main, 1).take()
    sim.entities.update(replace(queue.description, lock_duration=5_000), sim.now, Answer[None]())
    renewed: Answer[list[Millis]] = Answer()
    queue.main.renew([held.lock_token], sim.now, renewed)
    assert renewed.value == [sim.now + 5_000]
    waiting = sim.receiver(queue.main, 1)
    sim.advance(4_999)
    assert waiting.ids() == []
    sim.advance(1)
    assert waiting.ids() == ["m"]


def test_what_is_due_sooner_than_a_lock_does_not_wake_the_fragment_once_more_when_the_lock_ends(
    sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fragment,) = queue.main.fragments
    keep_up, calls = fragment._upkeep, list[Millis]()

    def count(fragment: Fragment, now: Millis) -> None:
        calls.append(now)
        keep_up(fragment, now)

    monkeypatch.setattr(fragment, "_upkeep", count)
    sim.send(queue, make_message("locked"))
    sim.receiver(queue.main, 1)
    for _ in range(20):
        sim.send(queue, make_message("short", time_to_live=1_000))
        sim.advance(1_000)
    sim.advance(LOCK - 20_000)
    assert calls.count(sim.now) == 1


def test_tokens_of_settled_messages_do_not_pile_up() -> None:
    locks = lock_table()
    for number in range(4 * STALE_TOKENS_MAX):
        (delivery,) = locks.lock([StoredMessage(number, b"", 0, NEVER)], until=1_000)
        del locks.held[delivery.lock_token]
    assert sum(len(tokens) for _, _, tokens in locks._bursts) <= STALE_TOKENS_MAX + 1


def test_locks_that_are_renewed_again_and_again_do_not_pile_up() -> None:
    locks = lock_table()
    tokens = [delivery.lock_token for delivery in locks.lock([StoredMessage(1, b"", 0, NEVER)], until=1_000)]
    for until in range(1_001, 4 * STALE_TOKENS_MAX):
        locks.renew(tokens, until)
    assert len(locks._bursts) <= STALE_TOKENS_MAX + 3
    assert locks.take_expired(4 * STALE_TOKENS_MAX - 2, 10, 10) == []
    assert len(locks.take_expired(4 * STALE_TOKENS_MAX - 1, 10, 10)) == 1


def test_tokens_differ_between_runs_and_name_their_fragment() -> None:
    message = StoredMessage(1, b"", 0, NEVER)
    tokens = {lock_table(7, seed).lock([message], until=1)[0].lock_token for seed in range(50)}
    assert len(tokens) == 50
    assert {token[0] for token in tokens} == {7}
    assert {len(token) for token in tokens} == {16}


@pytest.mark.one_node("the store is moved by hand")
@pytest.mark.parametrize("session_id", [None, "s"])
def test_where_all_messages_are_locked_none_are_looked_for_when_their_store_has_moved(
    sim: Simulation, session_id: str | None
) -> None:
    queue = sim.queue(QueueDescription("moved", requires_session=session_id is not None))
    sim.send(queue, *[make_message(each, session_id=session_id) for each in ("a", "b")])
    lock = None if session_id is None else sim.accept(queue.main, session_id).value
    assert sim.receiver(queue.main, 2, session=lock).ids() == ["a", "b"]
    port = sim.ports[queue.main.fragments[0].broker.index]
    before = port.query_count
    move_by_hand(sim, queue)
    assert port.query_count == before + 1, "what has to be remembered"


@pytest.mark.one_node("the store is moved by hand")
def test_what_is_locked_is_not_handed_over_again_however_little_is_read_at_a_time_after_its_store_has_moved(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "READY_COUNT_MAX", 2)
    queue = sim.queue(QueueDescription("moved"))
    sim.send(queue, *[make_message(each) for each in ("first", "second", "third", "fourth", "next")])
    taken = sim.receiver(queue.main, 4).take()
    sim.settle(queue.main, taken[:1], RELEASE)
    move_by_hand(sim, queue)
    assert sim.receiver(queue.main, 9).ids() == ["first", "next"]
    assert sim.settle(queue.main, taken[1:], COMPLETE).good == {0, 1, 2}


def move_by_hand(sim: Simulation, queue: QueueEntity) -> None:
    """The store of an ordinary queue goes away, and comes back with all locks."""
    broker = queue.main.fragments[0].broker
    broker.retire()
    broker.expect(broker.move_out(lambda _: True))
    broker.store_returned()
    sim.run()
