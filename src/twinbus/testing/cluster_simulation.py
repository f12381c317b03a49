"""A simulation whose stores are shared out among several nodes, with lines between them: the same tests, over fronts.

All requests are made at node 0, through stand-ins (`cluster_stand_ins`).
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, ClassVar, NamedTuple

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.replies import Reply
from twinbus.broker.store_port import ELSEWHERE
from twinbus.clock import Millis
from twinbus.cluster.lines.frames import Hello
from twinbus.cluster.lines.line import Line
from twinbus.errors import MessagingError, StoreUnavailable
from twinbus.store.messaging_store import MessagingStore
from twinbus.testing import simulation
from twinbus.testing.cluster_nodes import Move, Node
from twinbus.testing.cluster_stand_ins import StandInEntities
from twinbus.testing.simulation import SimTransaction, Simulation
from twinbus.testing.stepped_port import SteppedPort


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
        self.lives = count()  # of nodes
        self.later: deque[Callable[[], None]] = deque()
        # The first store belongs to the last node, so that an ordinary queue is not where the requests are made.
        node_count = Simulation.node_count
        self.owners = [(index + 1) % node_count for index in range(len(self.ports))]
        self.owners[-1] = max(self.owners[-1], node_count - 1 if len(self.ports) == 1 else 0)
        self.links = []
        self.nodes = [Node(self, number) for number in range(node_count)]
        self.brokers = [self.nodes[owner].brokers[index] for index, owner in enumerate(self.owners)]
        self.entities = StandInEntities(self)  # type: ignore[assignment]
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

    def _restore_at(self, node: Node, former: "StandInEntities") -> None:
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
        node_count = len(self.nodes)
        self.links = [link for link in self.links if not link.is_broken]
        joined = {link.nodes for link in self.links}
        for first in range(node_count):
            for second in range(first + 1, node_count):
                if (first, second) not in joined:
                    ends = [
                        Line(Hello(one, node_count, "sim"), self.nodes[one].topics, self.now, _nothing, peer=other)
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

    def set_clock(self, by: Millis) -> None:
        """All nodes are on one machine, or have their time from the same server."""
        self.clock.set(by)
        for node in self.nodes:
            for broker in node.brokers:
                broker.clock_stepped(by)
            node.entities.clock_stepped(by)
            node.fronts.clock_stepped(by)

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
