"""A fragment: what a message broker knows in memory of one sub-queue in its store.

The store has the rows. Here are the numbering, the counts, the lanes of ready messages and the locks; the modules
beside this one (intake, hand_over, settlement, schedule, expiry, browse) say what happens to them. Two rules hold
everywhere:

* Memory follows a decision at once, receivers and senders learn of it when the store has it. Should the store fail,
  all of this is dropped and read anew, so nothing is ever taken back by hand.
* The store port keeps order. A read that was asked for before a change was made shows the row as it was before that
  change, and its answer comes while the numbers of the changed rows are still `in_flight`: they are skipped then.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.duplicates import DuplicateHistory
from twinbus.broker.fragment.hops import without_hops
from twinbus.broker.fragment.lane import Lane
from twinbus.broker.fragment.locks import LockTable
from twinbus.broker.fragment.session_lanes import SessionLanes
from twinbus.broker.message_broker import MessageBroker
from twinbus.clock import NEVER, Millis
from twinbus.errors import FragmentUnavailable, ServerBusy
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.changes import Change, Enqueued, FragmentKey, StoredMessage, SubQueue, fragment_parts
from twinbus.store.reads import ACTIVE_ONLY, FragmentMemory, MemoryWanted, Scan


class FragmentWatcher(Protocol):
    """The queue that a fragment is a part of."""

    @property
    def is_taken_from(self) -> bool:
        """Whether somebody receives from it, or it hands on what it has by itself."""
        ...

    def messages_ready(self, fragment: "Fragment", lane: Lane) -> None: ...

    def messages_read(self) -> None:
        """A read of messages for its receivers is through, whether it found any or not."""
        ...

    def session_free(self) -> None:
        """A message session with messages is held by nobody."""
        ...

    def fragment_lost(self, fragment: "Fragment") -> None: ...


class Fragment:
    def __init__(
        self,
        key: FragmentKey,
        broker: MessageBroker,
        settings: EntitySettings,
        upkeep: Callable[["Fragment", Millis], None],
    ) -> None:
        self.key = key
        self.index = fragment_parts(key).index
        self.sub_queue = SubQueue(fragment_parts(key).sub_queue)
        self.broker = broker
        self.settings = settings
        self.watcher: FragmentWatcher | None = None
        self.dead_letters: Fragment | None = None
        self.transfer_dead_letters: Fragment | None = None
        self.sessions: SessionLanes | None = None
        self.duplicates: DuplicateHistory | None = None
        self._upkeep = upkeep
        self._woken_at: Millis = NEVER
        self.is_loaded = False
        self._clear()

    def _clear(self) -> None:
        self.last_number = self.index << SEQUENCE_BITS
        self.active_count = self.deferred_count = self.scheduled_count = self.size_bytes = 0
        self.lane = Lane(None, 0, is_open=True)
        self.locks = LockTable(self.index, self.broker.random)
        self.deferred_locked: set[int] = set()
        self.next_due: Millis = NEVER
        self.next_expiry: Millis = NEVER  # when to look for expired messages
        self.has_expiring = False  # false: no message here ever expires, so nobody has to look at hand-over
        self.is_activating = self.is_expiring = False
        self._in_flight: deque[Sequence[int]] = deque()

    @property
    def forwards_to(self) -> str | None:
        """The path of the entity that messages are handed on to by themselves."""
        if self.sub_queue is SubQueue.MAIN:
            return self.settings.forward_to
        return self.settings.forward_dead_letters_to if self.sub_queue is SubQueue.DEAD_LETTER else None

    @property
    def taken_bytes(self) -> int:
        """Of the size that the entity may have here: its dead letters count too."""
        others = (self.dead_letters, self.transfer_dead_letters)
        return self.size_bytes + sum([other.size_bytes for other in others if other is not None])

    @property
    def is_available(self) -> bool:
        return self.is_loaded and self.broker.is_available

    @property
    def is_leaving(self) -> bool:
        """It is being deleted."""
        return self.key in self.broker.leaving

    @property
    def refusal(self) -> ServerBusy | None:
        """Why it takes no messages now, if so."""
        return self.broker.refusal if self.is_loaded else self.broker.unavailable()

    @property
    def what_to_remember(self) -> MemoryWanted:
        return MemoryWanted(
            self.key, has_sessions=self.sessions is not None, has_duplicates=self.duplicates is not None
        )

    def load(self, memory: FragmentMemory | None) -> None:
        """Start serving from what the store remembers (None: it is new); whatever was here is forgotten."""
        self._clear()
        if memory is None:
            memory = FragmentMemory.of_new(self.key)
        summary = memory.summary
        self.last_number = max(self.last_number, summary.last_sequence_number)
        self.active_count = summary.active_count
        self.deferred_count = summary.deferred_count
        self.scheduled_count = summary.scheduled_count
        self.size_bytes = summary.size_bytes
        self.next_due = memory.next_due
        self.will_expire(memory.next_expiry)
        if self.duplicates is not None:
            self.duplicates.load(memory.duplicates)
        self.is_loaded = True
        self.wake()
        if self.sessions is not None:
            self.sessions.load(memory.sessions)
        else:
            self.lane.beyond = summary.active_count
            self.refill(self.lane)

    def drop(self) -> None:
        """The store is lost, and with it every lease given on what it holds."""
        self.is_loaded = False
        self._clear()
        if self.sessions is not None:
            self.sessions.drop()
        if self.watcher is not None:
            self.watcher.fragment_lost(self)

    # Rows

    def number_rows(self, rows: Sequence[StoredMessage]) -> Enqueued:
        """Give new rows their numbers and count them."""
        number = self.last_number
        for row in rows:
            number += 1
            row.sequence_number = number
        self.last_number = number
        self.count_rows(rows)
        return Enqueued(self.key, list(rows))

    def count_rows(self, rows: Sequence[StoredMessage], sign: int = 1) -> None:
        for row in rows:
            self.count_state(row.state, sign)
            self.size_bytes += sign * len(row.content)

    def count_state(self, state: MessageState, sign: int) -> None:
        if state is MessageState.ACTIVE:
            self.active_count += sign
        elif state is MessageState.DEFERRED:
            self.deferred_count += sign
        else:
            self.scheduled_count += sign

    def change(
        self,
        numbers: Sequence[int],
        changes: list[Change],
        effect: Callable[[], None],
        failed: Callable[[FragmentUnavailable], None] | None = None,
    ) -> None:
        """Make changes to the rows with these numbers durable, then call `effect`."""
        self._in_flight.append(numbers)
        self.broker.commit(changes, partial(self._changed, self._in_flight, effect, failed))

    def _changed(
        self,
        in_flight: deque[Sequence[int]],
        effect: Callable[[], None],
        failed: Callable[[FragmentUnavailable], None] | None,
        error: FragmentUnavailable | None,
    ) -> None:
        if error is None:
            in_flight.popleft()
            effect()
        elif failed is not None:
            failed(error)

    def in_flight(self) -> set[int]:
        return {number for numbers in self._in_flight for number in numbers}

    def out_of_lane(self) -> set[int]:
        """Rows that are locked or being changed: not ready, whatever a read from the store says."""
        numbers = self.in_flight()
        numbers.update([message.sequence_number for message, _ in self.locks.held.values()])
        return numbers

    def will_expire(self, when: Millis) -> None:
        """An active message ends then."""
        if when < self.next_expiry:
            self.next_expiry = when
            self.has_expiring = True

    # Lanes

    def lane_of(self, message: StoredMessage) -> Lane:
        if self.sessions is None or message.session_id is None:
            return self.lane
        return self.sessions.lane(message.session_id)

    def admit(self, rows: Sequence[StoredMessage], size_bytes: int) -> None:
        """New active rows are durable: they may be handed over."""
        if self.sessions is None:
            self.lane.admit(rows, size_bytes)
            self.announce(self.lane)
            return
        by_session: dict[str | None, list[StoredMessage]] = {}
        for row in rows:
            by_session.setdefault(row.session_id, []).append(row)
        for group in by_session.values():
            lane = self.lane_of(group[0])
            lane.admit(group, sum([len(row.content) for row in group]))
            self.announce(lane)

    def put_back(self, messages: Sequence[StoredMessage]) -> None:
        """Messages that were handed over are free again, each in its old place."""
        self.hide_hops(messages)
        touched = {}
        for message in messages:
            lane = self.lane_of(message)
            lane.put_back(message)
            self.will_expire(message.expires_at)
            touched[id(lane)] = lane
        for lane in touched.values():
            self.announce(lane)
        self.wake()

    def hide_hops(self, rows: Iterable[StoredMessage]) -> None:
        """Rows that came while the queue forwarded show their hops to nobody once it no longer does."""
        if self.forwards_to is None:
            for row in rows:
                row.enqueued_sequence_number = without_hops(row.enqueued_sequence_number)

    def announce(self, lane: Lane) -> None:
        """Tell those who wait that there may be something for them."""
        self.refill(lane)
        if lane.ready and self.watcher is not None:
            self.watcher.messages_ready(self, lane)
        elif not lane.is_open and self.sessions is not None:
            self.sessions.messages_free(lane)

    def refill(self, lane: Lane) -> None:
        """Ask the store for more ahead of need; not where nobody takes it, for there may be thousands of such queues."""
        if lane.wants_fill and self.is_available and (self.watcher is None or self.watcher.is_taken_from):
            self._scan(lane)

    def open_lane(self, lane: Lane) -> None:
        """Somebody took hold of a message session. Messages on their way back from its former holder are in no lane
        yet, so where any are, the lane starts from what the store says: a newer message must not overtake them."""
        lane.is_open = True
        if self._in_flight and not lane.is_filling:
            self._scan(lane)
        self.announce(lane)

    def _scan(self, lane: Lane) -> None:
        lane.is_filling = True
        after, session_id = lane.tail, lane.session_id
        count_max, bytes_max = lane.room
        self.broker.query(
            Scan(self.key, after, count_max, bytes_max, ACTIVE_ONLY, session_id),
            partial(self._refilled, lane, after),
        )

    def _refilled(self, lane: Lane, after: int, found: list[StoredMessage] | FragmentUnavailable) -> None:
        if isinstance(found, FragmentUnavailable):
            return
        taken = self.out_of_lane() if after < lane.filter_below else self.in_flight()
        free = [row for row in found if row.sequence_number not in taken] if taken else found
        self.hide_hops(free)
        lane.fill(found, free)
        if lane.is_open:
            self.announce(lane)
        if self.watcher is not None:
            self.watcher.messages_read()

    # Time

    def wake(self) -> None:
        """See to it that upkeep runs when the next thing is due. Cheap when that is already so."""
        when = min(self.locks.next_expiry(), self.next_due, self.next_expiry)
        if self.duplicates is not None:
            when = min(when, self.duplicates.next_end)
        if when < self._woken_at:
            self._woken_at = when
            self.broker.wakeups.at(when, self._woken)

    def _woken(self, now: Millis) -> None:
        if now < self._woken_at:
            # Left over from before something sooner came up: what it was for has been planned anew since.
            return
        self._woken_at = NEVER
        if self.is_available:
            try:
                self._upkeep(self, now)
            finally:
                self.wake()
