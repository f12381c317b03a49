"""What nodes promise holds while some of them stand still, lose their stores without knowing, and wake up; from a seed."""

import pytest

from tests.cluster import late_turmoil
from tests.cluster.late_landscape import LateLandscape
from tests.cluster.late_nodes import ClaimingNode
from tests.measured import Measured
from tests.simulation.forwarding_chain import rehearse_chain
from twinbus.broker.consumer import ReceiveMode
from twinbus.testing import cluster_simulation
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.simulation import Simulation

STEPS = 350


@pytest.fixture(autouse=True)
def three_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "node_count", 3)
    monkeypatch.setattr(ClusterSimulation, "has_moves", True)
    monkeypatch.setattr(cluster_simulation, "Node", ClaimingNode)


@pytest.mark.parametrize("requires_session", [False, True], ids=["keys", "sessions"])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_stuck_or_held_twice(seed: int, requires_session: bool) -> None:
    late_turmoil.rehearse(seed, STEPS, requires_session=requires_session, detects=seed % 3 == 0)


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_stuck_where_messages_are_received_and_deleted(seed: int) -> None:
    late_turmoil.rehearse(seed, STEPS, mode=ReceiveMode.RECEIVE_AND_DELETE)


def rehearse_forwarding(seed: int, steps: int) -> None:
    rehearse_chain(LateLandscape, seed, steps).check_nothing_is_forwarded()


@pytest.mark.rule("A11.5")
@pytest.mark.parametrize("seed", range(3))
def test_a_chain_of_forwarding_loses_nothing_and_leaves_nothing_on_the_way(seed: int) -> None:
    rehearse_forwarding(seed, STEPS)


@pytest.mark.nightly
@pytest.mark.parametrize("node_count", [2, 3, 4])
@pytest.mark.parametrize("requires_session", [False, True], ids=["keys", "sessions"])
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_nothing_is_stuck_in_many_histories(
    first: int, requires_session: bool, node_count: int, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulation, "node_count", node_count)
    for seed in range(first, first + 100):
        done = late_turmoil.rehearse(seed, STEPS, requires_session=requires_session, detects=seed % 3 == 0)
        measured(
            "nodes that stand still",
            {"histories": 1, "stood still": done.freeze_count, "taken over": done.take_over_count},
        )


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(1_000, 1_500, 50))
def test_chains_of_forwarding_leave_nothing_on_the_way_in_many_histories(first: int) -> None:
    for seed in range(first, first + 50):
        rehearse_forwarding(seed, 500)
