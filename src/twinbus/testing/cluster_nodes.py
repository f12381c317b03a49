"""The nodes of a simulated cluster, each with brokers, entities and fronts of its own, and planned moves of stores between them."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypeVar

from twinbus.broker.entity.entities import Entities
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.store_port import ELSEWHERE, StorePort
from twinbus.broker.wakeups import LongWork
from twinbus.broker.wide_lanes import WideLanes
from twinbus.clock import Millis
from twinbus.cluster.fronts.fronts import Fronts
from twinbus.cluster.lines.line import Line, Topics
from twinbus.cluster.ownership import Owners
from twinbus.errors import StoreUnavailable
from twinbus.store.changes import Change
from twinbus.store.reads import Read
from twinbus.testing.simulation import Simulation

if TYPE_CHECKING:
    from twinbus.testing.cluster_simulation import ClusterSimulation

T = TypeVar("T")

OWNED = 65
"""Topic of a line, as on several machines: a store, its owner and epoch."""
GIVEN = 66
"""A store that was released for the node that is told, and the epoch of its former owner."""


class _SwitchedPort:
    """Of one store at one node: the store itself while that node owns it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.port: StorePort = ELSEWHERE

    @property
    def waiting_bytes(self) -> int:
        return self.port.waiting_bytes

    @property
    def is_pressed(self) -> bool:
        return self.port.is_pressed

    @property
    def is_full(self) -> bool:
        return self.port.is_full

    def commit(
        self, changes: list[Change], done: Callable[[StoreUnavailable | None], None], /, *, is_awaited: bool = True
    ) -> None:
        self.port.commit(changes, done, is_awaited=is_awaited)

    def query(self, read: Read[T], done: Callable[[T | StoreUnavailable], None], /) -> None:
        self.port.query(read, done)


class Node:
    """Brokers for all stores, those of other nodes foreign; entities, and fronts over them."""

    def __init__(self, simulation: "ClusterSimulation", number: int) -> None:
        self.number = number
        self.peer_count = Simulation.node_count
        self.topics = Topics()
        long_work, wide_lanes = LongWork(simulation.later.append, simulation.clock), WideLanes()
        self.brokers = []
        life = next(simulation.lives)
        self.ports = [_SwitchedPort(index) for index in range(len(simulation.ports))]
        for index, port in enumerate(simulation.ports):
            is_own = simulation.owners[index] == number
            # A node that takes the place of one that was killed draws other lock tokens and names, as a new process does.
            seed = f"{simulation.seed}, store {index}, life {life}"
            self.ports[index].port = port if is_own else ELSEWHERE
            broker = MessageBroker(
                index,
                self.ports[index],
                simulation.clock,
                Random(seed),
                long_work,
                wide_lanes,
            )
            broker.is_foreign = not is_own
            broker.when_loaded = partial(self._serves, simulation, index)
            self.brokers.append(broker)
        self.entities = Entities(self.brokers)
        self.owners = self._owners(simulation)
        owners = self.owners if simulation.has_moves else simulation.owners
        self.fronts = Fronts(self.entities, number, owners, simulation.clock, self.topics, self.peer_count)
        self.epochs = dict(simulation.epochs)
        self.given: set[tuple[int, ...]] = set()
        self.topics.tells[GIVEN] = lambda line, payload, now: self.given.add(tuple(json.loads(payload)))
        self._hear()

    def _owners(self, simulation: "ClusterSimulation") -> Owners:
        return Owners(simulation.owners)

    def _hear(self) -> None:
        """Who serves what, as the others say."""
        self.fronts.mover.epoch_of = lambda store: self.epochs.get(store, 0)
        self.topics.tells[OWNED] = lambda line, payload, now: self.heard_owner(json.loads(payload), now)
        self.topics.when_opened.append(self._tell_owned)

    def _serves(self, simulation: "ClusterSimulation", store: int) -> None:
        epoch = simulation.epochs.get(store, 0)
        if epoch > self.epochs.get(store, 0):
            told = [store, self.number, epoch]
            self.fronts.mover.announce(store, simulation.now)
            for peer in self.fronts.peers:
                if peer.line is not None:
                    peer.line.tell(OWNED, json.dumps(told).encode())
            self.heard_owner(told, simulation.now)

    def _tell_owned(self, line: Line, now: Millis) -> None:
        for store, epoch in self.epochs.items():
            if self.owners.of[store] == self.number:
                line.tell(OWNED, json.dumps([store, self.number, epoch]).encode())

    def heard_owner(self, told: Sequence[int], now: Millis) -> None:
        store, owner, epoch = told
        if epoch <= self.epochs.get(store, 0):
            return
        self.epochs[store] = epoch
        of = list(self.owners.of)
        of[store] = owner
        if self.owners.change(of):
            self.fronts.owners_changed(now)
        self.end_moves(now)

    def end_moves(self, now: Millis) -> None:
        self.fronts.end_moves(lambda store: self.epochs.get(store, 0), now)


class Move:
    """A planned move of a store, step by step: each does what it can, and returns whether that was anything."""

    def __init__(self, sim: "ClusterSimulation", store: int, to: int) -> None:
        self.store, self.to = store, to
        self.is_over = False
        self._sim = sim
        self._former = sim.owners[store]
        self._is_held = False
        self._line: Line | None = None
        node, broker = self._owner
        self._epoch = sim.epochs.get(store, 0)
        self._steps = [self._retire, self._move_out, self._take, self._is_taken]
        if not broker.is_available or to == self._former:
            self.is_over = True
            return
        self._holding = node.fronts.mover.hold(store, self._epoch, sim.now, self._held)

    @property
    def is_between(self) -> bool:
        """Whether nobody serves the store."""
        return len(self._steps) in (2, 3)

    @property
    def is_planned(self) -> bool:
        """Whether the next step does no more to others than a move does: its owner is still the one that began it."""
        return self._owner[1].is_foreign or len(self._steps) > 2

    @property
    def _owner(self) -> tuple[Node, MessageBroker]:
        node = self._sim.nodes[self._former]
        return node, node.brokers[self.store]

    def _held(self) -> None:
        self._is_held = True

    def step(self) -> bool:
        if self.is_over or not self._steps[0]():
            return False
        del self._steps[0]
        self.is_over = self.is_over or not self._steps
        return True

    def _retire(self) -> bool:
        broker = self._owner[1]
        self.is_over = not broker.is_available  # the store was lost meanwhile
        if self._is_held and not self.is_over:
            broker.retire()
        return self._is_held

    def _move_out(self) -> bool:
        node, broker = self._owner
        if broker.is_available:  # its store was lost and returned meanwhile
            broker.retire()
        if not broker.is_at_rest:
            return False
        node.fronts.mover.move_out(broker, self._epoch, self._holding, self.to, self._sim.now)
        if self.to != self._former and (line := node.fronts.peers[self.to].line) is not None:
            line.tell(GIVEN, json.dumps((self.store, self._epoch)).encode())
            self._line = line
        broker.is_foreign = True
        broker.store_lost(StoreUnavailable("moves"))
        node.ports[self.store].port = ELSEWHERE
        return True

    def _take(self) -> bool:
        sim, store = self._sim, self.store
        node = sim.nodes[self.to]
        is_coming = self._line is not None and not self._line.is_broken and self.to != self._former
        if is_coming and (store, self._epoch) not in node.given:
            return False  # what is locked comes first
        sim.change_owner(store, self.to)
        broker = node.brokers[store]
        broker.is_foreign = False
        broker.expect(node.fronts.mover.arrivals(store, sim.epochs[store]))
        broker.store_returned()
        return True

    def _is_taken(self) -> bool:
        return self._sim.nodes[self.to].brokers[self.store].is_available
