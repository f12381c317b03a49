"""Whoever waits for any message session gets one of a part that was lost when it began to wait, or was lost meanwhile."""

import pytest

from twinbus.cluster.fronts.session_waiter import ASK_AGAIN_AFTER
from twinbus.cluster.lines.talk import Topic
from twinbus.errors import FragmentUnavailable, OperationTimeout
from twinbus.model.descriptions import QueueDescription
from twinbus.model.partition_key import candidates
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Simulation

HERE, THERE = 0, 1
"""Nodes. Requests are made at the first."""
SESSIONS = QueueDescription("q", requires_session=True, enable_partitioning=True)
WAIT = 60_000


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> ClusterSimulation:
    monkeypatch.setattr(Simulation, "node_count", 2)
    made = Simulation(4)
    assert isinstance(made, ClusterSimulation)
    made.queue(SESSIONS)
    return made


def session_at(sim: ClusterSimulation, node: int) -> str:
    """The id of one whose fragment this node has."""
    fragments = sim.entities.queue("q").main.fragments
    names = map(str, range(100))
    return next(name for name in names if sim.owners[fragments[candidates(name, 16, 0)[0]].broker.index] == node)


def send(sim: ClusterSimulation, session_id: str) -> None:
    assert sim.send(sim.entities.queue("q"), make_message("m", session_id=session_id)).good == {0}


@pytest.mark.parametrize("is_first", [True, False], ids=["before", "meanwhile"])
def test_of_a_node_that_was_out_of_sight(sim: ClusterSimulation, is_first: bool) -> None:
    if is_first:
        sim.cut(0)
    waiting = sim.accept(sim.entities.queue("q").main, wait=WAIT)
    if not is_first:
        sim.cut(0)
    sim.advance(1_000, 100)
    sim.connect()
    send(sim, session_at(sim, THERE))
    sim.advance(1_000, 100)
    assert waiting.value.session_id == session_at(sim, THERE)


@pytest.mark.parametrize("node", [HERE, THERE])
@pytest.mark.parametrize("is_first", [True, False], ids=["before", "meanwhile"])
def test_of_a_node_whose_stores_were_lost(sim: ClusterSimulation, node: int, is_first: bool) -> None:
    stores = [store for store, owner in enumerate(sim.owners) if owner == node]
    main = sim.entities.queue("q").main
    waiting = None if is_first else sim.accept(main, wait=WAIT)
    for store in stores:
        sim.lose_store(store)
    waiting = waiting or sim.accept(main, wait=WAIT)
    sim.advance(1_000, 100)
    for store in stores:
        sim.return_store(store)
    send(sim, session_at(sim, node))
    sim.advance(1_000, 100)
    assert waiting.value.session_id == session_at(sim, node)


def test_the_error_comes_when_nobody_is_left_who_has_any(sim: ClusterSimulation) -> None:
    waiting = sim.accept(sim.entities.queue("q").main, wait=WAIT)
    for store in range(4):
        assert not waiting.has_come
        sim.lose_store(store)
    assert isinstance(waiting.error, FragmentUnavailable)


def test_it_takes_no_longer_than_it_was_to_take(sim: ClusterSimulation) -> None:
    waiting = sim.accept(sim.entities.queue("q").main, wait=WAIT)
    sim.cut(0)
    sim.connect()
    sim.advance(WAIT - 100, 100)
    assert not waiting.has_come
    sim.advance(300, 100)
    assert isinstance(waiting.error, OperationTimeout)


def test_a_part_that_has_no_store_is_not_asked_all_the_time(sim: ClusterSimulation) -> None:
    asked: list[int] = []
    whole = sim.nodes[THERE].topics.asks[Topic.ACCEPT]

    def note(*arguments: object) -> None:
        asked.append(sim.now)
        whole(*arguments)  # type: ignore[arg-type]

    sim.nodes[THERE].topics.asks[Topic.ACCEPT] = note
    for store in [store for store, owner in enumerate(sim.owners) if owner == THERE]:
        sim.lose_store(store)
    sim.accept(sim.entities.queue("q").main, wait=WAIT)
    sim.advance(10 * ASK_AGAIN_AFTER, 100)
    assert 9 <= len(asked) <= 11
