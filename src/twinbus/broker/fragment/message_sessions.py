"""The message sessions of one fragment: a lane for each, and the receiver that holds it (contract A9).

    free --accept--> held --release--> free        its messages are free at once, no count rises
                     | ^ '--lock ends-> free        the delivery counts of its messages rise
                     '-' taken over                 by another receiver; what is locked stays locked, under the new hold

Messages of a held session are locked for as long as the session is. A free session keeps nothing of its messages in
memory; the heap of free ones with messages is ordered by their first number. Entries that are out of date are skipped
when they come up, or dropped when they make up most of the heap: where every session is accepted by name, none comes up.

When a lock ends, the delivery counts of its messages are written before they are free again, and somebody may accept the
session meanwhile. Those messages are in flight and in no lane; `Fragment.open_lane` then reads the new holder's messages
from the store, behind that commit, so that a newer message does not overtake them.

Everything here is found by the key of a session (`twinbus.model.session_key`); a lane has the id of a message in it, and a lock
the one that was asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from weakref import ref

from twinbus.broker.consumer import SessionLock, TakenMessage
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hand_over import take
from twinbus.broker.fragment.lane import Lane
from twinbus.broker.fragment.locks import TOKEN_SIZE
from twinbus.broker.fragment.settlement import fail_deliveries
from twinbus.broker.moved_locks import MovedLocks, MovedSession
from twinbus.clock import NEVER, Millis
from twinbus.model.session_key import session_key
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage
from twinbus.store.messaging_store import SessionSummary

STALE_TOKENS_MAX = 1_024
STALE_ENTRIES_MAX = 1_024


class _Held:
    __slots__ = ("lock", "tokens")

    def __init__(self, lock: SessionLock, tokens: Sequence[bytes] = ()) -> None:
        self.lock = lock
        self.tokens = list(tokens)


class MessageSessions:
    def __init__(self, fragment: Fragment) -> None:
        self._fragment_ref = ref(fragment)  # it has this
        self._lanes: dict[str, Lane] = {}
        self._held: dict[str, _Held] = {}
        self._free: list[tuple[int, str]] = []
        self._listed: dict[str, int] = {}  # what the heap says of a session, as far as it is true

    @property
    def _fragment(self) -> Fragment:
        fragment = self._fragment_ref()
        assert fragment is not None, "whoever calls this has it"
        return fragment

    def __len__(self) -> int:
        """How many sessions are kept in memory: those with messages, and those somebody holds."""
        return len(self._lanes)

    # As a part of the fragment

    def lane(self, session_id: str) -> Lane:
        return self._lane(session_key(session_id), session_id)

    def _lane(self, key: str, session_id: str) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(session_id, 0, is_open=key in self._held)
        return lane

    def load(self, sessions: Sequence[SessionSummary], now: Millis, moved: MovedLocks) -> None:
        # Before any is free: somebody may wait for one.
        self._held = {session_key(lock.session_id): _Held(lock, tokens) for lock, tokens in moved.sessions}
        for session in sessions:
            if session.active_count and session_key(session.session_id) not in self._held:
                lane = Lane(
                    session.session_id, session.active_count, is_open=False, first=session.first_sequence_number
                )
                self._lanes[session_key(session.session_id)] = lane
                self.messages_free(lane, now)
        if moved.sessions:
            self._load_moved({session_key(each.session_id): each for each in sessions}, moved)

    def _load_moved(self, known: Mapping[str, SessionSummary], moved: MovedLocks) -> None:
        """Not all that are held: whoever waited for a session has one by now, with a lane that is being read."""
        locked: dict[str, list[int]] = {}
        for row, _, _ in moved.messages:
            if row.session_id is not None and row.state is MessageState.ACTIVE:
                locked.setdefault(session_key(row.session_id), []).append(row.sequence_number)
        for lock, _ in moved.sessions:
            key = session_key(lock.session_id)
            summary, numbers = known.get(key), locked.get(key, ())
            session_id = lock.session_id if summary is None else summary.session_id
            beyond = 0 if summary is None else summary.active_count - len(numbers)
            lane = self._lanes[key] = Lane(session_id, beyond, is_open=True)
            lane.expect_locked(numbers)
            if self._fragment.watcher is not None:
                self._fragment.watcher.session_came(self._fragment, lock)
            self._fragment.refill(lane)

    def move_out(self, travels: Callable[[SessionLock], bool]) -> list[MovedSession]:
        locked = self._fragment.locks.held
        moved = [
            MovedSession(held.lock, [token for token in held.tokens if token in locked])
            for held in self._held.values()
            if travels(held.lock)
        ]
        self.drop()
        return moved

    def drop(self) -> None:
        for held in self._held.values():
            held.lock.is_held = False
        self._lanes, self._held, self._free, self._listed = {}, {}, [], {}

    def clock_stepped(self, by: Millis) -> None:
        for held in self._held.values():
            held.lock.clock_stepped(by)

    def messages_free(self, lane: Lane, now: Millis) -> None:
        if lane.session_id is None:
            return
        key = session_key(lane.session_id)
        if not lane.beyond:
            # Its messages expired or were purged: nothing is left to be remembered of it.
            if self._lanes.get(key) is lane:
                self._listed.pop(key, None)
                del self._lanes[key]
            return
        if key not in self._listed:
            self._listed[key] = lane.first
            heappush(self._free, (lane.first, key))
            if len(self._free) > 2 * len(self._listed) + STALE_ENTRIES_MAX:
                self._free = [(first, listed) for listed, first in self._listed.items()]
                heapify(self._free)
        if self._fragment.watcher is not None:
            self._fragment.watcher.session_free(now)

    def is_held(self, message: StoredMessage, now: Millis) -> bool:
        return message.session_id is not None and self.lock_of(message.session_id, now) is not None

    # Holding

    def lock_of(self, session_id: str, now: Millis) -> SessionLock | None:
        held = self._held.get(session_key(session_id))
        return held.lock if held is not None and held.lock.locked_until > now else None

    def held_keys(self) -> frozenset[str]:
        return frozenset(self._held)

    def first_free(self) -> tuple[int, str] | None:
        """The free session with the oldest message, and that message's number."""
        free = self._free
        while free:
            number, key = free[0]
            if self._listed.get(key) == number:
                lane = self._lanes.get(key)
                if lane is not None and lane.beyond and lane.session_id is not None:
                    return number, lane.session_id
                del self._listed[key]
                self._lanes.pop(key, None)
            heappop(free)
        return None

    def accept(self, session_id: str, now: Millis, *, is_exclusive: bool = True) -> SessionLock:
        """Hold a session that is free."""
        key = session_key(session_id)
        assert key not in self._held
        token = None if is_exclusive else self._fragment.broker.random.randbytes(TOKEN_SIZE)
        lock = self._new_lock(session_id, now, token)
        self._held[key] = _Held(lock)
        self._listed.pop(key, None)
        self._fragment.open_lane(self._lane(key, session_id), now)
        return lock

    def end_overdue(self, session_id: str, now: Millis) -> None:
        """Its lock has ended, and may not have been looked at since. Whoever waits for a session may have this one afterwards."""
        held = self._held.get(session_key(session_id))
        if held is not None and held.lock.locked_until <= now:
            self.lose(held.lock, now)

    def take_over(self, lock: SessionLock, session_id: str, now: Millis) -> SessionLock:
        """A new hold in place of this one, with the same token and a new lock duration; the id as it was asked with."""
        lock.is_held = False
        held = self._held[session_key(session_id)]
        held.lock = self._new_lock(session_id, now, lock.token)
        return held.lock

    def _new_lock(self, session_id: str, now: Millis, token: bytes | None) -> SessionLock:
        return SessionLock(session_id, self._fragment.index, now, now + self._fragment.settings.lock_duration, token)

    def release(self, lock: SessionLock, now: Millis) -> None:
        """Given back in good order."""
        messages = self._give_up(lock)
        self._fragment.locks.forget_deferred([message.sequence_number for message in messages])
        self._close(lock.session_id, [message for message in messages if message.state is MessageState.ACTIVE], now)

    def lose(self, lock: SessionLock, now: Millis) -> None:
        """The lock ended before it was given back."""
        messages = self._give_up(lock)
        if messages:
            # Before the session is free: whoever waits for one has it at once, and would get later messages before these.
            fail_deliveries(self._fragment, messages, now)
        self._close(lock.session_id, [], now)

    # Hand-over

    def take_and_lock(self, lock: SessionLock, count_max: int, now: Millis) -> list[TakenMessage]:
        return self.lock(lock, take(self._fragment, self.lane(lock.session_id), count_max, now))

    def lock(self, lock: SessionLock, messages: list[StoredMessage]) -> list[TakenMessage]:
        """Lock messages of the session for as long as it is held."""
        deliveries = self._fragment.locks.lock(messages, NEVER, lock.locked_until)
        held = self._held[session_key(lock.session_id)]
        held.tokens += [delivery.lock_token for delivery in deliveries]
        if len(held.tokens) > STALE_TOKENS_MAX + 2 * len(self._fragment.locks):
            held.tokens = [token for token in held.tokens if token in self._fragment.locks.held]
        return deliveries

    def _give_up(self, lock: SessionLock) -> list[StoredMessage]:
        """End the hold; what was still locked under it is returned."""
        lock.is_held = False
        held = self._held.pop(session_key(lock.session_id))
        return self._fragment.locks.drop(held.tokens)

    def _close(self, session_id: str, returned: Sequence[StoredMessage], now: Millis) -> None:
        key = session_key(session_id)
        lane = self._lanes.pop(key).closed(returned)
        if lane.beyond:
            self._lanes[key] = lane
            self.messages_free(lane, now)
