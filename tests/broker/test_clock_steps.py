"""The clock of the machine is set while a namespace runs: what lasts a while lasts as long as it was to, and a time of day stays one."""

import pytest

from twinbus.broker.consumer import SessionLock, TakenMessage
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.session_desk import DETACH_SLACK
from twinbus.broker.fragment_transaction import DURATION_MAX
from twinbus.broker.message_broker import SILENCE_MAX
from twinbus.broker.moved_locks import MovedLocks, MovedSession
from twinbus.clock import NEVER, Millis
from twinbus.errors import (
    MessageLockLost,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
    TransactionTimeout,
)
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.store.changes import StoredMessage
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, EachReply, Simulation

LOCK = 30_000
IDLE = 300_000
HOUR = 3_600_000


@pytest.fixture(params=[HOUR, -HOUR], ids=["forward", "back"])
def by(request: pytest.FixtureRequest) -> Millis:
    return int(request.param)


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q", lock_duration=LOCK))


@pytest.fixture
def sessions(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("s", lock_duration=LOCK, requires_session=True))


# Messages


def test_a_lock_lasts_as_long_as_it_was_given_for(sim: Simulation, queue: QueueEntity, by: Millis) -> None:
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 2)
    receiver.take()
    sim.advance(LOCK // 2)
    sim.set_clock(by)
    sim.advance(LOCK // 2 - 1)
    assert receiver.take() == []
    sim.advance(1)
    (again,) = receiver.take()
    assert again.message.delivery_count == 1
    assert again.locked_until == sim.now + LOCK


def test_a_message_that_was_locked_before_can_be_settled_until_its_lock_ends(
    sim: Simulation, queue: QueueEntity, by: Millis
) -> None:
    sim.send(queue, make_message("a"), make_message("b"))
    first, second = sim.receiver(queue.main, 2).take()
    sim.set_clock(by)
    sim.clock.advance(LOCK - 1)
    assert not sim.settle(queue.main, [first]).errors
    sim.clock.advance(1)
    assert isinstance(sim.settle(queue.main, [second]).errors[0], MessageLockLost)


def test_a_renewal_tells_the_end_in_the_new_time(sim: Simulation, queue: QueueEntity, by: Millis) -> None:
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 2)
    (taken,) = receiver.take()
    sim.set_clock(by)
    renewed: Answer[list[Millis]] = Answer()
    queue.main.renew([taken.lock_token], sim.now, renewed)
    assert renewed.value == [sim.now + LOCK]
    sim.advance(LOCK - 1)
    assert receiver.take() == []
    sim.advance(1)
    assert len(receiver.take()) == 1


# Message sessions


def held(sim: Simulation, sessions: QueueEntity) -> SessionLock:
    sim.send(sessions, make_message("m", session_id="x"))
    return sim.accept(sessions.main, "x").value


def test_a_message_session_is_held_as_long_as_it_was_given_for(
    sim: Simulation, sessions: QueueEntity, by: Millis
) -> None:
    receiver = sim.receiver(sessions.main, 2, session=held(sim, sessions))
    (taken,) = receiver.take()
    sim.set_clock(by)
    sim.advance(LOCK - 1)
    assert receiver.session is not None
    assert receiver.session.is_held
    assert receiver.session.locked_until == sim.now + 1
    assert isinstance(sim.accept(sessions.main, "x").error, SessionCannotBeLocked)
    sim.advance(1)
    assert not receiver.session.is_held
    assert isinstance(sim.settle(sessions.main, [taken]).errors[0], SessionLockLost | MessageLockLost)
    assert sim.accept(sessions.main, "x").value.locked_until == sim.now + LOCK
    sim.advance(DETACH_SLACK)
    assert isinstance(receiver.lost, SessionLockLost)


def test_messages_of_a_held_session_can_be_settled(sim: Simulation, sessions: QueueEntity, by: Millis) -> None:
    receiver = sim.receiver(sessions.main, 2, session=held(sim, sessions))
    taken = receiver.take()
    sim.set_clock(by)
    sim.tick()
    assert not sim.settle(sessions.main, taken).errors
    sim.send(sessions, make_message("next", session_id="x"))
    assert receiver.ids() == ["next"]


def test_whoever_waits_for_a_session_waits_as_long_as_was_asked_for(
    sim: Simulation, sessions: QueueEntity, by: Millis
) -> None:
    waiting = sim.accept(sessions.main, wait=10_000)
    sim.set_clock(by)
    sim.advance(9_999)
    assert not waiting.has_come
    sim.advance(1)
    assert isinstance(waiting.error, OperationTimeout)


# Transactions and stores


def test_a_transaction_may_be_open_as_long_as_ever(sim: Simulation, queue: QueueEntity, by: Millis) -> None:
    kept, late = sim.transaction(), sim.transaction()
    for transaction in (kept, late):
        transaction.send(queue, [make_message("m")], sim.now)
    sim.set_clock(by)
    sim.advance(DURATION_MAX - 1)
    committed: Answer[None] = Answer()
    kept.commit(sim.now, committed)
    sim.run()
    assert committed.value is None
    sim.clock.advance(1)
    refused: Answer[None] = Answer()
    late.commit(sim.now, refused)
    sim.run()
    assert isinstance(refused.error, TransactionTimeout)


def test_a_store_that_was_just_asked_is_not_silent_and_one_that_is_is_given_up_in_time(
    sim: Simulation, queue: QueueEntity, by: Millis
) -> None:
    reply, broker = EachReply(), queue.main.fragments[0].broker
    queue.send_each([make_message("m")], sim.now, reply)
    broker.tick(sim.now)
    sim.set_clock(by)
    sim.clock.advance(SILENCE_MAX)
    broker.tick(sim.now)
    assert broker.is_available
    sim.clock.advance(1)
    broker.tick(sim.now)
    assert not broker.is_available


# Entities


def test_an_entity_is_not_idle_because_the_clock_was_set(sim: Simulation, by: Millis) -> None:
    used = sim.queue(QueueDescription("used", auto_delete_on_idle=IDLE))
    sim.topic(TopicDescription("topic", auto_delete_on_idle=IDLE))
    sim.subscription(SubscriptionDescription("topic", "new", auto_delete_on_idle=IDLE))
    sim.advance(IDLE // 2)
    sim.send(used, make_message("m"))
    sim.set_clock(by)
    assert sim.entities.idle(sim.now) == []
    sim.clock.advance(IDLE // 2 - 1)
    assert sim.entities.idle(sim.now) == []
    sim.clock.advance(1)
    assert [description.name for description in sim.entities.idle(sim.now)] == ["topic"]
    sim.clock.advance(IDLE // 2)
    assert {description.name for description in sim.entities.idle(sim.now)} == {"used", "topic"}


def test_an_entity_that_nobody_has_used_stays_so(sim: Simulation, by: Millis) -> None:
    queue = sim.queue(QueueDescription("q"))
    queue.settings.last_used_at = 0
    sim.set_clock(by)
    assert queue.settings.last_used_at == 0


# Times of day


def test_a_schedule_is_a_time_of_day(sim: Simulation, queue: QueueEntity) -> None:
    receiver = sim.receiver(queue.main, 2)
    sim.send(queue, make_message("m", scheduled_at=sim.now + HOUR + 10))
    sim.set_clock(-HOUR)
    sim.advance(HOUR)
    assert receiver.ids() == []
    sim.set_clock(HOUR)
    sim.advance(9)
    assert receiver.ids() == []
    sim.advance(1)
    assert receiver.ids() == ["m"]


def test_what_is_due_since_the_clock_was_set_comes_with_the_next_tick(sim: Simulation, queue: QueueEntity) -> None:
    receiver = sim.receiver(queue.main, 2)
    sim.send(queue, make_message("m", scheduled_at=sim.now + HOUR))
    sim.set_clock(HOUR)
    sim.tick()
    assert receiver.ids() == ["m"]


def test_a_message_expires_by_the_clock(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m", time_to_live=HOUR))
    sim.set_clock(HOUR)
    sim.tick()
    assert sim.receiver(queue.main, 1).take() == []


@pytest.mark.one_node("the store is moved by hand")
def test_locks_that_come_with_a_store_last_as_long_when_the_clock_was_set_on_their_way(
    sim: Simulation, by: Millis
) -> None:
    queue = sim.queue(QueueDescription("q", lock_duration=LOCK))
    sim.send(queue, make_message("m"))
    sim.receiver(queue.main, 1)
    broker = queue.main.fragments[0].broker
    broker.retire()
    broker.expect(broker.move_out(lambda _: True))
    sim.set_clock(by)
    broker.store_returned()
    sim.run()
    later = sim.receiver(queue.main, 1)
    sim.advance(LOCK - 1)
    assert later.ids() == []
    sim.advance(1)
    assert later.ids() == ["m"]


def test_locks_on_their_way_to_another_node_are_held_for_as_long_when_the_clock_is_set() -> None:
    lock, row = SessionLock("s", 0, 1_000, 31_000), StoredMessage(1, b"", 0, NEVER)
    moved = MovedLocks([TakenMessage(row, b"1", 31_000), TakenMessage(row, b"2", NEVER)], [MovedSession(lock, [])])
    moved.clock_stepped(500)
    assert [each.locked_until for each in moved.messages] == [31_500, NEVER]
    assert (lock.locked_at, lock.locked_until) == (1_500, 31_500)
