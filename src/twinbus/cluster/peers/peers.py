"""All other nodes, and the message sessions that move between them and this one."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Set
from weakref import WeakValueDictionary

from twinbus.broker.consumer import SessionLock
from twinbus.clock import Clock, Millis
from twinbus.cluster.lines.columns import unpack
from twinbus.cluster.lines.holders import Holder, hold_numbers
from twinbus.cluster.lines.line import Line, Topics
from twinbus.cluster.lines.talk import QUEUE, Topic
from twinbus.cluster.ownership import Ownership
from twinbus.cluster.peers.held_sends import HeldSends, SignsOfLife
from twinbus.cluster.peers.hold import Hold
from twinbus.cluster.peers.keeping import Keeping
from twinbus.cluster.peers.peer import Peer

MOVED_AHEAD_MAX = 1_000
"""Holds that have moved and are not known here: of some it was heard too late, and nobody asks for those again."""


class Peers:
    """All other nodes. `topics`: where the lines of this node look for who listens."""

    def __init__(self, node: int, node_count: int, clock: Clock, topics: Topics) -> None:
        self.node = node
        self._clock = clock
        self._peers = {other: Peer(other, clock, self._accepted) for other in range(node_count) if other != node}
        self._moved_ahead: OrderedDict[Holder, tuple[int, int] | None] = OrderedDict()  # None: over by now
        self._own_holds: WeakValueDictionary[int, Hold] = WeakValueDictionary()
        self._own_numbers = hold_numbers(clock.now())
        self.second_tries = hold_numbers(clock.now())
        """Numbers for what this node sends a second time; not even a former process of it has used one of them."""
        self.when_opened: list[Callable[[Millis], None]] = []
        self.held_sends = HeldSends()
        self.held_keyed = HeldSends()
        self._signs: SignsOfLife | None = None  # since the last line broke that sends were on
        self._keepings: WeakValueDictionary[tuple[Topic, int], Keeping] = WeakValueDictionary()
        topics.tells |= {
            Topic.PLACED: lambda line, payload, now: self._of(line).progress(payload),
            Topic.SETTLED: lambda line, payload, now: self._of(line).progress(payload),
            Topic.DELIVER: lambda line, payload, now: self._of(line).delivered(payload),
            Topic.READY: lambda line, payload, now: self._of(line).ready(payload, now),
            Topic.HOLD_OVER: lambda line, payload, now: self._of(line).hold_over(payload),
            Topic.LOST: lambda line, payload, now: self._of(line).lost(payload, now),
            Topic.BROUGHT: lambda line, payload, now: self._done_there(line, Topic.BROUGHT, payload, now),
            Topic.TAKEN: lambda line, payload, now: self._done_there(line, Topic.TAKEN, payload, now),
        }
        topics.asks[Topic.ALIVE] = lambda line, payload, now, answer: answer(b"")
        topics.when_opened.append(self._opened)
        topics.when_broken.append(self._broken)

    def __getitem__(self, node: int) -> Peer:
        return self._peers[node]

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def is_reached(self, node: int) -> bool:
        """Also if it is this one."""
        return node == self.node or self._peers[node].is_open

    def look_at_held(self, now: Millis, *, is_changed: bool) -> None:
        self.held_keyed.look(now, is_changed=is_changed)
        self.held_sends.look(now, is_changed=is_changed)

    # Message sessions of this node, and those that move

    def own_hold(self, lock: SessionLock) -> Hold:
        """A receiver of this node holds a session of this node."""
        number = next(self._own_numbers)
        facts = (lock.session_id, lock.fragment_index, lock.locked_at, lock.locked_until, lock.token)
        hold = self._own_holds[number] = Hold(self.node, number, *facts, own=lock)
        return hold

    def signs_of_life(self, node: int) -> SignsOfLife:
        """Of the others, since the line to this node broke; sends that wait for one look again when it comes. The same for all that was
        on that line: thousands of them would each ask every node, and with each answer all would be looked at."""
        broken = self._peers[node].line
        if self._signs is None or broken is None or self._signs.broken is not broken:
            self._signs = SignsOfLife(broken, lambda: self.held_sends.look(self._clock.now(), is_changed=False))
        return self._signs

    def own_holders(self) -> dict[SessionLock, Holder]:
        holds = list(self._own_holds.values())
        return {hold.own: Holder(self.node, hold.number) for hold in holds if hold.own is not None}

    def let_travel(self, locks: Set[SessionLock]) -> None:
        """These leave this node, and their receivers are not told."""
        for hold in list(self._own_holds.values()):
            if hold.own in locks:
                hold.travel()

    def hold_moved(self, former: int, number: int, node: int, new_number: int, own: SessionLock | None) -> bool:
        """A hold of this node is at another node than before; `own` if that is this one. Whether somebody here has it, or may be about to
        hear of it; if not, it is to be given back where it is."""
        holds = self._own_holds if former == self.node else self._peers[former].holds
        hold = holds.pop(number, None)
        if hold is None:
            if own is not None or former == self.node or self._peers[former].has_given(number):
                return False
            # On another line than the answer that gives it, which may come later.
            self._moved_ahead[Holder(former, number)] = node, new_number
            while len(self._moved_ahead) > MOVED_AHEAD_MAX:
                self._moved_ahead.popitem(last=False)
        elif not hold.is_held:
            return False
        elif own is not None:
            new_number = next(self._own_numbers)
            hold.move(node, new_number, own)
            self._own_holds[new_number] = hold
        else:
            hold.move(node, new_number, own)
            self._peers[node].given(hold)
            self._accepted(hold)  # it may have moved on
        return True

    def _accepted(self, hold: Hold) -> None:
        holder = Holder(hold.node, hold.number)
        if holder not in self._moved_ahead:
            return
        moved = self._moved_ahead.pop(holder)
        if moved is None:
            self._peers[hold.node].forget(hold)
        else:
            self.hold_moved(hold.node, hold.number, *moved, None)

    def clock_stepped(self, by: Millis) -> None:
        """The lock itself, where this node has it, is moved by its fragment; here are the copies of those that other nodes have."""
        for holds in [self._own_holds, *[peer.holds for peer in self._peers.values()]]:
            for hold in list(holds.values()):
                hold.clock_stepped(by)
        for keeping in list(self._keepings.values()):
            keeping.clock_stepped(by)
        self.held_sends.clock_stepped(by)
        self.held_keyed.clock_stepped(by)

    def _of(self, line: Line) -> Peer:
        assert line.peer is not None
        return self._peers[line.peer.node]

    def keeping(self, topic: Topic, key: int, ownership: Ownership) -> Keeping:
        """For what comes in (`BROUGHT`) or goes out (`TAKEN`) of the queue or topic whose first fragment has this key."""
        made = Keeping(ownership, lambda node, done: self._peers[node].done_here(topic, key, done))
        self._keepings[topic, key] = made
        return made

    def _done_there(self, line: Line, topic: Topic, payload: bytes, now: Millis) -> None:
        key, done = unpack(QUEUE, payload)
        keeping = self._keepings.get((topic, key))
        if keeping is not None:
            keeping.told(self._of(line).node, done, now)

    def _opened(self, line: Line, now: Millis) -> None:
        peer = self._of(line)
        if peer.line is not None:
            # The other node has connected again before this one has noticed that it was gone.
            peer.line.end(f"node {peer.node} has opened another line", now)
        peer.opened(line)
        for call in self.when_opened:
            call(now)

    def _broken(self, line: Line, now: Millis) -> None:
        peer = self._of(line)
        if peer.line is line:
            peer.broken(now)
            # Its holds are over: no answer gives one of them any more, and whoever hears of one that has moved there has lost it.
            for holder, moved in list(self._moved_ahead.items()):
                if holder.node == peer.node:
                    del self._moved_ahead[holder]
                elif moved is not None and moved[0] == peer.node:
                    self._moved_ahead[holder] = None
