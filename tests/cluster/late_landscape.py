"""Entities that hang together over nodes that stand still and wake up (`late_nodes`); drawn from a seed. Clients are at a node that does not."""

from collections.abc import Callable, Sequence

from tests.cluster.late_nodes import LateNodes
from tests.simulation.landscape import Landscape
from tests.simulation.outlets import Mouth, Outlet
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.simulation import Simulation


class LateLandscape(LateNodes, Landscape):
    sim: ClusterSimulation

    def __init__(
        self, seed: int, build: Callable[[Simulation], None], mouths: Sequence[Mouth], outlets: Sequence[Outlet]
    ) -> None:
        super().__init__(seed, build, mouths, outlets)
        self.begin_late()
        self._commands += self.late_commands

    def in_doubt(self) -> None:
        """What is forwarded may come twice at any time."""

    def may_freeze(self) -> list[int]:
        return [*range(1, len(self.sim.nodes))]

    def step(self) -> None:
        busy = self.busy_ports()
        if busy:
            self.random.choice(busy).step(self.random.randint(1, 4))

    def pass_time(self) -> None:
        self.sim.clock.advance(self.random.choice([10, 100, 1_000, 2_000]))
        self.tick_nodes()

    def _mend(self, index: int) -> None:
        owner = self.sim.owners[index]
        is_between = self.moving is not None and self.moving.store == index and self.moving.is_between
        if owner not in self.frozen and self.lease(owner, index).is_held() and not is_between:
            super()._mend(index)
        self.sim.ports[index].is_hung = False

    def crash(self) -> None:
        before = self.sim.nodes
        super().crash()
        if self.sim.nodes is not before:
            self.started_again()

    def heal(self) -> None:
        self.wake_all()
        self.sim.connect()
        for index, port in enumerate(self.sim.ports):
            port.next_fault = None
            self._mend(index)
        for _ in range(10):
            self.sim.run()
            self.go_on_moving()
        self.renew_leases()
        super().heal()

    def check_nothing_is_forwarded(self) -> None:
        """Nobody waits for anything, and nobody has it locked."""
        for node in self.sim.nodes:
            assert not any(broker.forwarding for broker in node.brokers)
            for peer in node.fronts.peers:
                assert not peer._runs
