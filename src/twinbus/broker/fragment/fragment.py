"""A fragment: what a message broker knows in memory of one sub-queue in its store.

The store has the rows. Here are the numbers and counts (`tally`), the lanes of ready messages, the locks, and when to
look for what is due (`agenda`); each of these parts writes its own fields, and nobody else does. Whatever happens to
rows is a `Decision`; the modules beside it (intake, hand_over, settlement, upkeep) say what is decided. Three
invariants hold everywhere:

* **Memory is ahead of the store, and never taken back.** A decision changes counts, numbers, lanes and locks at once,
  before the store is asked; senders and receivers learn of it when the store has answered. So the next decision starts
  from the last one, in order, whatever the store has written so far. When the store fails, nobody knows what it wrote:
  all of this memory is dropped and read again. Undoing a single decision by hand would break this, for later ones
  were built on it.
* **A read shows rows as they were when it was asked for.** The store port answers in order, so when the answer to a
  read comes, every change asked for before it has been answered, and every change asked for after it has not. The rows
  of those later changes are still in `_in_flight`, and the answer is out of date for exactly these: they are skipped.
  A change that did not go through `commit` below would not be in `_in_flight`, and a removed row would come back from
  the read as a ready message.
* **A row is in one place**: ready in a lane, beyond it (in the store only), locked, or in flight. Whoever takes a row
  out of one place puts it into the next in the same call, before anything else can run. A row that was locked, and whose content
  is read again before it is changed, counts as in flight (`keep_out`).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from weakref import ref

from twinbus.broker.consumer import SessionLock
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.agenda import Agenda
from twinbus.broker.fragment.duplicates import DuplicateHistory
from twinbus.broker.fragment.lane import Lane
from twinbus.broker.fragment.locks import LockTable
from twinbus.broker.fragment.names import Names
from twinbus.broker.fragment.neighbours import FragmentWatcher, SessionLanes
from twinbus.broker.fragment.tally import Tally
from twinbus.broker.held_contents import unread_content
from twinbus.broker.message_broker import Effect, Failed, MessageBroker
from twinbus.broker.moved_locks import MovedLocks
from twinbus.broker.wakeups import Wakeup
from twinbus.clock import NEVER, Millis
from twinbus.errors import FragmentUnavailable, ServerBusy
from twinbus.model.hops import without_hops
from twinbus.model.message import read_content
from twinbus.model.partition_key import pinning_key
from twinbus.model.session_key import session_key
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import Change, FragmentKey, SessionRun, SharedRows, StoredMessage, SubQueue, fragment_parts
from twinbus.store.reads import ACTIVE_ONLY, FragmentMemory, MemoryWanted, Scan


class Fragment:
    """`upkeep` is called when something is due here. Dead letters lie in the same store, with the same index."""

    def __init__(
        self,
        key: FragmentKey,
        broker: MessageBroker,
        settings: EntitySettings,
        upkeep: Callable[["Fragment", Millis], None],
        dead_letters: "Fragment | None" = None,
        transfer_dead_letters: "Fragment | None" = None,
    ) -> None:
        self.key = key
        self.index = fragment_parts(key).index
        self.sub_queue = SubQueue(fragment_parts(key).sub_queue)
        self.broker = broker
        self.settings = settings
        self.dead_letters = dead_letters
        self.transfer_dead_letters = transfer_dead_letters
        self._watcher_ref: Callable[[], FragmentWatcher | None] = _nobody
        self.sessions: SessionLanes | None = None
        is_detecting = settings.duplicate_window > 0 and self.sub_queue is SubQueue.MAIN
        self.duplicates = DuplicateHistory() if is_detecting else None
        self._upkeep = upkeep
        self._woken_at: Millis = NEVER
        self._wakeup: Wakeup | None = None
        self.is_loaded = False
        self._clear()

    def _clear(self) -> None:
        # New objects, not cleared ones: answers to what was asked before still come, hold the old ones, and so change
        # nothing of what is loaded next.
        self.tally = Tally(self.index)
        self.agenda = Agenda()
        self.lane = self._new_lane(0)
        key_of = partial(_key_behind, self.settings)
        self.locks = LockTable(self.index, self.broker.random, self.broker.held_contents, key_of)
        self._names: Names | None = None
        self._in_flight: deque[Sequence[int]] = deque()
        self._kept_out: OrderedDict[int, Sequence[int]] = OrderedDict()  # by turn, the oldest first
        # When what was kept out before their turn no longer is: if they waited for all, busy queues could keep them for ever.
        self._lanes_to_scan: deque[tuple[int, Lane]] = deque()
        self._turns = count()

    def _new_lane(self, beyond: int) -> Lane:
        # The fragments of a partitioned entity read ahead side by side: together they are as wide as any.
        wide_lanes = None if self.settings.is_partitioned else self.broker.wide_lanes
        return Lane(None, beyond, is_open=True, wide_lanes=wide_lanes)

    def set_watcher(self, watcher: FragmentWatcher) -> None:
        # It has this. Without circles nothing of an entity that was deleted is left to the collector.
        self._watcher_ref = ref(watcher)

    @property
    def watcher(self) -> FragmentWatcher | None:
        """The queue that it is a part of, for as long as anybody has that."""
        return self._watcher_ref()

    def set_sessions(self, sessions: SessionLanes) -> None:
        """It is of an entity that requires message sessions. To be called before it is loaded."""
        self.sessions = sessions

    @property
    def forwards_to(self) -> str | None:
        """The path of the entity that its messages are forwarded to."""
        if self.sub_queue is SubQueue.MAIN:
            return self.settings.forward_to
        return self.settings.forward_dead_letters_to if self.sub_queue is SubQueue.DEAD_LETTER else None

    @property
    def taken_bytes(self) -> int:
        """Of the size that the entity may have here: its dead letters count too."""
        size_bytes = self.tally.size_bytes
        if self.dead_letters is not None:
            size_bytes += self.dead_letters.tally.size_bytes
        if self.transfer_dead_letters is not None:
            size_bytes += self.transfer_dead_letters.tally.size_bytes
        return size_bytes

    @property
    def names(self) -> Names:
        """Of messages that came as second tries: most fragments never see one."""
        if self._names is None:
            self._names = Names(self.key, self.broker)
        return self._names

    @property
    def is_available(self) -> bool:
        return self.is_loaded and self.broker.is_available

    def forget_keys(self, now: Millis) -> Millis:
        """Of message ids and second tries, those that have ended, or a part of them. Returns until when, 0 if there was nothing."""
        keys = self._names if self.duplicates is None else self.duplicates
        return 0 if keys is None or keys.next_end > now else keys.forget(now)

    def is_put_off(self, scheduled: StoredMessage) -> bool:
        """Whether it was abandoned with a delay, and not sent with a schedule. Nothing is sent to a dead-letter queue, whose
        messages keep the delivery count that they came with."""
        return scheduled.delivery_count > 0 or self.sub_queue in (SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER)

    @property
    def refusal(self) -> FragmentUnavailable | ServerBusy | None:
        """Why it takes no messages now, if so."""
        return self.broker.refusal if self.is_loaded else self.broker.unavailable()

    # Loading

    @property
    def what_to_remember(self) -> MemoryWanted:
        return MemoryWanted(
            self.key, has_sessions=self.sessions is not None, has_duplicates=self.duplicates is not None
        )

    def load(self, memory: FragmentMemory | None, now: Millis, moved: MovedLocks | None = None) -> None:
        """Start serving from what the store remembers (None: it is new); whatever was here is forgotten. `moved`: the locks that
        another node gave while it had the store."""
        self._clear()
        if memory is None:
            memory = FragmentMemory.of_new(self.key)
        self.tally = Tally(self.index, memory.summary)
        self.agenda = Agenda(memory.next_due, memory.next_expiry)
        if self.duplicates is not None:
            self.duplicates.load(memory.duplicates, are_pinned=self.settings.is_partitioned)
        self.is_loaded = True
        moved = moved or MovedLocks([], [])
        self.locks.restore(moved.messages)
        self.wake()
        if self.sessions is not None:
            self.sessions.load(memory.sessions, now, moved)
        else:
            locked = [row.sequence_number for row, _, _ in moved.messages if row.state is MessageState.ACTIVE]
            self.lane = self._new_lane(memory.summary.active_count - len(locked))
            self.lane.expect_locked(locked)
            self.refill(self.lane)

    def stop(self) -> None:
        """Take and give nothing more: it is about to be deleted. `drop` follows."""
        self.is_loaded = False

    def drop(self) -> None:
        """The store is lost, and with it every lease given on what it holds. Or it is gone for good."""
        self.is_loaded = False
        self._clear()
        if self._wakeup is not None:
            # It may be for the end of a message that would have lived for years.
            self._wakeup.cancel()
            self._woken_at, self._wakeup = NEVER, None
        if self.sessions is not None:
            self.sessions.drop()
        watcher = self.watcher
        if watcher is not None:
            watcher.fragment_lost(self)

    def move_out(self, travels: Callable[[SessionLock], bool]) -> MovedLocks:
        """The store moves to another node, and everything is forgotten here. Returns what is locked, without the message sessions that
        do not travel: whoever holds the rest is not told, and goes on there. What is on its way to another entity is nobody's there: it
        would be locked for good, since whoever forwards it from here does not find it any more."""
        sessions = [] if self.sessions is None else self.sessions.move_out(travels)
        messages = self.locks.moved()
        if self.sessions is None:
            messages = [message for message in messages if message.locked_until < NEVER]
        else:
            tokens = {token for session in sessions for token in session.tokens}
            messages = [message for message in messages if message.lock_token in tokens]
        self.is_loaded = False
        self._clear()
        watcher = self.watcher
        if watcher is not None:
            watcher.fragment_moved(self, {session.lock for session in sessions})
        return MovedLocks(messages, sessions)

    # Rows under way

    def commit(
        self,
        numbers: Sequence[int],
        changes: list[Change],
        effect: Effect | None,
        failed: Failed | None,
        *,
        is_awaited: bool = True,
    ) -> None:
        """The one way in which rows of this fragment change: `Decision.commit` calls it.

        `numbers` are those of rows that exist, so that a read may show them: new ones cannot be in a read that was
        asked for before. They are in flight until the answer comes. Answers come in the order of the calls, so the
        oldest entry is always the answered one. After a loss the answers belong to the old deque, not to that of the
        rows that are loaded next.
        """
        if numbers:
            self._in_flight.append(numbers)
            effect = partial(_landed, self._in_flight, effect)
        self.broker.commit(changes, effect, failed, is_awaited=is_awaited)

    def in_flight(self, after: int = 0) -> set[int]:
        """Rows above this number that are being changed: what a read that was asked for before says of them is out of date."""
        return {
            number for numbers in (*self._in_flight, *self._kept_out.values()) for number in numbers if number > after
        }

    def keep_out(self, numbers: Sequence[int]) -> Callable[[], None]:
        """Rows that were locked, or are due, and will be changed count as in flight until the function that is returned is called: when
        their change has been asked for."""
        kept_out, turn = self._kept_out, next(self._turns)
        kept_out[turn] = numbers
        return partial(self._let_in, kept_out, turn)

    def _let_in(self, kept_out: OrderedDict[int, Sequence[int]], turn: int) -> None:
        del kept_out[turn]
        if kept_out is self._kept_out:
            lanes, oldest = self._lanes_to_scan, next(iter(kept_out), None)
            while lanes and (oldest is None or lanes[0][0] < oldest):
                self._scan(lanes.popleft()[1])

    def out_of_lane(self, rows: Iterable[StoredMessage]) -> set[int]:
        """The numbers of those that are locked or being changed: not ready, whatever a read from the store says."""
        return self.out_of_lane_by_number([row.sequence_number for row in rows])

    def out_of_lane_by_number(self, numbers: Sequence[int]) -> set[int]:
        return self.in_flight() | self.locks.locked_among(numbers)

    def key_behind(self, row: StoredMessage) -> str | None:
        """The key that keeps a message in its fragment, where that is of interest."""
        return _key_behind(self.settings, row)

    # Lanes

    def lane_of(self, message: StoredMessage) -> Lane:
        if self.sessions is None or message.session_id is None:
            return self.lane
        return self.sessions.lane(message.session_id)

    def admit(self, rows: Sequence[StoredMessage], size_bytes: int, now: Millis) -> None:
        """New active rows are durable: they may be handed over."""
        if self.sessions is None:
            self.lane.admit(rows, size_bytes)
            self.announce(self.lane, now)
            return
        by_session: dict[str | None, list[StoredMessage]] = {}
        for row in rows:
            key = None if row.session_id is None else session_key(row.session_id)
            by_session.setdefault(key, []).append(row)
        for group in by_session.values():
            lane = self.lane_of(group[0])
            lane.admit(group, sum([len(row.content) for row in group]))
            self.announce(lane, now)

    def admit_copies(self, rows: SharedRows, first_number: int) -> None:
        """New active rows are durable, and are read from the store when somebody takes them. `announce_copies` follows."""
        self.admit_unread(len(rows), first_number, rows.sessions if self.sessions is not None else ())

    def announce_copies(self, rows: SharedRows, now: Millis) -> None:
        """Later than `admit_copies`, so the lanes are looked up again: a message session may have changed hands."""
        if self.is_available:
            self.announce_unread(rows.sessions if self.sessions is not None else (), now)

    def admit_unread(self, count: int, first_number: int, sessions: Iterable[SessionRun]) -> None:
        """New active rows are durable, and stay in the store until somebody takes them. `sessions`: of a session entity."""
        if self.sessions is None:
            self.lane.admit_beyond(count, first_number)
            return
        for session_id, count_there, place in sessions:
            self.sessions.lane(session_id).admit_beyond(count_there, first_number + place)

    def announce_unread(self, sessions: Iterable[SessionRun], now: Millis) -> None:
        self.wake()
        if self.sessions is None:
            self.announce(self.lane, now)
            return
        for session_id, _, _ in sessions:
            self.announce(self.sessions.lane(session_id), now)

    def put_back(self, messages: Sequence[StoredMessage], now: Millis) -> None:
        """Messages that were handed over are free again, each in its old place."""
        self.hide_hops(messages)
        touched = {}
        for message in messages:
            lane = self.lane_of(message)
            lane.put_back(message)
            self.agenda.will_expire(message.expires_at)
            touched[id(lane)] = lane
        for lane in touched.values():
            self.announce(lane, now)
        self.wake()

    def hold_back(self, messages: Iterable[StoredMessage]) -> Callable[[Millis], None]:
        """Of message sessions: hand over nothing more of those of these messages until the function that is returned is called. They
        are on their way back, and whoever holds the session gets them first."""
        lanes = {id(lane): lane for lane in map(self.lane_of, messages)}.values()
        for lane in lanes:
            lane.hold_back()

        def let_go(now: Millis) -> None:
            for lane in lanes:
                lane.let_go()
                # If the session was closed meanwhile, another lane is in its place.
                if lane.is_open:
                    self.announce(lane, now)

        return let_go

    def withdraw(self, rows: Iterable[StoredMessage]) -> list[Lane]:
        """Take rows that nobody holds out of the lanes they wait in, the active ones, and return those lanes.

        To be announced once the change of the rows has been asked for: a scan for more that was asked for before it
        would find them, and they are not in flight yet when it is asked for.
        """
        lanes: dict[int, Lane] = {}
        for row in rows:
            if row.state is MessageState.ACTIVE:
                lane = self.lane_of(row)
                lane.remove(row.sequence_number)
                lanes[id(lane)] = lane
        return list(lanes.values())

    def hide_hops(self, rows: Iterable[StoredMessage]) -> None:
        """Rows that came while the queue forwarded show their hops to nobody once it no longer does."""
        if self.forwards_to is None:
            for row in rows:
                if row.enqueued_sequence_number:
                    row.enqueued_sequence_number = without_hops(row.enqueued_sequence_number)

    def announce(self, lane: Lane, now: Millis) -> None:
        """Let those who wait know that there may be something for them."""
        if lane.beyond:
            self.refill(lane)
        if lane.ready and (watcher := self._watcher_ref()) is not None:
            watcher.messages_ready(self, lane, now)
        elif not lane.is_open and self.sessions is not None:
            self.sessions.messages_free(lane, now)

    def refill(self, lane: Lane) -> None:
        """Ask the store for more ahead of need; not where nobody takes it, for there may be thousands of such queues."""
        if lane.wants_fill and self.is_available:
            watcher = self.watcher
            if watcher is None or watcher.is_taken_from:
                self._scan(lane)

    def rest(self) -> None:
        """Nobody receives from it any more."""
        self.lane.narrow()

    def open_lane(self, lane: Lane, now: Millis) -> None:
        """Somebody took hold of a message session. Messages on their way back from its former holder are in no lane
        yet, so where any are, the lane starts from what the store says when all of their changes have been asked for: a newer
        message must not overtake them."""
        lane.open()
        if self._kept_out and not lane.is_filling:
            lane.start_fill()
            self._lanes_to_scan.append((next(self._turns), lane))
        elif self._in_flight and not lane.is_filling:
            self._scan(lane)
        self.announce(lane, now)

    def _scan(self, lane: Lane) -> None:
        lane.start_fill()
        after, session_id = lane.tail, lane.session_id
        count_max, bytes_max = lane.room
        self.broker.query(
            Scan(self.key, after, count_max, bytes_max, ACTIVE_ONLY, session_id),
            partial(self._refilled, lane, after),
        )

    def _refilled(self, lane: Lane, after: int, found: list[StoredMessage] | FragmentUnavailable, now: Millis) -> None:
        if isinstance(found, FragmentUnavailable):
            return
        # What is being received was below the tail, so as a rule nothing is left to be looked for.
        taken = self.out_of_lane(found) if after < lane.filter_below else self.in_flight(after)
        free = [row for row in found if row.sequence_number not in taken] if taken else found
        self.hide_hops(free)
        lane.fill(found, free)
        if lane.is_open:
            self.announce(lane, now)
        watcher = self.watcher
        if watcher is not None:
            watcher.messages_read()

    # Time

    def clock_stepped(self, by: Millis) -> None:
        """Locks are for a duration, and so are names. What is due or expires has its time in the store, and that stays."""
        self.locks.clock_stepped(by)
        if self._names is not None:
            self._names.clock_stepped(by)
        if self.sessions is not None:
            self.sessions.clock_stepped(by)
        # All wakeups have moved, and what this one is for may not have.
        self._woken_at = NEVER
        self.wake()

    def wake(self) -> None:
        """See to it that upkeep runs when the next thing is due. Cheap when that is already so."""
        agenda, when = self.agenda, self.locks.next_expiry()
        if agenda.next_due < when:
            when = agenda.next_due
        if agenda.next_expiry < when:
            when = agenda.next_expiry
        if self.duplicates is not None and self.duplicates.next_end < when:
            when = self.duplicates.next_end
        if self._names is not None and self._names.next_end < when:
            when = self._names.next_end
        if when < self._woken_at:
            if self._wakeup is not None:
                # A client can name times that each come before all that it has named so far.
                self._wakeup.cancel()
            self._woken_at, self._wakeup = when, self.broker.wakeups.at(when, self._woken)

    def _woken(self, now: Millis) -> None:
        self._woken_at = NEVER
        if self.is_available:
            try:
                self._upkeep(self, now)
            finally:
                self.wake()


def _nobody() -> None:
    """Nobody watches it."""


def _key_behind(settings: EntitySettings, row: StoredMessage) -> str | None:
    if not settings.is_partitioned:
        return None
    unread = unread_content(row)
    if unread is not None:
        return unread.key
    message = read_content(row.content)
    key = pinning_key(
        message.session_id,
        message.partition_key,
        message.message_id,
        settings.duplicate_window > 0,
        settings.has_sessions,
    )
    return (message.via_partition_key or None) if key is None else key


def _landed(in_flight: deque[Sequence[int]], effect: Effect | None, now: Millis) -> None:
    # Before the effect: it may put these rows into a lane, and what is read from now on shows them as they are.
    in_flight.popleft()
    if effect is not None:
        effect(now)
