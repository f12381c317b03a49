"""A planned move of a store, as far as nodes talk about it: locks and message sessions go with it.

    owner                                    all others                         successor
    HOLD store epoch  -->                    what is asked of it waits
                      <-- yes, and nothing more comes that was not asked before
    (finish, forget, `move_out`)
    MOVED-LOCKS       -------------------------------------------------------->  kept, for the next epoch alone
    (release the store)                                                          (own it, load it with these locks)
                                             HOLD-MOVED former, new number  <--  for each message session that one of its receivers holds
                                             the holder's receiver attaches
                                             OWNED store epoch              <--  what waited is asked there

The successor takes the store when it is told that it is given to it, which comes behind the locks on the same line (`machines.keeper`).

Nobody has to do any of this: a node that does not hold is refused what it asks; locks that do not arrive are gone, as after a crash;
and so are the message sessions of a node that does not hold, or that the next owner does not reach, at once.
"""

from collections.abc import Callable, Mapping, Set

from twinbus.broker.consumer import SessionLock
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.moved_locks import MovedLocks
from twinbus.clock import Clock, Millis
from twinbus.cluster.lines.columns import unpack
from twinbus.cluster.lines.holders import Holder
from twinbus.cluster.lines.line import Answer, Line, Topics
from twinbus.cluster.lines.talk import COUNTED, HOLD, HOLD_MOVED, Topic
from twinbus.cluster.moves.moved_frames import MovedFrame, decode_moved, encode_moved
from twinbus.cluster.moves.moves import Moves
from twinbus.cluster.parts.part import PartServer
from twinbus.cluster.peers.peers import Peers
from twinbus.errors import EntityNotFound, MessagingError
from twinbus.store.changes import FragmentKey


class _Arrival:
    """What came of the locks of one store, and from which node."""

    def __init__(self, epoch: int, former: int) -> None:
        self.epoch = epoch
        self.former = former
        self.frames: dict[int, MovedFrame] = {}

    def add(self, frame: MovedFrame) -> None:
        self.frames[frame.place] = frame

    @property
    def is_whole(self) -> bool:
        return bool(self.frames) and len(self.frames) == next(iter(self.frames.values())).total

    def locks(self) -> dict[FragmentKey, MovedLocks]:
        found: dict[FragmentKey, MovedLocks] = {}
        for frame in self.frames.values():
            known = found.setdefault(frame.key, MovedLocks([], []))
            known.messages.extend(frame.locks.messages)
            known.sessions.extend(frame.locks.sessions)
        return found

    def holds(self) -> list[tuple[FragmentKey, SessionLock, Holder]]:
        return [
            (frame.key, session.lock, holder)
            for frame in self.frames.values()
            for session, holder in zip(frame.locks.sessions, frame.holders, strict=True)
        ]


class Mover:
    """Of one node."""

    def __init__(self, moves: Moves, part: PartServer, peers: Peers, clock: Clock, topics: Topics) -> None:
        self._moves = moves
        self._part = part
        self._peers = peers
        self._clock = clock
        self._arrivals: dict[int, _Arrival] = {}
        self._arrived: dict[int, _Arrival] = {}
        self.epoch_of: Callable[[int], int] = lambda store: 0
        """The latest epoch of a store that this node has heard of."""
        topics.asks[Topic.HOLD] = self._hold_asked
        topics.tells[Topic.MOVED_LOCKS] = self._locks_came
        topics.tells[Topic.HOLD_MOVED] = self._hold_moved

    # At the owner

    def hold(self, store: int, epoch: int, now: Millis, done: Callable[[], None]) -> Set[int]:
        """Let everybody wait with what concerns this store. Returns the nodes that do, which become more until `done` is called: then
        all that are reached have answered."""
        self._moves.begin(store, epoch, now)
        holding = {self._peers.node}
        asked = [peer for peer in self._peers if peer.is_open]
        left = len(asked)

        def answered(node: int, answer: bytes | MessagingError) -> None:
            nonlocal left
            left -= 1
            if not isinstance(answer, MessagingError):
                holding.add(node)
            if not left:
                done()

        for peer in asked:
            peer.ask_hold(HOLD.pack(store, epoch), lambda answer, node=peer.node: answered(node, answer))  # type: ignore[misc]
        if not asked:
            done()
        return holding

    def move_out(self, broker: MessageBroker, epoch: int, holding: Set[int], to: int, now: Millis) -> None:
        """The broker is retired and at rest: forget what it has, and let the next owner know what is locked. This node too: it may be
        the next one."""
        holders = self._part.holders(holding) | self._peers.own_holders()
        moved = broker.move_out(holders.__contains__)
        travelling = {lock for locks in moved.values() for lock, _ in locks.sessions}
        frames = encode_moved(broker.index, epoch, moved, holders, now)
        self._part.forget_holds(travelling)
        self._peers.let_travel(travelling)
        for frame in frames:
            self._keep(self._peers.node, frame, now)
            self._peers[to].tell_moved_locks(frame)

    # At the next owner

    def arrivals(self, store: int, epoch: int) -> Mapping[FragmentKey, MovedLocks]:
        """The store is owned here under this epoch: what is locked in it."""
        self._arrived.pop(store, None)
        arrival = self._arrivals.pop(store, None)
        if arrival is None or epoch != arrival.epoch + 1 or not arrival.is_whole:
            return {}
        self._arrived[store] = arrival
        return arrival.locks()

    def announce(self, store: int, now: Millis) -> None:
        """The store is served here: whoever holds message sessions of it has to know where that is now."""
        arrival = self._arrived.pop(store, None)
        for key, lock, holder in () if arrival is None else arrival.holds():
            assert arrival is not None
            try:
                queue = self._part.queue(key)
            except EntityNotFound:
                continue
            if queue.session_lock(lock.session_id, now) is not lock:
                continue
            if holder.node == self._peers.node:
                if not self._peers.hold_moved(arrival.former, holder.number, self._peers.node, 0, lock):
                    queue.release_session(lock, now)
            else:
                line = self._peers[holder.node].line
                if line is None or not line.is_open:
                    queue.release_session(lock, now)  # as if the line had broken a moment later
                else:
                    number = self._part.give_hold(line, queue, lock)
                    line.tell(Topic.HOLD_MOVED, HOLD_MOVED.pack(arrival.former, holder.number, number))

    def clock_stepped(self, by: Millis) -> None:
        """What has been loaded since it came is its broker's to move."""
        self._moves.clock_stepped(by)
        for arrival in self._arrivals.values():
            for frame in arrival.frames.values():
                frame.locks.clock_stepped(by)

    def forget(self, epochs: Callable[[int], int]) -> None:
        """Locks of stores that somebody owns under a later epoch: nobody will load them here."""
        for store in [store for store, arrival in self._arrivals.items() if epochs(store) > arrival.epoch]:
            del self._arrivals[store]

    def _locks_came(self, line: Line, payload: bytes, now: Millis) -> None:
        assert line.peer is not None
        self._keep(line.peer.node, payload, now)

    def _keep(self, former: int, payload: bytes, now: Millis) -> None:
        frame = decode_moved(payload, now)
        arrival = self._arrivals.get(frame.store)
        if arrival is None or (arrival.epoch, arrival.former) != (frame.epoch, former):
            arrival = self._arrivals[frame.store] = _Arrival(frame.epoch, former)
        arrival.add(frame)

    # At all others

    def _hold_asked(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        store, epoch = unpack(HOLD, payload)
        if self.epoch_of(store) <= epoch:  # or this comes too late
            self._moves.begin(store, epoch, now)
        answer(b"")

    def _hold_moved(self, line: Line, payload: bytes, now: Millis) -> None:
        former, number, new_number = unpack(HOLD_MOVED, payload)
        assert line.peer is not None
        if not self._peers.hold_moved(former, number, line.peer.node, new_number, None):
            # It was given up while the store moved, which took too long.
            line.tell(Topic.RELEASE, COUNTED.pack(new_number))
