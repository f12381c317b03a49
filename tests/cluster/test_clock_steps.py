"""The clock is set under several nodes: what one of them has a copy of lasts as long as what it is a copy of."""

import pytest

from twinbus.broker.consumer import SessionLock
from twinbus.clock import Millis
from twinbus.cluster.moves.moves import HELD_MAX
from twinbus.errors import OperationTimeout, SessionCannotBeLocked
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.cluster_nodes import Move
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation

LOCK = 30_000
HOUR = 3_600_000
SESSIONS = QueueDescription("s", requires_session=True, lock_duration=LOCK)


@pytest.fixture(params=[HOUR, -HOUR], ids=["forward", "back"])
def by(request: pytest.FixtureRequest) -> Millis:
    return int(request.param)


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> ClusterSimulation:
    monkeypatch.setattr(Simulation, "node_count", 2)
    made = Simulation(4)
    assert isinstance(made, ClusterSimulation)
    return made


@pytest.fixture
def movable(monkeypatch: pytest.MonkeyPatch) -> ClusterSimulation:
    monkeypatch.setattr(Simulation, "node_count", 3)
    monkeypatch.setattr(ClusterSimulation, "has_moves", True)
    made = Simulation(4)
    assert isinstance(made, ClusterSimulation)
    return made


def stands_at_another_node(sim: ClusterSimulation, queue: object) -> bool:
    """Requests are made at node 0."""
    return sim.owners[int(queue.main.fragments[0].broker.index)] != 0  # type: ignore[attr-defined]


def test_a_message_that_another_node_locked_stays_locked(sim: ClusterSimulation, by: Millis) -> None:
    queue = sim.queue(QueueDescription("q", lock_duration=LOCK))
    assert stands_at_another_node(sim, queue)
    sim.send(queue, make_message("m"))
    receiver = sim.receiver(queue.main, 2)
    (taken,) = receiver.take()
    sim.set_clock(by)
    sim.advance(LOCK - 1)
    assert receiver.take() == []
    renewed: Answer[list[Millis]] = Answer()
    queue.main.renew([taken.lock_token], sim.now, renewed)
    sim.run()
    assert renewed.value == [sim.now + LOCK]
    sim.advance(LOCK)
    assert [each.message.delivery_count for each in receiver.take()] == [1]


def test_a_front_knows_how_long_a_session_of_another_node_is_held(sim: ClusterSimulation, by: Millis) -> None:
    queue = sim.queue(SESSIONS)
    assert stands_at_another_node(sim, queue)
    sim.send(queue, make_message("m", session_id="x"))
    lock = sim.accept(queue.main, "x").value
    receiver = sim.receiver(queue.main, 1, session=lock)
    taken = receiver.take()
    sim.set_clock(by)
    sim.advance(LOCK - 1)
    assert lock.locked_until == sim.now + 1
    assert queue.main.session_lock("x", sim.now) is lock
    assert isinstance(sim.accept(queue.main, "x").error, SessionCannotBeLocked)
    assert not sim.settle(queue.main, taken).errors
    sim.advance(1)
    assert queue.main.session_lock("x", sim.now) is None
    assert isinstance(sim.accept(queue.main, "x").value, SessionLock)


def test_whoever_waits_for_a_session_of_any_node_waits_as_long_as_was_asked_for(
    sim: ClusterSimulation, by: Millis
) -> None:
    queue = sim.queue(QueueDescription("s", requires_session=True, enable_partitioning=True))
    waiting = sim.accept(queue.main, wait=10_000)
    sim.set_clock(by)
    sim.advance(9_999)
    assert not waiting.has_come
    sim.advance(1)
    assert isinstance(waiting.error, OperationTimeout)


@pytest.mark.parametrize("steps", range(1, 7))
def test_locks_on_their_way_to_another_node_end_when_they_would_have_ended(
    movable: ClusterSimulation, by: Millis, steps: int
) -> None:
    """Wherever they are when the clock is set: at the former owner, with the next one, or loaded there."""
    sim = movable
    queue, sessions = sim.queue(QueueDescription("q", lock_duration=LOCK)), sim.queue(SESSIONS)
    sim.send(queue, make_message("m"))
    sim.send(sessions, make_message("n", session_id="x"))
    receiver = sim.receiver(queue.main, 2)
    receiver.take()
    lock = sim.accept(sessions.main, "x").value
    for store in {int(each.main.fragments[0].broker.index) for each in (queue, sessions)}:
        move = Move(sim, store, 2)
        for _ in range(steps):
            sim.run()
            move.step()
        sim.set_clock(by)
        while not move.is_over:
            sim.run()
            assert move.step(), "the move does not come to an end"
        sim.run()
    sim.advance(LOCK - 1)
    assert receiver.take() == []
    assert lock.is_held
    assert lock.locked_until == sim.now + 1
    sim.advance(2_000)
    assert [each.message.delivery_count for each in receiver.take()] == [1]
    assert not lock.is_held


def test_what_waits_for_a_store_that_moves_waits_as_long_as_ever(movable: ClusterSimulation, by: Millis) -> None:
    sim = movable
    queue = sim.queue(QueueDescription("q"))
    store = int(queue.main.fragments[0].broker.index)
    moves = sim.nodes[0].fronts.mover._moves
    moves.begin(store, 0, sim.now)
    sim.set_clock(by)
    assert moves.ended(lambda _: 0, sim.now + HELD_MAX - 1) == {}
    assert moves.ended(lambda _: 0, sim.now + HELD_MAX) == {store: False}


def test_a_node_that_gets_the_store_is_asked_for_a_session_for_the_rest_of_the_wait(
    movable: ClusterSimulation, by: Millis
) -> None:
    sim = movable
    queue = sim.queue(SESSIONS)
    store = int(queue.main.fragments[0].broker.index)
    waiting = sim.accept(queue.main, wait=10_000)
    sim.advance(4_000)
    sim.set_clock(by)
    sim.move(store, next(node for node in (1, 2) if node != sim.owners[store]))
    sim.advance(5_999)
    assert not waiting.has_come
    sim.advance(1)
    assert isinstance(waiting.error, OperationTimeout)
