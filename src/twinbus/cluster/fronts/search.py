"""Where messages without a key are tried next: at the node that takes them, and from the second try on in which fragment there.

The second try is named. Its messages have names that the fragment remembers in the commit that stores them (`broker.fragment.names`),
so it can be sent to that fragment as often as it takes: what is known there is acknowledged, and not stored again. While it was certainly
not done there it goes on to other fragments under the same names. Once its outcome is unknown it stays with that fragment, and so no
message is there more than twice.
"""

from collections.abc import Sequence
from copy import copy
from math import inf
from typing import NamedTuple, Protocol

from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.entity.transfers import ViaTarget
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.names import SecondTry
from twinbus.clock import Clock, Millis
from twinbus.cluster.ownership import Ownership
from twinbus.cluster.peers.held_sends import SignsOfLife
from twinbus.cluster.peers.peers import Peers
from twinbus.errors import (
    FragmentUnavailable,
    MessagingError,
    NotImplementedHere,
    OutcomeUnknown,
    QuotaExceeded,
    ServerBusy,
)

WAIT_MAX: Millis = 20_000
"""For a node that takes them; and once more for the fragment of a second try, from the time at which its outcome was unknown. Longer than a
takeover, or than a silent store is waited for; and both together no longer than clients wait."""
CHOOSY_MAX: Millis = 5_000
"""After which a second try goes to any store, over any line."""
ASKED_EVERY: Millis = 1_000
"""While what has the fragment is reached, and cannot say."""

PASSED_BY = (FragmentUnavailable, QuotaExceeded, ServerBusy)


def is_lost_twice(before: MessagingError | None, error: MessagingError) -> bool:
    return isinstance(before, OutcomeUnknown) and isinstance(error, OutcomeUnknown)


def _is_within(duration: Millis, since: Millis | None, now: Millis) -> bool:
    """The clock may have been set back."""
    return since is not None and abs(now - since) < duration


class Entrance(Protocol):
    """The way into an entity at one node."""

    local: QueueEntity | TopicEntity | ViaTarget
    peers: Peers
    ownership: Ownership
    clock: Clock

    def in_turns(self) -> list[int]: ...


class Stop(NamedTuple):
    node: int
    fragment: int | None = None
    """None: the node chooses, since it is the first try."""


class Search:
    """Of the messages of one run. `nodes`: in their order; the first one is tried first."""

    def __init__(self, way: Entrance, nodes: Sequence[int]) -> None:
        self._way = way
        self._left = [Stop(node) for node in nodes]
        self._stop = self._left[0]
        self._signs: SignsOfLife | None = None
        self._renewed: dict[Fragment, float] = {}  # with `_signs`: the leases of this node's own
        self._lost_at: int | None = None  # the node whose line broke
        self._missed: set[int] = set()  # nodes that could not be reached when it was their turn
        self._number = 0
        self._name: str | None = None
        self._bound_to: int | None = None  # the fragment that may have them as their second try
        self._asked_at: Millis | None = None  # that fragment
        self.failed: int | None = None
        """The database of a store that may have them already: its other stores may be about to fail too."""
        self.held_since: Millis | None = None

    def clock_stepped(self, by: Millis) -> None:
        if self.held_since is not None:
            self.held_since += by

    # The second try

    def second_try(self, places: Sequence[int]) -> SecondTry | None:
        """With names for the messages at these places. None for a first try, and at a node that knows no names."""
        fragment = self._stop.fragment
        return None if fragment is None else SecondTry(fragment, [f"{self._name}.{place}" for place in places])

    def goes_on(self, before: MessagingError | None, error: MessagingError) -> bool:
        """Whether the sender is not told of the error yet. `before`: of earlier tries."""
        if self._stop.fragment is not None:
            return isinstance(error, (*PASSED_BY, NotImplementedHere))
        return isinstance(error, PASSED_BY) and not is_lost_twice(before, error)

    def is_bound_by(self, error: MessagingError) -> bool:
        """Whether the fragment of the second try may have what this is the answer to. One that has no room has looked first."""
        if self._stop.fragment is None or isinstance(error, QuotaExceeded):
            return False
        return self._bound_to is not None or isinstance(error, OutcomeUnknown)

    def bound(self, now: Millis) -> "Search":
        """For those messages that the fragment of the second try may have."""
        search = copy(self)
        search._missed = set()
        if search._bound_to is None:
            search._bound_to = self._stop.fragment
            search.held_since = now
        return search

    @property
    def held_max(self) -> Millis:
        return CHOOSY_MAX if self.is_choosy else WAIT_MAX

    def _next_of_bound(self, index: int) -> Stop | None:
        way, now = self._way, self._way.clock.now()
        if _is_within(ASKED_EVERY, self._asked_at, now) or not _is_within(WAIT_MAX, self.held_since, now):
            return None
        node, fragment = way.ownership.of[index], way.local.placement.fragments[index]
        if not way.peers.is_reached(node) or (node == way.peers.node and fragment.refusal is not None):
            return None
        self._asked_at = now
        return Stop(node, index)

    # Any try

    def passed_by(self, error: MessagingError) -> None:
        """At the last stop."""
        stop = self._stop
        if self._bound_to is not None:  # it has no room
            self._bound_to = self._asked_at = self.held_since = None
            self.begin_again()
        if stop in self._left:
            self._left.remove(stop)
        if not self._way.peers.is_reached(stop.node):
            self._missed.add(stop.node)
        if isinstance(error, NotImplementedHere):
            # A node of an earlier release: it takes them without names, and then their outcome must not be unknown once more.
            self._left = [Stop(stop.node), *[each for each in self._left if each.node != stop.node]]
        elif isinstance(error, OutcomeUnknown):
            self._is_unknown(stop.node, error)

    def _is_unknown(self, node: int, error: OutcomeUnknown) -> None:
        """Of the first try."""
        peers = self._way.peers
        random = self._way.local.placement.fragments[0].broker.random
        self._number = next(peers.second_tries)
        self._name = f"{peers.node}.{self._number:x}.{random.getrandbits(64):x}"
        self.failed = error.database
        self.begin_again()
        self._left.sort(key=lambda each: each.node == node)  # it may have other stores
        if node != peers.node and not peers[node].is_open:
            self._signs = peers.signs_of_life(node)
            self._renewed = {each: each.broker.lease.until for each in self._own_fragments()}
            self._lost_at = node

    def next_stop(self) -> Stop | None:
        """The one to try now, if there is any. The node whose line broke may be about to fail again: others come first."""
        if self._bound_to is not None:
            found = self._next_of_bound(self._bound_to)
        else:
            if not self._left and any(map(self._way.peers.is_reached, self._missed)):
                self.begin_again()  # a line has opened while another store was asked
            found = next(filter(self._is_wanted, self._left), None)
        self._stop = found or self._stop
        return found

    def _is_wanted(self, stop: Stop) -> bool:
        return self._lives(stop.node) and not (stop.node == self._lost_at and self._is_another_reached)

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
        peers, others = self._way.peers, {stop.node for stop in self._left} - {self._lost_at}
        is_here = any(each.refusal is None for each in self._own_fragments())
        return any(is_here if node == peers.node else peers[node].is_open for node in others)

    def begin_again(self) -> None:
        """With all nodes that have stores by now, and from the second try on with their fragments in a database that has not failed."""
        self._missed.clear()
        nodes = self._way.in_turns() or self._way.ownership.nodes
        if self._name is None:
            self._left = [Stop(node) for node in nodes]
            return
        ownership, fragments = self._way.ownership, self._way.local.placement.fragments
        able = [each.index for each in fragments if self.failed is None or each.broker.database != self.failed]
        of, start = ownership.of, self._number % max(1, len(able))
        able = able[start:] + able[:start]
        self._asked_at = None
        self._left = [Stop(node, index) for node in nodes for index in able if of[index] == node]

    @property
    def is_choosy(self) -> bool:
        """Whether a second try waits for another database than the one that failed, or for a line of which something was heard since another
        one broke."""
        return self._bound_to is None and (self.failed is not None or self._signs is not None)

    def take_any(self) -> None:
        """Nobody has come: the database that failed may be back, and the lines may be whole."""
        self.failed = self._signs = self._lost_at = None
        self.begin_again()

    @property
    def may_wait(self) -> bool:
        """Whether some node could not be asked, or was not."""
        peers = self._way.peers
        others = self._way.ownership.awaited - {peers.node}
        is_bound = self._bound_to is not None
        return (
            is_bound or bool(self._left) or self.failed is not None or any(not peers[node].is_open for node in others)
        )
