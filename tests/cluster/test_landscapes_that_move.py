"""Entities that hang together keep their promises while their stores move from node to node, fail and come back, from a seed."""

from collections.abc import Callable, Sequence

import pytest

from tests.simulation.forwarding_chain import rehearse_chain
from tests.simulation.landscape import Landscape
from tests.simulation.outlets import Mouth, Outlet
from twinbus.testing.cluster_nodes import Move
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.simulation import Simulation

SEEDS = 20
STEPS = 500


@pytest.fixture(autouse=True)
def three_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "node_count", 3)
    monkeypatch.setattr(ClusterSimulation, "has_moves", True)


class MovingLandscape(Landscape):
    sim: ClusterSimulation

    def __init__(
        self, seed: int, build: Callable[[Simulation], None], mouths: Sequence[Mouth], outlets: Sequence[Outlet]
    ) -> None:
        super().__init__(seed, build, mouths, outlets)
        self._moving: Move | None = None
        self.move_count = 0
        self._commands += [(self.move, 6), (self.go_on_moving, 60)]

    def move(self) -> None:
        if self._moving is None:
            store, to = self.random.randrange(len(self.sim.ports)), self.random.randrange(len(self.sim.nodes))
            self._moving = Move(self.sim, store, to)

    def go_on_moving(self) -> None:
        if self._moving is not None:
            self._moving.step()
            if self._moving.is_over:
                self._moving = None
                self.move_count += 1

    def pass_time(self) -> None:
        super().pass_time()
        for node in self.sim.nodes:
            node.fronts.tick(self.sim.now)
            node.end_moves(self.sim.now)

    def _mend(self, index: int) -> None:
        if self._moving is None or self._moving.store != index or not self._moving.is_between:
            super()._mend(index)
        self.sim.ports[index].is_hung = False

    def crash(self) -> None:
        before = self.sim.nodes
        super().crash()
        if self.sim.nodes is not before:
            self._moving = None

    def heal(self) -> None:
        for index, port in enumerate(self.sim.ports):
            port.next_fault = None
            self._mend(index)
        for _ in range(10):
            self.sim.run()
            self.go_on_moving()
        super().heal()


@pytest.mark.rule("A11.5")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_chain_of_forwarding_loses_nothing(seed: int) -> None:
    assert rehearse_chain(MovingLandscape, seed, STEPS).move_count
