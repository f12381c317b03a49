"""A queue or topic with parts at several nodes, as a sender sees it (contract A2, A3, A4, A8).

A message with a key goes to the node that has its fragment. Messages without one go to the nodes in turns, this one included, each as often as
it has fragments, and the node places them among its own; under load, a node keeps as much for itself as the others do
(`keeping`). A node that cannot take a run is passed by as a fragment is on a single node
(`twinbus.broker.entity.placement`):

    passed by: unreachable, all its stores lost, behind, full --> the next node, through all of them
    its answer was lost, or that of its store                 --> one other try, at another node if one takes them; if that is lost
                                                                  too, the sender gets the error
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from twinbus.broker.entity.placement import TURN_MAX, Detour
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.entity.transfers import ViaTarget
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.replies import Reply, SendReply
from twinbus.broker.target import TargetName, WayIn
from twinbus.clock import Clock, Millis
from twinbus.cluster.front_source import FrontSource
from twinbus.cluster.ownership import Owners, Ownership
from twinbus.cluster.peers import Peers
from twinbus.cluster.talk import Topic
from twinbus.errors import FragmentUnavailable, MessagingError, OutcomeUnknown, QuotaExceeded, ServerBusy
from twinbus.model.descriptions import QueueDescription, TopicDescription
from twinbus.model.message import Message
from twinbus.model.wire_names import SEQUENCE_BITS

PASSED_BY = (FragmentUnavailable, QuotaExceeded, ServerBusy)
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
        self._clock = clock
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
            elif not self._waits_for(index, messages, places, origins, reply):
                by_node.setdefault(self.ownership.of[index], []).extend(places)
        for node, places in by_node.items():
            _Run(self, messages, sorted(places), origins, [node], reply).attempt(now)
        self._send_free(messages, free, origins, reply, now)

    def _waits_for(
        self,
        index: int,
        messages: Sequence[Message],
        places: list[int],
        origins: Sequence[int] | None,
        reply: SendReply,
    ) -> bool:
        """Whether a fragment moves, and what goes there waits for that."""
        if not self.ownership.is_any_moving:
            return False

        def send(now: Millis) -> None:
            if not self._waits_for(index, messages, places, origins, reply):
                _Run(self, messages, places, origins, [self.ownership.of[index]], reply).attempt(now)

        return self.ownership.waits([index], send, sum([len(messages[place].content) for place in places]))

    def _send_free(
        self,
        messages: Sequence[Message],
        free: Sequence[int],
        origins: Sequence[int] | None,
        reply: SendReply,
        now: Millis,
    ) -> None:
        """Those without a key. They wait if all fragments move."""
        if free and self.ownership.is_any_moving and not self._in_turns():
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
            nodes = self._in_turns() or self.ownership.nodes
            if self._is_kept:
                self._keeping.keep(len(places))
            if nodes[0] == self.peers.node:
                self._keeping.done_here(len(places))
            _Run(self, messages, list(places), origins, nodes, reply, self._turn).attempt(now)

    def send_batch(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None:
        self.settings.last_used_at = now
        try:
            place = self.local.placement.place_of_batch(messages)
        except MessagingError as error:
            reply(error)
            return
        if place is None:
            self._next_turn(now)
        nodes = self._in_turns()
        if (place is not None or not nodes) and self.ownership.is_any_moving:
            size = sum([len(message.content) for message in messages])
            if self.ownership.waits([place or 0], lambda later: self.send_batch(messages, later, reply), size):
                return
        if place is not None:
            self._send_pinned(messages, self.ownership.of[place], reply, now)
        else:
            self._send_together(messages, nodes or self.ownership.nodes, None, reply, now)

    def _send_pinned(self, messages: Sequence[Message], node: int, reply: Reply[list[int]], now: Millis) -> None:
        if node == self.peers.node:
            self.local.send_batch(messages, now, reply)
        else:
            self.peers[node].send_together(self.name, messages, reply)

    def _send_together(
        self,
        messages: Sequence[Message],
        nodes: Sequence[int],
        before: MessagingError | None,
        reply: Reply[list[int]],
        now: Millis,
    ) -> None:
        def answered(result: list[int] | MessagingError) -> None:
            if isinstance(result, PASSED_BY):
                left = nodes_left(nodes, before, result)
                refusal = weightier(before, result)
                if left:
                    self._send_together(messages, left, refusal, reply, self._clock.now())
                else:
                    reply(refusal)
            else:
                reply(result)

        if nodes[0] == self.peers.node:
            self.local.placement.send_together(messages, now, answered, is_one_try=True)
        else:
            self.peers[nodes[0]].send_together(self.name, messages, answered)

    def _next_turn(self, now: Millis) -> None:
        self._is_kept = TURN_MAX - self._turn_left >= LOAD_MIN and self._keeping.room(now) >= TURN_MAX
        if not self._is_kept:
            self._round += 1
        self._turn += 1
        self._turn_left = TURN_MAX
        self._turn_under_way = 0

    def _in_turns(self) -> list[int]:
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
    ) -> None:
        if node == self.peers.node:
            self.local.placement.send_each(messages, now, reply, origins, is_one_try=True)
        else:
            self.peers[node].send_each(self.name, messages, now, reply, origins)


def weightier(before: MessagingError | None, error: MessagingError) -> MessagingError:
    """Of two reasons to pass by: that one may have been done counts most, that a store is lost more than that one is full."""

    def weight(each: MessagingError) -> int:
        return 2 if isinstance(each, OutcomeUnknown) else 0 if isinstance(each, QuotaExceeded) else 1

    return error if before is None or weight(error) >= weight(before) else before


def nodes_left(nodes: Sequence[int], before: MessagingError | None, error: MessagingError) -> list[int]:
    """Those that may still be tried, after the first of `nodes` passed a run by.

    Where a store may have it, the node with that store comes last once more: it has other stores.
    """
    if isinstance(error, OutcomeUnknown):
        return [] if isinstance(before, OutcomeUnknown) else [*nodes[1:], nodes[0]]
    return list(nodes[1:])


class _Run:
    """Messages on their way to one node: the first of the candidates that takes them. Takes the answers of each."""

    def __init__(
        self,
        way: FrontWay,
        messages: Sequence[Message],
        places: list[int],
        origins: Sequence[int] | None,
        nodes: Sequence[int],
        reply: SendReply,
        turn: int | None = None,
        before: dict[int, MessagingError] | None = None,
    ) -> None:
        """`places`: of the messages that are its own, in their order; `before`: why others passed them by."""
        self._way = way
        self._messages = messages
        self._places = places
        self._origins = origins
        self._nodes = nodes
        self._reply = reply
        self._turn = turn
        self._before = before or {}
        self._left = len(places)
        self._again: dict[int, MessagingError] = {}
        self._nodes_left: Sequence[int] = ()

    def attempt(self, now: Millis) -> None:
        is_whole = len(self._places) == len(self._messages)
        chosen = self._messages if is_whole else [self._messages[place] for place in self._places]
        origins = None if self._origins is None else [self._origins[place] for place in self._places]
        self._way.send_at(self._nodes[0], chosen, now, self, origins)

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis) -> None:
        self._left -= len(indexes)
        self._way.answered(self._turn, len(indexes))
        places = self._places
        for index in indexes if self._before else ():
            self._way.local.placement.detours[Detour.because_of(self._before[places[index]])] += 1
        if len(indexes) == len(self._messages):
            self._reply.accepted(indexes, numbers, now)
        else:
            self._reply.accepted([places[index] for index in indexes], numbers, now)
        self._end(now)

    def refused(self, index: int, error: MessagingError, now: Millis) -> None:
        self._left -= 1
        place = self._places[index]
        before = self._before.get(place)
        if isinstance(error, PASSED_BY):
            left = nodes_left(self._nodes, before, error) if self._turn is not None else []
            error = weightier(before, error)
            if left:
                self._again[place] = error
                self._nodes_left = left
                self._end(now)
                return
        self._way.answered(self._turn, 1)
        self._reply.refused(place, error, now)
        self._end(now)

    def _end(self, now: Millis) -> None:
        if not self._left and self._again:
            again, self._again = self._again, {}
            places = sorted(again)
            run = _Run(
                self._way, self._messages, places, self._origins, self._nodes_left, self._reply, self._turn, again
            )
            run.attempt(now)


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
        return FrontWay(self.local.via(destination), self._owners, self.peers, self._clock)


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
