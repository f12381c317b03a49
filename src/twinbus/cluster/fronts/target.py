"""A queue or topic with parts at several nodes, as a sender sees it (contract A2, A3, A4, A8).

A message with a key goes to the node that has its fragment, and waits for a while if that one cannot be reached (`peers.held_sends`).
Messages without one go to the nodes in turns, this one included, each as often as it has fragments, and the node places them among its
own; under load, a node keeps as much for itself as the others do (`peers.keeping`). A node that cannot take a run is passed by as a
fragment is on a single node (`runs`).
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from twinbus.broker.entity.placement import TURN_MAX
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.entity.transfers import ViaTarget
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.names import SecondTry
from twinbus.broker.replies import Reply, SendReply
from twinbus.broker.target import TargetName, WayIn
from twinbus.clock import Clock, Millis
from twinbus.cluster.fronts.runs import Run, TogetherRun
from twinbus.cluster.fronts.source import FrontSource
from twinbus.cluster.lines.talk import Topic
from twinbus.cluster.moves.moves import no_room_to_wait
from twinbus.cluster.ownership import Owners, Ownership
from twinbus.cluster.peers.held_sends import KeyedSend
from twinbus.cluster.peers.peers import Peers
from twinbus.errors import MessagingError
from twinbus.model.descriptions import QueueDescription, TopicDescription
from twinbus.model.message import Message
from twinbus.model.wire_names import SEQUENCE_BITS

LOAD_MIN = 32
"""Messages in one turn: those who send one after the other never have as many, and theirs go round one by one."""


class FrontWay:
    """The way into an entity, for itself or via it to another one. `local`: the same at this node."""

    def __init__(
        self, local: QueueEntity | TopicEntity | ViaTarget, owners: Owners, peers: Peers, clock: Clock
    ) -> None:
        self.local = local
        self.ownership = Ownership(peers.node, owners, local.placement.fragments)
        self.peers = peers
        self.clock = clock
        self._keeping = peers.keeping(Topic.BROUGHT, local.placement.fragments[0].key, self.ownership)
        self._turn = 0
        self._turn_left = TURN_MAX
        self._turn_under_way = 0
        self._is_kept = False
        self._round = -1  # the fragment whose turn it is, or was before this node kept one

    @property
    def name(self) -> TargetName:
        return self.local.name

    @property
    def settings(self) -> EntitySettings:
        return self.local.settings

    def send_each(
        self, messages: Sequence[Message], now: Millis, reply: SendReply, origins: Sequence[int] | None = None
    ) -> None:
        self.settings.last_used_at = now
        by_node: dict[int, list[int]] = {}
        free: list[int] = []
        for index, places in self.local.placement.places(messages, now, reply).items():
            if index is None:
                free = places
            elif not self._waits_for(index, messages, places, origins, reply, now):
                by_node.setdefault(self.ownership.of[index], []).extend(places)
        for node, places in by_node.items():
            Run(self, messages, sorted(places), origins, [node], reply).attempt(now)
        self._send_free(messages, free, origins, reply, now)

    def _waits_for(
        self,
        index: int,
        messages: Sequence[Message],
        places: list[int],
        origins: Sequence[int] | None,
        reply: SendReply,
        now: Millis,
    ) -> bool:
        if self._is_served(index):
            return False

        def attempt(now: Millis) -> None:
            Run(self, messages, places, origins, [self.ownership.of[index]], reply).attempt(now)

        def refuse(error: MessagingError, now: Millis) -> None:
            for place in places:
                reply.refused(place, error, now)

        return self._waits(index, attempt, refuse, sum([len(messages[place].content) for place in places]), now)

    def _is_served(self, index: int) -> bool:
        """By a node that is reached, and goes on serving it."""
        return not self.ownership.is_any_moving and self.peers.is_reached(self.ownership.of[index])

    def _waits(
        self,
        index: int,
        attempt: Callable[[Millis], None],
        refuse: Callable[[MessagingError, Millis], None],
        size_bytes: int,
        now: Millis,
    ) -> bool:
        """Whether a fragment moves or its node cannot be reached, and what goes there waits for that, or is refused. `attempt` sends it."""

        def is_reached() -> bool:
            return self.peers.is_reached(self.ownership.of[index])

        def send(now: Millis) -> None:
            if self._is_served(index) or not self._waits(index, attempt, refuse, size_bytes, now):
                attempt(now)

        if self.ownership.waits([index], send, size_bytes):
            return True
        if self.ownership.is_moving(index):
            # Its former owner may still take it, and another node may have it by the time that this one is reached again: either
            # way it would overtake what waits for the move.
            refuse(no_room_to_wait(), now)
            return True
        if is_reached() or not self.ownership.may_be_taken(index, now):
            return False
        return self.peers.held_keyed.hold(KeyedSend(size_bytes, now, is_reached, send, attempt))

    def _send_free(
        self,
        messages: Sequence[Message],
        free: Sequence[int],
        origins: Sequence[int] | None,
        reply: SendReply,
        now: Millis,
    ) -> None:
        """Those without a key. They wait if all fragments move."""
        if free and self.ownership.is_any_moving and not self.in_turns():
            size = sum([len(messages[place].content) for place in free])
            if self.ownership.waits([0], lambda later: self._send_free(messages, free, origins, reply, later), size):
                return
        start = 0
        while start < len(free):
            if not self._turn_left or not self._turn_under_way:
                self._next_turn(now)
            places = free[start : start + self._turn_left]
            start += len(places)
            self._turn_left -= len(places)
            self._turn_under_way += len(places)
            nodes = self.in_turns() or self.ownership.nodes
            if self._is_kept:
                self._keeping.keep(len(places))
            if nodes[0] == self.peers.node:
                self._keeping.done_here(len(places))
            Run(self, messages, list(places), origins, nodes, reply, self._turn).attempt(now)

    def send_batch(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None:
        self.settings.last_used_at = now
        try:
            place = self.local.placement.place_of_batch(messages)
        except MessagingError as error:
            reply(error)
            return
        if place is not None:
            self._send_pinned(place, messages, reply, now)
            return
        self._next_turn(now)
        nodes = self.in_turns()
        if not nodes and self.ownership.is_any_moving:
            size = sum([len(message.content) for message in messages])
            if self.ownership.waits([0], lambda later: self.send_batch(messages, later, reply), size):
                return
        TogetherRun(self, messages, nodes or self.ownership.nodes, reply).attempt(now)

    def _send_pinned(self, index: int, messages: Sequence[Message], reply: Reply[list[int]], now: Millis) -> None:
        def attempt(now: Millis) -> None:
            node = self.ownership.of[index]
            if node == self.peers.node:
                self.local.send_batch(messages, now, reply)
            else:
                self.peers[node].send_together(self.name, messages, reply)

        def refuse(error: MessagingError, _: Millis) -> None:
            reply(error)

        size = sum([len(each.content) for each in messages])
        if self._is_served(index) or not self._waits(index, attempt, refuse, size, now):
            attempt(now)

    def _next_turn(self, now: Millis) -> None:
        self._is_kept = TURN_MAX - self._turn_left >= LOAD_MIN and self._keeping.room(now) >= TURN_MAX
        if not self._is_kept:
            self._round += 1
        self._turn += 1
        self._turn_left = TURN_MAX
        self._turn_under_way = 0

    def in_turns(self) -> list[int]:
        """The nodes in the order of their fragments, from the one whose turn it is: each has as many turns as fragments. Fragments
        that move have none."""
        of = self.ownership.of
        start = self._round % len(of)
        if self.ownership.is_any_moving:
            staying = [index for index in range(len(of)) if not self.ownership.is_moving(index)]
            nodes = dict.fromkeys([of[index] for index in staying if index >= start] + [of[index] for index in staying])
        else:
            nodes = dict.fromkeys(of[start:] + of[:start])
        here = self.peers.node
        return [here, *(node for node in nodes if node != here)] if self._is_kept and here in nodes else [*nodes]

    def answered(self, turn: int | None, count: int) -> None:
        if turn == self._turn:
            self._turn_under_way -= count

    def send_at(
        self,
        node: int,
        messages: Sequence[Message],
        now: Millis,
        reply: SendReply,
        origins: Sequence[int] | None,
        failed: int | None,
        second: SecondTry | None,
    ) -> None:
        is_here, placement = node == self.peers.node, self.local.placement
        if second is not None and is_here:
            placement.send_each_again(messages, second, now, reply, origins)
        elif second is not None:
            self.peers[node].send_each_again(self.name, messages, second, reply, origins)
        elif is_here:
            placement.send_each(messages, now, reply, origins, is_one_try=True, failed=failed)
        else:
            self.peers[node].send_each(self.name, messages, now, reply, origins, failed)

    def send_together_at(
        self,
        node: int,
        messages: Sequence[Message],
        now: Millis,
        reply: Reply[list[int]],
        failed: int | None,
        second: SecondTry | None,
    ) -> None:
        is_here, placement = node == self.peers.node, self.local.placement
        if second is not None and is_here:
            placement.send_together_again(messages, second, now, reply)
        elif second is not None:
            self.peers[node].send_together_again(self.name, messages, second, reply)
        elif is_here:
            placement.send_together(messages, now, reply, is_one_try=True, failed=failed)
        else:
            self.peers[node].send_together(self.name, messages, reply, failed)


class FrontTarget(FrontWay):
    """A queue or topic. Those who schedule get the numbers of the node that took the messages."""

    local: QueueEntity | TopicEntity

    def __init__(
        self,
        local: QueueEntity | TopicEntity,
        owners: Owners,
        peers: Peers,
        clock: Clock,
        source: Callable[..., FrontSource],
    ) -> None:
        super().__init__(local, owners, peers, clock)
        self._owners = owners
        self.transfer_dead_letter = source(local.transfer_dead_letter)

    def schedule(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None:
        self.send_batch(messages, now, reply)

    def cancel_scheduled(self, numbers: Sequence[int], now: Millis, reply: Reply[None]) -> None:
        self.settings.last_used_at = now
        index, of = (numbers[0] >> SEQUENCE_BITS if numbers else 0), self.ownership.of
        if self.ownership.waits([index], lambda later: self.cancel_scheduled(numbers, later, reply)):
            return
        node = of[index] if 0 <= index < len(of) else of[0]
        if node == self.peers.node:
            self.local.cancel_scheduled(numbers, now, reply)
        else:
            self.peers[node].ask_values(Topic.CANCEL_SCHEDULED, (self.name.path, list(numbers)), reply)

    def via(self, destination: str) -> WayIn:
        return FrontWay(self.local.via(destination), self._owners, self.peers, self.clock)


class FrontQueue(FrontTarget):
    is_topic: Final[Literal[False]] = False
    local: QueueEntity

    def __init__(
        self,
        local: QueueEntity,
        owners: Owners,
        peers: Peers,
        clock: Clock,
        source: Callable[..., FrontSource],
    ) -> None:
        super().__init__(local, owners, peers, clock, source)
        self.main, self.dead_letter = source(local.main), source(local.dead_letter)

    @property
    def description(self) -> QueueDescription:
        return self.local.description


class FrontTopic(FrontTarget):
    is_topic: Final[Literal[True]] = True
    local: TopicEntity

    @property
    def description(self) -> TopicDescription:
        return self.local.description
