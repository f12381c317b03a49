"""Messages on their way from a front to the nodes that have the fragments: each run to the first node that takes it.

passed by: unreachable, all its stores lost, behind, full --> the next node, through all of them
its answer was lost, or that of its store                 --> one other try, at another node if one takes them, in another database
                                                              if there are several; if that is lost too, the sender gets the error
none takes them, and some could not be reached,           --> they wait (`HeldSends`)
or have nothing but stores of the database that failed
"""

from collections.abc import Sequence
from math import inf
from typing import Protocol

from twinbus.broker.entity.placement import Detour
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.entity.transfers import ViaTarget
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.replies import Reply, SendReply
from twinbus.clock import Clock, Millis
from twinbus.cluster.ownership import Ownership
from twinbus.cluster.peers.held_sends import SignsOfLife
from twinbus.cluster.peers.peers import Peers
from twinbus.errors import FragmentUnavailable, MessagingError, OutcomeUnknown, QuotaExceeded, ServerBusy
from twinbus.model.message import Message

PASSED_BY = (FragmentUnavailable, QuotaExceeded, ServerBusy)


class Way(Protocol):
    """The front whose messages these are."""

    local: QueueEntity | TopicEntity | ViaTarget
    peers: Peers
    ownership: Ownership
    clock: Clock

    def in_turns(self) -> list[int]: ...

    def send_at(
        self,
        node: int,
        messages: Sequence[Message],
        now: Millis,
        reply: SendReply,
        origins: Sequence[int] | None,
        failed: int | None,
    ) -> None: ...

    def send_together_at(
        self, node: int, messages: Sequence[Message], now: Millis, reply: Reply[list[int]], failed: int | None
    ) -> None: ...

    def answered(self, turn: int | None, count: int) -> None: ...


def weightier(before: MessagingError | None, error: MessagingError) -> MessagingError:
    """Of two reasons to pass by: that one may have been done counts most, that a store is lost more than that one is full."""

    def weight(each: MessagingError) -> int:
        return 2 if isinstance(each, OutcomeUnknown) else 0 if isinstance(each, QuotaExceeded) else 1

    return error if before is None or weight(error) >= weight(before) else before


def is_lost_twice(before: MessagingError | None, error: MessagingError) -> bool:
    return isinstance(before, OutcomeUnknown) and isinstance(error, OutcomeUnknown)


class Search:
    """For a node that takes messages without a key."""

    def __init__(self, way: Way, nodes: Sequence[int]) -> None:
        self._way = way
        self._left = list(nodes)
        self._signs: SignsOfLife | None = None
        self._renewed: dict[Fragment, float] = {}  # with `_signs`: the leases of this node's own
        self._lost_at: int | None = None  # the node whose line broke
        self.failed: int | None = None
        """The database of a store that may have them already: its other stores may be about to fail too."""
        self.held_since: Millis | None = None

    def clock_stepped(self, by: Millis) -> None:
        if self.held_since is not None:
            self.held_since += by

    def passed_by(self, error: MessagingError) -> None:
        """By the node that was tried last."""
        node = self._left.pop(0)
        if isinstance(error, OutcomeUnknown):
            self.failed = error.database
            self.begin_again()
            if node in self._left:  # it has other stores
                self._left.remove(node)
                self._left.append(node)
            if node != self._way.peers.node and not self._way.peers[node].is_open:
                self._signs = self._way.peers.signs_of_life(node)
                self._renewed = {each: each.broker.lease.until for each in self._own_fragments()}
                self._lost_at = node

    def next_node(self) -> int | None:
        """The one to try now, if there is any. The one whose line broke may be about to fail again: others come first."""
        for place, node in enumerate(self._left):
            if self._lives(node) and not (node == self._lost_at and self._is_another_reached):
                del self._left[place]
                self._left.insert(0, node)
                return node
        return None

    def _lives(self, node: int) -> bool:
        """Whether it has answered since a line broke: it may have been this node that was cut off, from its databases too."""
        peers = self._way.peers
        if self._signs is None:
            return True
        if node != peers.node:
            return self._signs.has(node, peers[node].line)
        leases = [(each.broker.lease.until, self._renewed.get(each, 0.0)) for each in self._own_fragments()]
        return not leases or any(until == inf or until > then for until, then in leases)

    def _own_fragments(self) -> list[Fragment]:
        ownership, fragments = self._way.ownership, self._way.local.placement.fragments
        return [each for node, each in zip(ownership.of, fragments, strict=True) if node == ownership.node]

    @property
    def _is_another_reached(self) -> bool:
        """So it will be heard of soon, or not be reached any more: a lease that is not renewed ends."""
        peers, others = self._way.peers, [node for node in self._left if node != self._lost_at]
        is_here = any(each.refusal is None for each in self._own_fragments())
        return any(is_here if node == peers.node else peers[node].is_open for node in others)

    def begin_again(self) -> None:
        """With all nodes that have stores by now, in a database that has not failed."""
        self._left = self._way.in_turns() or list(self._way.ownership.nodes)
        if self.failed is not None:
            of, fragments = self._way.ownership.of, self._way.local.placement.fragments
            able = {node for node, each in zip(of, fragments, strict=True) if each.broker.database != self.failed}
            self._left = [node for node in self._left if node in able]

    def last_node(self) -> int | None:
        """Nobody has come who takes them: the one to try in the database that failed, which may be back."""
        if self.failed is None:
            return None
        self.failed = None
        self.begin_again()
        return self.next_node()

    @property
    def may_wait(self) -> bool:
        """Whether some node could not be asked, or was not."""
        peers = self._way.peers
        nodes = [node for node in self._way.ownership.nodes if node != peers.node]
        return bool(self._left) or self.failed is not None or any(not peers[node].is_open for node in nodes)


class Run:
    """Messages of one sender for one node, with an answer for each. Takes the answers of the node, and goes on to the next one."""

    def __init__(
        self,
        way: Way,
        messages: Sequence[Message],
        places: list[int],
        origins: Sequence[int] | None,
        nodes: Sequence[int],
        reply: SendReply,
        turn: int | None = None,
        before: dict[int, MessagingError] | None = None,
        search: Search | None = None,
    ) -> None:
        """`places`: of the messages that are its own, in their order; `turn`: None if they have a key, and go nowhere else;
        `before`: why other nodes passed them by."""
        self._way = way
        self._messages = messages
        self._places = places
        self._origins = origins
        self._nodes = nodes
        self._reply = reply
        self._turn = turn
        self._before = before or {}
        self._search = search
        self._left = len(places)
        self._again: dict[int, MessagingError] = {}
        self._refusal: MessagingError | None = None

    def attempt(self, now: Millis) -> None:
        self._attempt_at(self._nodes[0], now)

    def _attempt_at(self, node: int, now: Millis) -> None:
        is_whole = len(self._places) == len(self._messages)
        chosen = self._messages if is_whole else [self._messages[place] for place in self._places]
        origins = None if self._origins is None else [self._origins[place] for place in self._places]
        failed = None if self._search is None else self._search.failed
        self._way.send_at(node, chosen, now, self, origins, failed)

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
        if isinstance(error, PASSED_BY) and self._turn is not None and not is_lost_twice(before, error):
            self._again[place] = weightier(before, error)
            self._refusal = weightier(self._refusal, error)
        else:
            self._way.answered(self._turn, 1)
            self._reply.refused(place, error, now)
        self._end(now)

    def _end(self, now: Millis) -> None:
        if self._left or not self._again:
            return
        again, self._again = self._again, {}
        search = self._search or Search(self._way, self._nodes)
        assert self._refusal is not None
        search.passed_by(self._refusal)
        places = sorted(again)
        run = Run(self._way, self._messages, places, self._origins, (), self._reply, self._turn, again, search)
        run._go_on(now)

    def _go_on(self, now: Millis) -> None:
        assert self._search is not None
        node = self._search.next_node()
        if node is not None:
            self._attempt_at(node, now)
        elif not hold(self._way, self, self._search, now):
            self.give_up(now)

    # While it waits

    @property
    def size_bytes(self) -> int:
        return sum([len(self._messages[place].content) for place in self._places])

    @property
    def held_since(self) -> Millis:
        return held_since(self._search)

    def clock_stepped(self, by: Millis) -> None:
        assert self._search is not None
        self._search.clock_stepped(by)

    def try_again(self, now: Millis, *, is_changed: bool) -> bool:
        assert self._search is not None
        if is_changed:
            self._search.begin_again()
        node = self._search.next_node()
        if node is not None:
            self._attempt_at(node, now)
        return node is not None

    def give_up(self, now: Millis) -> None:
        assert self._search is not None
        node = self._search.last_node()
        if node is not None:
            self._attempt_at(node, now)
            return
        self._way.answered(self._turn, len(self._places))
        for place in self._places:
            self._reply.refused(place, self._before[place], now)


class TogetherRun:
    """Messages without a key that are to be all in one fragment, or none of them anywhere."""

    def __init__(self, way: Way, messages: Sequence[Message], nodes: Sequence[int], reply: Reply[list[int]]) -> None:
        self._way = way
        self._messages = messages
        self._reply = reply
        self._search = Search(way, nodes)
        self._before: MessagingError | None = None

    def attempt(self, now: Millis) -> None:
        node = self._search.next_node()
        if node is not None:
            self._attempt_at(node, now)
        elif not hold(self._way, self, self._search, now):
            self.give_up(now)

    def _attempt_at(self, node: int, now: Millis) -> None:
        self._way.send_together_at(node, self._messages, now, self._answered, self._search.failed)

    def _answered(self, result: list[int] | MessagingError) -> None:
        if not isinstance(result, PASSED_BY) or is_lost_twice(self._before, result):
            self._reply(result)
        else:
            self._before = weightier(self._before, result)
            self._search.passed_by(result)
            self.attempt(self._way.clock.now())

    # While it waits

    @property
    def size_bytes(self) -> int:
        return sum([len(message.content) for message in self._messages])

    @property
    def held_since(self) -> Millis:
        return held_since(self._search)

    def clock_stepped(self, by: Millis) -> None:
        self._search.clock_stepped(by)

    def try_again(self, now: Millis, *, is_changed: bool) -> bool:
        if is_changed:
            self._search.begin_again()
        node = self._search.next_node()
        if node is not None:
            self._attempt_at(node, now)
        return node is not None

    def give_up(self, now: Millis) -> None:
        node = self._search.last_node()
        if node is not None:
            self._attempt_at(node, now)
            return
        assert self._before is not None
        self._reply(self._before)


def hold(way: Way, send: Run | TogetherRun, search: Search, now: Millis) -> bool:
    """Whether it waits for a node."""
    if not search.may_wait:
        return False
    if search.held_since is None:
        search.held_since = now
    return way.peers.held_sends.hold(send)


def held_since(search: Search | None) -> Millis:
    assert search is not None
    assert search.held_since is not None
    return search.held_since
