"""A client's link to a queue over several nodes keeps its promises however the client gives and takes credit, from a seed.

It raises and lowers its credit, drains, and does not read for a while; meanwhile lines break, and stores are lost, come back and move. In
the end nothing comes that the client has no credit for, and everything comes once it has.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.gateway.front import Client, Front, payload
from twinbus.amqp.codec.delivery_state import Accepted
from twinbus.amqp.codec.performatives import SenderSettleMode
from twinbus.amqp.events import LinkDetached
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.gateway.links.receiver_binding import ReceiverBinding
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.cluster_nodes import Move
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.simulation import Simulation

UNSETTLED, SETTLED = SenderSettleMode.UNSETTLED, SenderSettleMode.SETTLED
STORES = 8
STEPS = 300
SEEDS = 8
TICKS = 10


class LinkTurmoil:
    def __init__(self, seed: int, folder: Path, mode: SenderSettleMode) -> None:
        self.random = Random(seed)
        self._mode = mode
        front = Front(folder, STORES)
        assert isinstance(front.sim, ClusterSimulation)
        self.sim = front.sim
        self.sim.queue(
            QueueDescription("orders", enable_partitioning=True, lock_duration=60_000, max_delivery_count=1_000)
        )
        self.client, self._other = front.client(), front.client()
        self._sender = self._other.sender("orders")
        self._is_paused = False
        self._moving: Move | None = None
        self._sent_count = self.received_count = 0
        self.link: IncomingLink | None = new_link(self.client, mode)
        self._commands: list[tuple[Callable[[], object], int]] = [
            (self.send, 25),
            (self.grant, 20),
            (self.drain, 5),
            (self.pause_or_resume, 5),
            (self.cut, 5),
            (self.sim.connect, 6),
            (self.lose, 3),
            (self.mend, 6),
            (self.move, 6),
            (self.go_on_moving, 10),
            (self.tick, 8),
            (self.client.run, 20),
            (self.receive, 20),
        ]

    def run(self) -> None:
        commands, weights = zip(*self._commands, strict=True)
        for command in self.random.choices(commands, weights, k=STEPS):
            command()

    def send(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            self._sent_count += 1
            name = str(self._sent_count)
            self._sender.transfer(payload(name), name.encode())
        self._other.run()

    def grant(self) -> None:
        if self.link is not None:
            self.link.grant(self.random.choice((0, 1, 2, 5, 20)))

    def drain(self) -> None:
        if self.link is not None:
            self.link.drain()

    def pause_or_resume(self) -> None:
        self._is_paused = not self._is_paused
        if self._is_paused:
            self.client.gateway.pause()
        else:
            self.client.gateway.resume(self.sim.now)

    def cut(self) -> None:
        if self.sim.links:
            self.sim.cut(self.random.randrange(len(self.sim.links)))

    def lose(self) -> None:
        store = self.random.randrange(STORES)
        if self._moving is None or self._moving.store != store:
            self.sim.lose_store(store)

    def mend(self) -> None:
        for store in range(STORES):
            is_moving = self._moving is not None and self._moving.store == store
            if not is_moving and not self.sim.brokers[store].is_available:
                self.sim.return_store(store)

    def move(self) -> None:
        store = self.random.randrange(STORES)
        if self._moving is None and self.sim.has_moves and self.sim.brokers[store].is_available:
            self._moving = Move(self.sim, store, self.random.randrange(len(self.sim.nodes)))

    def go_on_moving(self) -> None:
        if self._moving is not None:
            self._moving.step()
            if self._moving.is_over:
                self._moving = None

    def tick(self) -> None:
        self.sim.advance(self.random.choice((10, 100, 300)))
        for binding in list(self.client.gateway._bindings.values()):
            if isinstance(binding, ReceiverBinding):
                binding.tick(self.sim.now)

    def receive(self) -> None:
        if self.client.take(LinkDetached):
            self.link = None  # all parts of the queue were lost
        for delivery in self.client.received():
            self.received_count += 1
            if self._mode is UNSETTLED and self.link is not None:
                self.link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
        self.client.run()
        if self.link is None and not self._is_paused:
            self.link = new_link(self.client, self._mode)

    def rest(self) -> None:
        for _ in range(TICKS):
            self.client.run()
            self.receive()
            self.tick()

    def check(self) -> None:
        if self._is_paused:
            self.pause_or_resume()
        self.sim.connect()
        for _ in range(TICKS):
            self.sim.run()
            self.go_on_moving()
        self.mend()
        self.rest()
        assert self.link is not None
        self.link.grant(0)
        self.rest()
        before = self.received_count
        self.send()
        self.rest()
        assert self.received_count == before
        self.link.grant(10 * STEPS)
        self.rest()
        fragments = self.sim.entities.queue("orders").main.fragments
        assert not any(fragment.lane.ready or fragment.lane.beyond for fragment in fragments)
        assert self.received_count > before


def new_link(client: Client, mode: SenderSettleMode) -> IncomingLink:
    return client.receiver("orders", mode=mode)


@pytest.mark.parametrize("mode", [UNSETTLED, SETTLED], ids=["locked", "deleted"])
@pytest.mark.parametrize("has_moves", [False, True], ids=["stores stay", "stores move"])
@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_client_gets_what_it_has_credit_for_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, nodes: int, has_moves: bool, mode: SenderSettleMode
) -> None:
    monkeypatch.setattr(Simulation, "node_count", nodes)
    monkeypatch.setattr(ClusterSimulation, "has_moves", has_moves)
    turmoil = LinkTurmoil(seed, tmp_path, mode)
    turmoil.run()
    turmoil.check()
