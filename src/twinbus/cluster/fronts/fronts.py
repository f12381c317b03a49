"""The entities of a namespace as the gateways of one node see them, when other nodes serve some of its stores.

An entity all of whose fragments are at this node is itself: it costs nothing that there are other nodes. Every other one is a front: what is
asked of it goes to the nodes that have the fragments concerned, this one included.
"""

from collections.abc import Callable, Sequence
from weakref import WeakSet

from twinbus.broker.entity.entities import Entities
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.replies import Holdings, QueueCounts, Reply
from twinbus.broker.telling import tell
from twinbus.clock import Clock, Millis
from twinbus.cluster.fronts.source import FrontSource
from twinbus.cluster.fronts.target import FrontQueue, FrontTopic
from twinbus.cluster.fronts.transaction import FrontTransaction
from twinbus.cluster.lines.line import Topics
from twinbus.cluster.lines.talk import Topic
from twinbus.cluster.moves.mover import Mover
from twinbus.cluster.ownership import Owners, Ownership
from twinbus.cluster.parts.part import PartServer
from twinbus.cluster.peers.peers import Peers
from twinbus.errors import MessagingError

TICK_EVERY: Millis = 100
"""When a drain that waits for a store is answered, and parts that were lost are looked for again."""

SWEEP_EVERY: Millis = 1_000
"""When what was deleted is forgotten. There may be ten thousand entities, and receivers of a few."""

_LOST = QueueCounts(0, 0, 0, 0, is_limited=True, is_unknown=True)
_NOTHING_KNOWN = Holdings(_LOST, _LOST, _LOST, _LOST, 0)


class FrontSubscription:
    def __init__(
        self, local: SubscriptionEntity, main: FrontSource, dead: FrontSource, undelivered: FrontSource
    ) -> None:
        self.local = local
        self.main = main
        self.dead_letter = dead
        self.transfer_dead_letter = undelivered


class Fronts:
    """Of one node. `owners`: the node of each store; given as `Owners`, it may change, and then every entity is a front, since a link
    is bound to what it found. `topics` is what the lines of this node listen by."""

    def __init__(
        self,
        entities: Entities,
        node: int,
        owners: Sequence[int] | Owners,
        clock: Clock,
        topics: Topics,
        node_count: int,
    ) -> None:
        self._entities = entities
        self._owners = owners if isinstance(owners, Owners) else Owners(owners)
        self._is_fixed = self._owners is not owners
        self._clock = clock
        self.part = PartServer(entities, clock, topics)
        self.peers = Peers(node, node_count, clock, topics)
        self.peers.when_opened += [self._look_for_owners, self._look_again, self._look_at_held]
        topics.when_broken.append(lambda _, now: self._look_for_owners(now))
        self._look_for_owners(clock.now())
        self.mover = Mover(self._owners.moves, self.part, self.peers, clock, topics)
        self._fronts: dict[int, FrontQueue | FrontTopic | FrontSubscription] = {}  # by id of the entity
        self._sources: WeakSet[FrontSource] = WeakSet()
        self._received_from: WeakSet[FrontSource] = WeakSet()
        self._swept_at: Millis = 0
        entities.forward_through(self.find)

    # Finding

    def find(self, path: str) -> QueueEntity | TopicEntity | FrontQueue | FrontTopic | None:
        entity = self._entities.find(path)
        if entity is None or self._is_here(entity.fragments):
            return entity
        front = self._fronts.get(entity.id)
        if front is None or front.local is not entity:
            make = FrontQueue if isinstance(entity, QueueEntity) else FrontTopic
            front = make(entity, self._owners, self.peers, self._clock, self._source)  # type: ignore[arg-type]
            self._fronts[entity.id] = front
        assert isinstance(front, FrontQueue | FrontTopic)
        return front

    def subscription(self, topic: str, name: str) -> SubscriptionEntity | FrontSubscription:
        """Raises EntityNotFound."""
        entity = self._entities.subscription(topic, name)
        if self._is_here(entity.fragments):
            return entity
        front = self._fronts.get(entity.id)
        if front is None or front.local is not entity:
            front = FrontSubscription(entity, *map(self._source, entity.queues))
            self._fronts[entity.id] = front
        assert isinstance(front, FrontSubscription)
        return front

    def queues(self) -> list[QueueEntity | FrontQueue]:
        found = [self.find(queue.description.name) for queue in self._entities.queues()]
        return [queue for queue in found if isinstance(queue, QueueEntity | FrontQueue)]

    def new_transaction(self) -> FrontTransaction:
        return FrontTransaction(self._owners, self.peers, self.part)

    def _source(self, queue: MessageQueue) -> FrontSource:
        source = FrontSource(queue, self._owners, self.peers, self.part, self._clock, self._received_from)
        self._sources.add(source)
        return source

    def _is_here(self, fragments: Sequence[Fragment]) -> bool:
        node, owners = self.peers.node, self._owners.of
        return self._is_fixed and all(owners[fragment.broker.index] == node for fragment in fragments)

    def owners_changed(self, now: Millis) -> None:
        self._look_for_owners(now)
        for source in list(self._sources):
            source.follow_owners(now)
        self._look_again(now)
        self._look_at_held(now)

    def _look_for_owners(self, now: Millis) -> None:
        self._owners.look_for(self.peers.is_reached, now)

    def _look_at_held(self, now: Millis) -> None:
        """There is a line or an owner that was not there."""
        self.peers.look_at_held(now, is_changed=True)

    def is_given_away(self, store: int) -> bool:
        """Whether it moves, and the node that it leaves is reached."""
        return store in self._owners.moves.stores and self.peers.is_reached(self._owners.of[store])

    def end_moves(self, epochs: Callable[[int], int], now: Millis) -> bool:
        """Of stores that somebody serves by now, or that have taken too long: what waited is asked. Whether there are any."""
        self.mover.forget(epochs)
        ended = self._owners.moves.ended(epochs, now)
        for store, is_served in ended.items():
            waiting = self._owners.moves.take(store)
            for source in list(self._sources):
                source.move_over(store, now, is_served=is_served)
            for call in waiting:
                tell(call, now)
        return bool(ended)

    # Counting

    def count(self, path: str, now: Millis, reply: Reply[Holdings]) -> None:
        """Summed over all nodes; one that cannot be reached makes the sum partial. Replies EntityNotFound."""
        try:
            entity = self._entities.at(path)
        except MessagingError as error:
            reply(error)
            return
        nodes = Ownership(self.peers.node, self._owners, entity.fragments).nodes
        found: list[Holdings] = []
        # Whoever used it through this node did so here, even if none of its fragments is.
        used = entity.settings.last_used_at

        def take(result: Holdings | MessagingError) -> None:
            found.append(_NOTHING_KNOWN if isinstance(result, MessagingError) else result)
            if len(found) == len(nodes):
                held = sum(found[1:], start=found[0])
                reply(
                    Holdings(
                        held.main,
                        held.dead_letter,
                        held.transfer,
                        held.transfer_dead_letter,
                        max(used, held.last_used_at),
                    )
                )

        for node in nodes:
            if node == self.peers.node:
                take(entity.holdings())
            else:
                self.peers[node].ask_values(Topic.COUNT, path, take)

    # Time

    def tick(self, now: Millis) -> Millis:
        """Returns when to call again."""
        self.part.tick(now)
        if not 0 <= now - self._swept_at < SWEEP_EVERY:
            self._swept_at = now
            for gone in [number for number in self._fronts if self._entities.with_id(number) is None]:
                del self._fronts[gone]
        self._look_again(now)
        self.peers.look_at_held(now, is_changed=False)
        return now + TICK_EVERY

    def clock_stepped(self, by: Millis) -> None:
        """The clock was set by this much. Lines see to it themselves: each of their ends has to cope with a node that stood still."""
        self._owners.clock_stepped(by)
        self.peers.clock_stepped(by)
        self.mover.clock_stepped(by)
        for source in list(self._sources):
            source.clock_stepped(by)

    def _look_again(self, now: Millis) -> None:
        for source in list(self._received_from):
            if source.is_quiet:
                self._received_from.discard(source)
            else:
                source.tick(now)
