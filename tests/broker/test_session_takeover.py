"""Message sessions that are not held exclusively: a receiver takes one over by its lock token."""

import pytest

from twinbus.broker.commands import GetSessionState
from twinbus.broker.consumer import SessionLock
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.session_desk import DETACH_SLACK
from twinbus.broker.outcomes import Abandon
from twinbus.errors import ArgumentError, SessionCannotBeLocked, SessionLockLost
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import SimReceiver, Simulation

LOCK = 60_000


@pytest.fixture(params=[False, True], ids=["ordinary", "partitioned"])
def queue(request: pytest.FixtureRequest, sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("s", requires_session=True, enable_partitioning=request.param))


@pytest.fixture
def sim() -> Simulation:
    return Simulation(4)


def share(sim: Simulation, queue: QueueEntity, token: bytes | None = None, name: str | None = "one") -> SessionLock:
    return sim.accept(queue.main, name, is_exclusive=False, token=token).value


def send(sim: Simulation, queue: QueueEntity, *ids: str, session_id: str = "one") -> None:
    sim.send(queue, *(make_message(each, session_id=session_id) for each in ids))


def holder(sim: Simulation, queue: QueueEntity, credit: int = 10) -> SimReceiver:
    return sim.receiver(queue.main, credit, session=share(sim, queue))


def test_a_session_held_exclusively_has_no_token_and_one_held_otherwise_has(
    sim: Simulation, queue: QueueEntity
) -> None:
    assert sim.accept(queue.main, "alone").value.token is None
    tokens = {share(sim, queue, name=name).token for name in ("one", "two")}
    assert len(tokens) == 2
    assert all(token is not None and len(token) == 16 for token in tokens)


def test_who_waits_for_any_session_may_hold_it_not_exclusively(sim: Simulation, queue: QueueEntity) -> None:
    waiting = sim.accept(queue.main, None, wait=10_000, is_exclusive=False)
    send(sim, queue, "a")
    assert waiting.value.session_id == "one"
    assert waiting.value.token is not None


@pytest.mark.rule("A9.6")
def test_the_token_takes_the_session_over_and_stays_the_same(sim: Simulation, queue: QueueEntity) -> None:
    first = holder(sim, queue)
    assert first.session is not None
    sim.advance(LOCK // 2)
    second = share(sim, queue, first.session.token)
    assert second.token == first.session.token
    assert second.locked_until == sim.now + LOCK
    assert second.is_held
    assert not first.session.is_held
    assert isinstance(first.lost, SessionLockLost)


def test_the_former_holder_is_handed_nothing_more_whatever_credit_it_gives(sim: Simulation, queue: QueueEntity) -> None:
    first = holder(sim, queue)
    assert first.session is not None
    second = sim.receiver(queue.main, 0, session=share(sim, queue, first.session.token))
    send(sim, queue, "a")
    first.credit = 10
    queue.main.pump(sim.now, first)
    assert first.take() == []
    second.credit = 10
    queue.main.pump(sim.now, second)
    assert second.ids() == ["a"]


def test_what_the_former_holder_was_handed_stays_locked_for_the_new_one_to_settle(
    sim: Simulation, queue: QueueEntity
) -> None:
    send(sim, queue, "a", "b", "c")
    first = holder(sim, queue, credit=2)
    a, b = first.take()
    assert first.session is not None
    second = sim.receiver(queue.main, 10, session=share(sim, queue, first.session.token))
    assert second.ids() == ["c"]
    assert sim.settle(queue.main, [a]).good == {0}
    assert sim.settle(queue.main, [b], Abandon()).good == {0}
    assert second.ids() == ["b"]


def test_the_new_holder_sees_the_name_that_it_asked_with(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "a")
    first = share(sim, queue, name="ONE")
    second = share(sim, queue, first.token, name="oNe")
    assert (first.session_id, second.session_id) == ("ONE", "oNe")
    assert sim.receiver(queue.main, 1, session=second).ids() == ["a"]


def test_new_messages_go_to_the_new_holder_alone(sim: Simulation, queue: QueueEntity) -> None:
    first = holder(sim, queue)
    assert first.session is not None
    second = sim.receiver(queue.main, 10, session=share(sim, queue, first.session.token))
    send(sim, queue, "a")
    assert (first.ids(), second.ids()) == ([], ["a"])


def test_a_session_is_handed_on_from_one_to_the_next(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "a")
    receivers = [holder(sim, queue)]
    (delivery,) = receivers[0].take()
    for _ in range(5):
        last = receivers[-1].session
        assert last is not None
        receivers.append(sim.receiver(queue.main, 10, session=share(sim, queue, last.token)))
    assert [receiver.lost is None for receiver in receivers] == [False] * 5 + [True]
    assert sim.settle(queue.main, [delivery]).good == {0}


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_a_session_that_is_held_is_refused_without_its_token(
    sim: Simulation, queue: QueueEntity, is_exclusive: bool
) -> None:
    first = holder(sim, queue)
    for token in (None, b"\x00" * 16, b""):
        refused = sim.accept(queue.main, "one", is_exclusive=is_exclusive, token=token)
        assert isinstance(refused.error, SessionCannotBeLocked)
    assert first.lost is None


def test_a_session_held_exclusively_cannot_be_taken_over(sim: Simulation, queue: QueueEntity) -> None:
    sim.accept(queue.main, "one")
    refused = sim.accept(queue.main, "one", is_exclusive=False, token=b"\x01" * 16)
    assert isinstance(refused.error, SessionCannotBeLocked)


@pytest.mark.parametrize("is_released", [True, False])
def test_a_token_ends_with_the_hold(sim: Simulation, queue: QueueEntity, is_released: bool) -> None:
    first = holder(sim, queue)
    assert first.session is not None
    if is_released:
        queue.main.detach(first, sim.now)
    else:
        sim.advance(LOCK + 1)
    refused = sim.accept(queue.main, "one", is_exclusive=False, token=first.session.token)
    assert isinstance(refused.error, SessionLockLost)
    assert share(sim, queue).token != first.session.token


def test_a_token_does_not_survive_a_restart(sim: Simulation, queue: QueueEntity) -> None:
    token = share(sim, queue).token
    sim.restart()
    refused = sim.accept(sim.entities.queue("s").main, "one", is_exclusive=False, token=token)
    assert isinstance(refused.error, SessionLockLost)


def test_a_token_needs_the_name_of_its_session(sim: Simulation, queue: QueueEntity) -> None:
    token = share(sim, queue).token
    assert isinstance(sim.accept(queue.main, None, is_exclusive=False, token=token).error, ArgumentError)


def test_what_the_former_holder_does_late_changes_nothing_for_the_new_one(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "a")
    first = holder(sim, queue)
    assert first.session is not None
    second = sim.receiver(queue.main, 10, session=share(sim, queue, first.session.token))
    queue.main.detach(first, sim.now)
    queue.main.release_session(first.session, sim.now)
    sim.advance(LOCK - 1)  # past the end that the first hold had
    assert second.session is not None
    assert second.session.is_held
    assert sim.ask(queue.main, GetSessionState("one")).value is None


def test_a_receiver_that_lost_its_session_before_it_was_attached_is_refused(
    sim: Simulation, queue: QueueEntity
) -> None:
    first = share(sim, queue)
    share(sim, queue, first.token)
    with pytest.raises(SessionLockLost):
        sim.receiver(queue.main, 1, session=first)


def test_a_hold_that_was_taken_over_ends_as_any_other(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "a")
    first = holder(sim, queue)
    assert first.session is not None
    second = sim.receiver(queue.main, 10, session=share(sim, queue, first.session.token))
    sim.advance(LOCK)
    assert second.session is not None
    assert not second.session.is_held
    sim.advance(DETACH_SLACK)
    assert isinstance(second.lost, SessionLockLost)


def test_the_counts_of_what_was_handed_to_any_holder_rise_when_the_last_hold_ends(
    sim: Simulation, queue: QueueEntity
) -> None:
    send(sim, queue, "a", "b")
    first = holder(sim, queue, credit=1)
    assert first.session is not None
    sim.receiver(queue.main, 1, session=share(sim, queue, first.session.token))
    sim.advance(LOCK + 1)
    again = sim.receiver(queue.main, 10, session=share(sim, queue))
    assert [(each.message.delivery_count) for each in again.take()] == [1, 1]
