"""What a test gets in place of a queue or topic with parts at several nodes, so that it need not know of them.

Stand-ins pass calls on to the front at node 0 and then carry what the lines have. Looking into fragments shows those of the nodes that
have them. What only the entity of a single node has raises `OfOneNode`.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.runs import Detour
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.replies import QueueCounts, Reply
from twinbus.clock import Millis
from twinbus.cluster.fronts.target import FrontWay
from twinbus.errors import EntityNotFound

if TYPE_CHECKING:
    from twinbus.testing.cluster_simulation import ClusterSimulation


class OfOneNode(Exception):
    """A test looks at something that only an entity with all of its fragments at one node has."""


class _StandIn:
    """Passes on what a front has, and carries the lines afterwards."""

    def __init__(self, sim: "ClusterSimulation", front: Any) -> None:
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

    def __init__(self, sim: "ClusterSimulation", front: Any) -> None:
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
    def __init__(self, sim: "ClusterSimulation", front: Any) -> None:
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


class StandInEntities:
    """What a control plane would do at all nodes, and what a gateway sees at node 0."""

    def __init__(self, sim: "ClusterSimulation") -> None:
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
