"""A node that leaves gives its stores to the others under receivers at all nodes, while lines bring everything late; drawn from a seed.

What a receiver holds nobody else is handed before its lock ends: also if the receiver goes, and whatever else comes in between. And
whoever settles or renews in time, at whatever node, is not refused: somebody else would get the message in the end.
"""

from collections.abc import Callable, Sequence
from random import Random

import pytest

from twinbus.broker.consumer import TakenMessage
from twinbus.broker.outcomes import COMPLETE, Abandon, Outcome
from twinbus.clock import Millis
from twinbus.cluster.fronts.source import FrontSource
from twinbus.cluster.fronts.target import FrontQueue
from twinbus.errors import MessagingError
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.cluster_nodes import Move
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import SimReceiver, Simulation

STORES = 8
NODES = 3
MESSAGES = 120
LOCK_DURATION: Millis = 60_000
STEPS = 600


@pytest.fixture(autouse=True)
def three_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "node_count", NODES)
    monkeypatch.setattr(ClusterSimulation, "has_moves", True)


class Receiver(SimReceiver):
    def __init__(self, leaving: "Leaving", node: int) -> None:
        super().__init__(leaving.random.randint(1, 12))
        self.main = leaving.main_at(node)
        self._leaving = leaving

    def deliver(self, deliveries: list[TakenMessage]) -> None:
        for delivery in deliveries:
            self._leaving.handed_over(delivery)


class NotRefused:
    def settled(self, indexes: Sequence[int], now: Millis) -> None:
        """It may have been handed over again before this is known."""

    def failed(self, index: int, error: MessagingError, now: Millis) -> None:
        raise AssertionError(repr(error))


class Leaving:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        sim = Simulation(STORES, seed=seed)
        assert isinstance(sim, ClusterSimulation)
        self.sim = sim
        queue = sim.queue(
            QueueDescription("q", enable_partitioning=True, lock_duration=LOCK_DURATION, max_delivery_count=1_000)
        )
        sim.send(queue, *(make_message(str(number)) for number in range(MESSAGES)))
        sim.has_stepped_lines = True
        self.held: dict[int, TakenMessage] = {}
        """By sequence number: what somebody was handed and has not settled."""
        self.moving: Move | None = None
        self.move_count = 0
        self._leaver = self.random.randrange(NODES)
        self.receivers: list[Receiver] = []
        self.seen: set[int] = set()
        self._commands: list[tuple[Callable[[], object], int]] = [
            (self.step_line, 200),
            (self.step_port, 100),
            (self.go_on_moving, 60),
            (self.give_up_holding, 30),
            (self.attach, 10),
            (self.detach, 3),
            (self.want_more, 30),
            (self.settle, 40),
            (self.renew, 20),
            (self.pass_time, 10),
        ]

    def main_at(self, node: int) -> FrontSource:
        front = self.sim.nodes[node].fronts.find("q")
        assert isinstance(front, FrontQueue)
        return front.main

    def run(self) -> None:
        commands, weights = zip(*self._commands, strict=True)
        for command in self.random.choices(commands, weights, k=STEPS):
            command()

    def handed_over(self, delivery: TakenMessage) -> None:
        number = delivery.message.sequence_number
        before = self.held.get(number)
        assert before is None or before.locked_until <= self.sim.now, f"{number} was handed over to two"
        self.held[number] = delivery
        self.seen.add(number)

    def step_line(self) -> None:
        self.random.choice(self.sim.links).step(self.sim.now, is_back=self.random.random() < 0.5)

    def step_port(self) -> None:
        self.random.choice(self.sim.ports).step()
        self.sim.turn()

    def go_on_moving(self) -> None:
        if self.moving is None:
            left = [store for store, owner in enumerate(self.sim.owners) if owner == self._leaver]
            if left:
                others = [node for node in range(NODES) if node != self._leaver]
                self.moving = Move(self.sim, left[0], self.random.choice(others))
            else:
                self._leaver = (self._leaver + 1) % NODES  # it is back, and the next one leaves
        elif self.moving.step() and self.moving.is_over:
            self.moving = None
            self.move_count += 1

    def give_up_holding(self) -> None:
        """A node is so late that nobody waits for its answer."""
        if self.moving is not None:
            self.moving._held()

    def attach(self) -> None:
        if len(self.receivers) < 5:
            receiver = Receiver(self, self.random.randrange(NODES))
            receiver.main.attach(receiver, self.sim.now)
            self.receivers.append(receiver)

    def detach(self) -> None:
        """In the middle of whatever it is: what it holds it has locked."""
        if self.receivers:
            receiver = self.receivers.pop(self.random.randrange(len(self.receivers)))
            receiver.main.detach(receiver, self.sim.now)

    def want_more(self) -> None:
        if self.receivers:
            receiver = self.random.choice(self.receivers)
            receiver.credit += self.random.randint(1, 5)
            receiver.main.pump(self.sim.now, receiver)

    def settle(self) -> None:
        """From any node, whoever holds it."""
        if self.held:
            number = self.random.choice(sorted(self.held))
            outcome: Outcome = self.random.choice((COMPLETE, Abandon()))
            held, main = self.held.pop(number), self.main_at(self.random.randrange(NODES))
            main.settle_each([held.lock_token], outcome, self.sim.now, NotRefused())

    def renew(self) -> None:
        def renewed(result: list[Millis] | MessagingError) -> None:
            now_held = self.held.get(number)
            if now_held is not None and now_held.lock_token == held.lock_token:
                assert not isinstance(result, MessagingError), repr(result)
                self.held[number] = held._replace(locked_until=max(held.locked_until, *result))

        if self.held:
            number, held = self.random.choice(sorted(self.held.items()))
            self.main_at(self.random.randrange(NODES)).renew([held.lock_token], self.sim.now, renewed)

    def pass_time(self) -> None:
        self.sim.clock.advance(self.random.choice((50, 100)))
        for node in self.sim.nodes:
            for broker in node.brokers:
                broker.tick(self.sim.now)
            node.fronts.tick(self.sim.now)
            node.end_moves(self.sim.now)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_receiver_holds_stays_its_own_while_nodes_leave(seed: int) -> None:
    leaving = Leaving(seed)
    leaving.run()
    assert leaving.move_count
    assert leaving.seen
