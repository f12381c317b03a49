"""A simulation whose stores are shared out among several nodes, with lines between them: the same tests, over fronts.

All requests are made at node 0. What a test gets in place of a queue or topic are stand-ins: they pass calls on to the front at
that node and then carry what the lines have, so that a test need not know of them. Looking into fragments shows those of the nodes that
have them. What only the entity of a single node has raises `OfOneNode`.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, ClassVar, NamedTuple, TypeVar

from twinbus.broker.entity.entities import Entities
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.placement import Detour
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.replies import QueueCounts, Reply
from twinbus.broker.store_port import ELSEWHERE, StorePort
from twinbus.broker.wakeups import LongWork
from twinbus.broker.wide_lanes import WideLanes
from twinbus.clock import Millis
from twinbus.cluster.front_target import FrontWay
from twinbus.cluster.fronts import Fronts
from twinbus.cluster.line import Line, Topics
from twinbus.cluster.line_frames import Hello
from twinbus.cluster.ownership import Owners
from twinbus.errors import EntityNotFound, MessagingError, StoreUnavailable
from twinbus.store.changes import Change
from twinbus.store.messaging_store import MessagingStore
from twinbus.store.reads import Read
from twinbus.testing import simulation
from twinbus.testing.simulation import SimTransaction, Simulation
from twinbus.testing.stepped_port import SteppedPort

T = TypeVar("T")

OWNED = 65
"""Topic of a line, as on several machines: a store, its owner and epoch."""


class OfOneNode(Exception):
    """A test looks at something that only an entity with all of its fragments at one node has."""


class _CarryingPort(SteppedPort):
    """What a store answers may be an answer to another node."""

    def __init__(self, store: MessagingStore, carry: Callable[[], int]) -> None:
        super().__init__(store)
        self._carry = carry
        self.wrote: Callable[[], None] = _nothing
        """Called when the store has taken a commit, answered or not."""

    def _serve(self, works: list[Any]) -> object:
        before = self.commit_count
        try:
            return super()._serve(works)
        finally:
            if self.commit_count > before:
                self.wrote()

    def step(self, joined_max: int = 64) -> bool:
        has_worked = super().step(joined_max)
        return self._carry() > 0 or has_worked


class _SwitchedPort:
    """Of one store at one node: the store itself while that node owns it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.port: StorePort = ELSEWHERE

    @property
    def waiting_bytes(self) -> int:
        return self.port.waiting_bytes

    def commit(self, changes: list[Change], done: Callable[[StoreUnavailable | None], None], /) -> None:
        self.port.commit(changes, done)

    def query(self, read: Read[T], done: Callable[[T | StoreUnavailable], None], /) -> None:
        self.port.query(read, done)


class Node:
    """Brokers for all stores, those of other nodes foreign; entities, and fronts over them."""

    def __init__(self, simulation: "ClusterSimulation", number: int) -> None:
        self.number = number
        self.topics = Topics()
        long_work, wide_lanes = LongWork(simulation.later.append, simulation.clock), WideLanes()
        self.brokers = []
        self.ports = [_SwitchedPort(index) for index in range(len(simulation.ports))]
        for index, port in enumerate(simulation.ports):
            is_own = simulation.owners[index] == number
            self.ports[index].port = port if is_own else ELSEWHERE
            broker = MessageBroker(
                index,
                self.ports[index],
                simulation.clock,
                Random(simulation.seed + index + 100_000 * number),
                long_work,
                wide_lanes,
            )
            broker.is_foreign = not is_own
            self.brokers.append(broker)
        self.entities = Entities(self.brokers)
        self.owners = Owners(simulation.owners)
        owners = self.owners if simulation.has_moves else simulation.owners
        self.fronts = Fronts(self.entities, number, owners, simulation.clock, self.topics, Simulation.node_count)
        self.epochs = dict(simulation.epochs)
        self.fronts.mover.epoch_of = lambda store: self.epochs.get(store, 0)
        self.topics.tells[OWNED] = lambda line, payload, now: self.heard_owner(json.loads(payload), now)
        self.topics.when_opened.append(self._tell_owned)

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
        node, broker = self._owner
        self._epoch = sim.epochs.get(store, 0)
        self._steps = [self._retire, self._move_out, self._take, self._announce]
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
        if not broker.is_at_rest:
            return False
        node.fronts.mover.move_out(broker, self._epoch, self._holding, self.to, self._sim.now)
        broker.is_foreign = True
        broker.store_lost(StoreUnavailable("moves"))
        node.ports[self.store].port = ELSEWHERE
        return True

    def _take(self) -> bool:
        sim, store = self._sim, self.store
        sim.change_owner(store, self.to)
        node = sim.nodes[self.to]
        broker = node.brokers[store]
        broker.is_foreign = False
        broker.expect(node.fronts.mover.arrivals(store, sim.epochs[store]))
        broker.store_returned()
        return True

    def _announce(self) -> bool:
        sim, store = self._sim, self.store
        node = sim.nodes[self.to]
        if not node.brokers[store].is_available:
            return False
        node.fronts.mover.announce(store, sim.now)
        told = [store, self.to, sim.epochs[store]]
        for peer in node.fronts.peers:
            if peer.line is not None:
                peer.line.tell(OWNED, json.dumps(told).encode())
        node.heard_owner(told, sim.now)
        return True


class Link(NamedTuple):
    """A line between two nodes, with both of its ends."""

    one: Line
    other: Line
    nodes: tuple[int, int]

    @property
    def is_broken(self) -> bool:
        return self.one.is_broken or self.other.is_broken

    def step(self, now: Millis, *, is_back: bool) -> bool:
        """Bring what there is in one direction; whether that is anything."""
        source, target = (self.other, self.one) if is_back else (self.one, self.other)
        data = b"".join(source.take_output())
        if data:
            target.receive(data, now)
        return bool(data)

    def cut(self, now: Millis) -> None:
        for end in (self.one, self.other):
            end.end("cut", now)


class ClusterSimulation(Simulation):
    nodes: list[Node]
    has_stepped_lines = False
    """Lines bring nothing by themselves: a test steps them."""
    has_moves: ClassVar[bool] = False
    """Stores may be moved: every entity is a front, as on several machines."""
    links: list["Link"] = []  # noqa: RUF012, for ports that are made before
    _is_carrying = False  # what comes may ask for more

    def _start(self, former: Any) -> None:
        self.seed = self._seed
        self.epochs: dict[int, int] = {}
        self.later: deque[Callable[[], None]] = deque()
        # The first store belongs to the last node, so that an ordinary queue is not where the requests are made.
        count = Simulation.node_count
        self.owners = [(index + 1) % count for index in range(len(self.ports))]
        self.owners[-1] = max(self.owners[-1], count - 1 if len(self.ports) == 1 else 0)
        self.links = []
        self.nodes = [Node(self, number) for number in range(count)]
        self.brokers = [self.nodes[owner].brokers[index] for index, owner in enumerate(self.owners)]
        self.entities = _Entities(self)  # type: ignore[assignment]
        simulation.before_looking = [self.carry]
        self.connect()
        if former is not None:
            for node in self.nodes:
                self._restore_at(node, former)
        for node in self.nodes:
            for broker in node.brokers:
                if not broker.is_foreign:
                    broker.start()
        self.run()

    def _restore_at(self, node: Node, former: "_Entities") -> None:
        entities, old = node.entities, former.simulation_nodes[0].entities
        for queue in old.queues():
            entities.restore_queue(queue.id, queue.description, self.now, queue.first_store)
        for topic in old.topics():
            entities.restore_topic(topic.id, topic.description, self.now, topic.first_store)
            for each in topic.subscriptions.values():
                entities.restore_subscription(each.id, each.description, list(each.rules.values()), self.now)

    def _port(self, store: MessagingStore) -> SteppedPort:
        return _CarryingPort(store, self.carry)

    def transaction(self) -> SimTransaction:
        return SimTransaction(self.nodes[0].fronts.new_transaction())

    # Lines

    def connect(self) -> None:
        """A new line between any two nodes that have none."""
        count = len(self.nodes)
        self.links = [link for link in self.links if not link.is_broken]
        joined = {link.nodes for link in self.links}
        for first in range(count):
            for second in range(first + 1, count):
                if (first, second) not in joined:
                    ends = [
                        Line(Hello(one, count, "sim"), self.nodes[one].topics, self.now, _nothing, peer=other)
                        for one, other in ((first, second), (second, first))
                    ]
                    self.links.append(Link(ends[0], ends[1], (first, second)))
        self.carry()

    def carry(self) -> int:
        """Let the lines bring what they have, and what that causes; returns how often something came."""
        carried = 0
        if self.has_stepped_lines or self._is_carrying:
            return carried
        self._is_carrying = True
        try:
            while sum([link.step(self.now, is_back=is_back) for link in self.links for is_back in (False, True)]):
                carried += 1
                assert carried < 100_000, "the lines never come to rest"
        finally:
            self._is_carrying = False
        return carried

    def cut(self, place: int) -> None:
        """Break one of the lines, at both ends."""
        self.links[place].cut(self.now)
        self.carry()

    def kill_node(self, number: int, last_steps: int = 0) -> None:
        """End a node and start another one in its place; not the one that requests are made at.

        `last_steps`: what each of its stores still does of what it was asked for.
        """
        for link in self.links:
            if number in link.nodes:
                link.cut(self.now)
        for index, owner in enumerate(self.owners):
            if owner == number:
                former = self.ports[index]
                for _ in range(last_steps):
                    former.step()
                self.ports[index] = self._port(former.store)
                self.epochs[index] = self.epochs.get(index, 0) + 1
                self.fenced(index)
        self.nodes[number] = node = Node(self, number)
        self.brokers = [self.nodes[owner].brokers[index] for index, owner in enumerate(self.owners)]
        self._restore_at(node, self.entities)  # type: ignore[arg-type]
        for broker in node.brokers:
            if not broker.is_foreign:
                broker.start()
        for store, epoch in self.epochs.items():
            for each in self.nodes:
                each.heard_owner([store, self.owners[store], epoch], self.now)

    def change_owner(self, store: int, to: int) -> None:
        """Nobody before can write to it any more."""
        former = self.nodes[self.owners[store]]
        if not former.brokers[store].is_foreign:
            former.brokers[store].store_lost(StoreUnavailable("taken over"))
            former.brokers[store].is_foreign = True
            former.ports[store].port = ELSEWHERE
        self.owners[store] = to
        self.epochs[store] = self.epochs.get(store, 0) + 1
        self.ports[store] = self.nodes[to].ports[store].port = self._port(self.ports[store].store)
        self.brokers = [self.nodes[owner].brokers[index] for index, owner in enumerate(self.owners)]
        self.fenced(store)

    def move(self, store: int, to: int) -> None:
        """All of a planned move."""
        move = Move(self, store, to)
        while not move.is_over:
            self.run()
            assert move.step(), "the move does not come to an end"
        self.run()

    def fenced(self, store: int) -> None:
        """Called when the store has another owner, or its owner has started again."""

    # Time

    def run(self) -> None:
        while sum([port.run() for port in self.ports]) or self.later or self.carry():
            self.turn()
            self.carry()

    def advance(self, by: Millis, step: Millis | None = None) -> None:
        end = self.clock.now() + by
        self._tick_once()
        while self.clock.now() < end:
            self.clock.advance(min(step or by, end - self.clock.now()))
            self.tick()

    def _tick_once(self) -> None:
        for node in self.nodes:
            for broker in node.brokers:
                broker.tick(self.clock.now())
            node.fronts.tick(self.clock.now())
            node.end_moves(self.clock.now())
        self.carry()

    def tick(self) -> None:
        for _ in range(3):
            self._tick_once()
            self.run()

    # What stand-ins look into

    def fragments_of(self, queues: Sequence[Sequence[Fragment]]) -> list[Fragment]:
        """Those of the nodes that have them; one sequence for each node."""
        return [queues[self.owners[fragment.broker.index]][place] for place, fragment in enumerate(queues[0])]

    def _elsewhere(self, node: Node) -> set[int]:
        return {
            index
            for index, owner in enumerate(self.owners)
            if owner != node.number and self.nodes[owner].brokers[index].is_available
        }

    def everywhere(
        self, ask: Callable[[Node, set[int], Reply[Any]], None], reply: Reply[Any], made: Any = None
    ) -> None:
        """Ask the same of all nodes: the reply is `made()`, or the first error."""
        answers: list[Any] = []

        def take(answer: Any) -> None:
            answers.append(answer)
            if len(answers) == len(self.nodes):
                errors = [each for each in answers if isinstance(each, MessagingError)]
                reply(errors[0] if errors else None if made is None else made())

        for node in self.nodes:
            ask(node, self._elsewhere(node), take)


def _nothing() -> None:
    """The lines are carried by hand."""


class _StandIn:
    """Passes on what a front has, and carries the lines afterwards."""

    def __init__(self, sim: ClusterSimulation, front: Any) -> None:
        self._sim = sim
        self._front = front

    def __getattr__(self, name: str) -> Any:
        try:
            found = getattr(self._front, name)
        except AttributeError:
            raise OfOneNode(f"{type(self._front).__name__} has no '{name}'") from None
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            result = found(*arguments, **named)
            self._sim.carry()
            return _StandIn(self._sim, result) if isinstance(result, FrontWay) else result

        return call

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StandIn) and other._front is self._front

    def __hash__(self) -> int:
        return hash(self._front)


class _Source(_StandIn):
    """One that is deleted is as it was when it was last looked at."""

    def __init__(self, sim: ClusterSimulation, front: Any) -> None:
        super().__init__(sim, front)
        self._seen: list[MessageQueue] = []
        self._look()

    def _look(self) -> None:
        with suppress(EntityNotFound):
            self._seen = [node.fronts.part.queue(self._front.key) for node in self._sim.nodes]

    @property
    def _locals(self) -> list[MessageQueue]:
        self._sim.carry()
        self._look()
        return self._seen

    @property
    def fragments(self) -> list[Fragment]:
        return self._sim.fragments_of([queue.fragments for queue in self._locals])

    def counts(self) -> QueueCounts:
        self._sim.carry()
        parts = [
            queue.counts() for queue in self._locals if any(not each.broker.is_foreign for each in queue.fragments)
        ]
        return sum(parts[1:], start=parts[0])

    @property
    def receiver_count(self) -> int:
        self._sim.carry()
        return max(queue.receiver_count for queue in self._locals)


class _Transfers(NamedTuple):
    fragments: list[Fragment]


class _Placement(NamedTuple):
    detours: Counter[Detour]


class _Entity(_StandIn):
    def __init__(self, sim: ClusterSimulation, front: Any) -> None:
        super().__init__(sim, front)
        self._sources = {
            name: _Source(sim, getattr(front, name))
            for name in ("main", "dead_letter", "transfer_dead_letter")
            if hasattr(front, name)
        }

    @property
    def _locals(self) -> list[Any]:
        local = getattr(self._front, "local", self._front)
        found = [node.entities.with_id(local.id) for node in self._sim.nodes]
        return [local if each is None else each for each in found]

    @property
    def id(self) -> int:
        return int(self._locals[0].id)

    @property
    def description(self) -> Any:
        return self._locals[0].description

    @property
    def main(self) -> _Source:
        return self._sources["main"]

    @property
    def dead_letter(self) -> _Source:
        return self._sources["dead_letter"]

    @property
    def transfer_dead_letter(self) -> _Source:
        return self._sources["transfer_dead_letter"]

    @property
    def fragments(self) -> list[Fragment]:
        return self._sim.fragments_of([each.fragments for each in self._locals])

    @property
    def placement(self) -> _Placement:
        return _Placement(sum([each.placement.detours for each in self._locals], start=Counter()))

    def follow_description(self, description: Any, now: Millis) -> None:
        for each in self._locals:
            each.follow_description(description, now)

    @property
    def transfers(self) -> "_Transfers":
        return _Transfers(self._sim.fragments_of([each.transfers.fragments for each in self._locals]))

    @property
    def main_fragments(self) -> list[Fragment]:
        return self._sim.fragments_of([each.main_fragments for each in self._locals])

    def fragment(self, index: int) -> Fragment:
        return self.main.fragments[index]

    def counts(self) -> QueueCounts:
        return self._summed([each.counts() for each in self._locals if self._has_own(each)])

    def transfer_counts(self) -> QueueCounts:
        return self._summed([each.transfer_counts() for each in self._locals if self._has_own(each)])

    def holdings(self) -> Any:
        parts = [each.holdings() for each in self._locals if self._has_own(each)]
        return sum(parts[1:], start=parts[0])

    @staticmethod
    def _summed(parts: Sequence[QueueCounts]) -> QueueCounts:
        return sum(parts[1:], start=parts[0])

    @staticmethod
    def _has_own(entity: Any) -> bool:
        return any(not fragment.broker.is_foreign for fragment in entity.fragments)

    @property
    def last_used_at(self) -> Millis:
        used: Millis = max(each.last_used_at for each in self._locals)
        return used

    @property
    def rules(self) -> Any:
        return self._locals[0].rules

    @property
    def subscriptions(self) -> dict[str, Any]:
        topic = self._locals[0]
        fronts = self._sim.nodes[0].fronts
        return {
            key: _Entity(self._sim, fronts.subscription(topic.description.name, each.description.name))
            for key, each in topic.subscriptions.items()
        }


class _Entities:
    """What a control plane would do at all nodes, and what a gateway sees at node 0."""

    def __init__(self, sim: ClusterSimulation) -> None:
        self._sim = sim
        self.simulation_nodes = sim.nodes

    def __getattr__(self, name: str) -> Any:
        raise OfOneNode(f"the entities of several nodes have no '{name}'")

    def find(self, path: str) -> Any:
        found = self._sim.nodes[0].fronts.find(path)
        return None if found is None else _Entity(self._sim, found)

    def queue(self, path: str) -> Any:
        self._sim.nodes[0].entities.queue(path)
        return self.find(path)

    def topic(self, path: str) -> Any:
        self._sim.nodes[0].entities.topic(path)
        return self.find(path)

    def subscription(self, topic: str, name: str) -> Any:
        return _Entity(self._sim, self._sim.nodes[0].fronts.subscription(topic, name))

    def queues(self) -> list[Any]:
        return [self.find(queue.description.name) for queue in self._sim.nodes[0].entities.queues()]

    def topics(self) -> list[Any]:
        return [self.find(topic.description.name) for topic in self._sim.nodes[0].entities.topics()]

    def count(self, path: str, now: Millis, reply: Reply[Any]) -> None:
        self._sim.nodes[0].fronts.count(path, now, reply)
        self._sim.carry()

    def restore_queue(self, number: int, description: Any, now: Millis) -> None:
        for node in self._sim.nodes:
            node.entities.restore_queue(number, description, now)

    def create_queue(self, number: int, description: Any, now: Millis, reply: Reply[Any]) -> None:
        self._sim.everywhere(
            lambda node, elsewhere, done: node.entities.create_queue(number, description, now, done, elsewhere),
            reply,
            lambda: self.find(description.name),
        )

    def create_topic(self, number: int, description: Any, now: Millis, reply: Reply[Any]) -> None:
        self._sim.everywhere(
            lambda node, elsewhere, done: node.entities.create_topic(number, description, now, done, elsewhere),
            reply,
            lambda: self.find(description.name),
        )

    def create_subscription(
        self, number: int, description: Any, rules: Sequence[Any], now: Millis, reply: Reply[Any]
    ) -> None:
        self._sim.everywhere(
            lambda node, elsewhere, done: node.entities.create_subscription(
                number, description, rules, now, done, elsewhere
            ),
            reply,
            lambda: self.subscription(description.topic, description.name),
        )

    def update(self, description: Any, now: Millis, reply: Reply[None]) -> None:
        self._sim.everywhere(
            lambda node, elsewhere, done: node.entities.update(description, now, done, elsewhere), reply
        )
        self._sim.carry()

    def delete(self, path: str, now: Millis, reply: Reply[None]) -> None:
        self._sim.everywhere(lambda node, elsewhere, done: node.entities.delete(path, now, done, elsewhere), reply)

    def delete_subscription(self, topic: str, name: str, now: Millis, reply: Reply[None]) -> None:
        self._sim.everywhere(
            lambda node, elsewhere, done: node.entities.delete_subscription(topic, name, now, done, elsewhere), reply
        )

    def add_rule(self, topic: str, subscription: str, rule: Any) -> None:
        for node in self._sim.nodes:
            node.entities.add_rule(topic, subscription, rule)

    def remove_rule(self, topic: str, subscription: str, name: str) -> None:
        for node in self._sim.nodes:
            node.entities.remove_rule(topic, subscription, name)

    def idle(self, now: Millis) -> list[Any]:
        """Of what all nodes find idle."""
        found = [node.entities.idle(now) for node in self._sim.nodes]
        return [each for each in found[0] if all(each in others for others in found[1:])]
