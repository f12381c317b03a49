"""What a message broker may ask of its messaging store: each read a value, with what it answers beside it.

A read is carried out where the store is, on its thread, and that may be in another process. So the value travels there and
the answer travels back, and neither holds anything but data: no function, no object of the broker. `READS` is all of them;
the store's thread carries out nothing else.

A read shows the store as it is after every commit that was asked for before it, and before any that was asked for later.
What the broker decided meanwhile it has to add itself: an answer may name a row that has been locked or changed since.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress, islice, takewhile
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from twinbus.clock import NEVER, Millis
from twinbus.errors import FilterError
from twinbus.model import wire_names
from twinbus.model.content import application_properties, without_body
from twinbus.model.delivery import split_peeked
from twinbus.model.descriptions import SqlFilter
from twinbus.model.hops import without_hops
from twinbus.model.packed_payloads import pack, pack_numbers
from twinbus.model.rules.compiled import compile_test
from twinbus.model.rules.evaluation import Test
from twinbus.model.rules.view import FilterView
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.changes import FragmentKey, StoredMessage
from twinbus.store.damage import CheckedPage
from twinbus.store.messaging_store import FragmentSummary, MessagingStore, RowFacts, SessionSummary

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Rows: TypeAlias = list[StoredMessage]

ANY_STATE: Final = tuple(MessageState)
ACTIVE_ONLY: Final = (MessageState.ACTIVE,)
DEFERRED_ONLY: Final = (MessageState.DEFERRED,)

ROWS_BYTES_MAX = 4 * 1024 * 1024
"""What an answer holds whose rows the broker does not count: an answer travels in one piece."""


class Read(Protocol[T_co]):
    """A question to a messaging store that is answered with a `T_co`."""

    def run(self, store: MessagingStore, /) -> T_co:
        """By `carry_out` alone."""
        ...


# Rows


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows in some states with a number above `after`, and up to `last` if there is one; lowest first, expired or not.

    They end at `count_max` rows or before their content passes `bytes_max`, but never before the first row. With a session
    id: of that message session alone. Bodies that nobody wants stay here.
    """

    fragment: FragmentKey
    after: int
    count_max: int
    bytes_max: int
    states: Collection[MessageState] = ANY_STATE
    session_id: str | None = None
    with_bodies: bool = True
    last: int | None = None

    def run(self, store: MessagingStore) -> Rows:
        rows = store.scan(
            self.fragment, self.after, self.count_max, self.bytes_max, self.states, self.session_id, self.last
        )
        if not self.with_bodies:
            for row in rows:
                row.content = without_body(row.content)
        return rows


class PackedRows(NamedTuple):
    """Rows as whoever peeks is shown them, already encoded: a reader of thousands wants nothing else of them."""

    fronts: bytes  # payloads up to where the data of their bodies begin: see `split_peeked`, `packed_payloads`
    front_ends: bytes
    bodies: bytes
    body_ends: bytes
    sizes: bytes  # of the contents: what a bill counts
    next_number: int | None  # where to go on; None: there is nothing more in the range


@dataclass(frozen=True, slots=True)
class PackedScan:
    """As `Scan`, without what has expired and what the filter does not match or fails on. May show none although more follows."""

    fragment: FragmentKey
    after: int
    last: int
    count_max: int
    bytes_max: int
    now: Millis
    states: Collection[MessageState] = ANY_STATE
    with_bodies: bool = True
    filter: SqlFilter | None = None

    def run(self, store: MessagingStore) -> PackedRows:
        rows = store.scan(
            self.fragment, self.after, self.count_max, self.bytes_max, self.states, session_id=None, last=self.last
        )
        reached = rows[-1].sequence_number if rows else self.last
        has_more = reached < self.last and store.facts_after(self.fragment, reached, 1, self.states, self.last).numbers
        shown = unexpired(rows, self.now)
        if self.filter is not None:
            shown = matching(_test_of(self.filter), shown)
        return pack_rows(shown, reached + 1 if has_more else None, with_bodies=self.with_bodies)


def pack_rows(rows: Rows, next_number: int | None, *, with_bodies: bool = True) -> PackedRows:
    fronts, bodies, sizes = split_peeked(hide_hops(rows), with_bodies=with_bodies)
    return PackedRows(*pack(fronts), *pack(bodies), pack_numbers(sizes), next_number)


_test_of = lru_cache(64)(compile_test)
"""A reader asks for page after page with the same filter."""


def matching(test: Test, rows: Rows) -> Rows:
    return [row for row in rows if _matches(test, row)]


def _matches(test: Test, row: StoredMessage) -> bool:
    try:
        return bool(test(FilterView(row.content, row.sequence_number, row.enqueued_at)))
    except FilterError:
        return False


def hide_hops(rows: Rows) -> Rows:
    """How often a message was forwarded concerns no reader."""
    for row in rows:
        if row.enqueued_sequence_number:
            row.enqueued_sequence_number = without_hops(row.enqueued_sequence_number)
    return rows


@dataclass(frozen=True, slots=True)
class ReadNumbers:
    """The rows with these numbers that exist, in the order of the numbers: the first ones, if all have more than `bytes_max`
    together, and at least one."""

    fragment: FragmentKey
    numbers: Sequence[int]
    bytes_max: int | None = None

    def run(self, store: MessagingStore) -> Rows:
        return store.read(self.fragment, self.numbers, self.bytes_max)


class UnreadRows(NamedTuple):
    """Rows whose content nobody looks at: in columns, so that thousands of them travel at little cost."""

    numbers: list[int]
    sizes: list[int]
    last_seen: int | None  # the highest number that was looked at, None if there was nothing


@dataclass(frozen=True, slots=True)
class ActiveUnread:
    """Active rows that have not expired, numbered above `after` and up to `last`, lowest first; of `count_max` rows that were
    looked at."""

    fragment: FragmentKey
    after: int
    last: int | None
    count_max: int
    now: Millis

    def run(self, store: MessagingStore) -> UnreadRows:
        found = store.facts_after(self.fragment, self.after, self.count_max, ACTIVE_ONLY, self.last)
        return _unread(
            found, [each > self.now for each in found.expires_at], found.numbers[-1] if found.numbers else None
        )


@dataclass(frozen=True, slots=True)
class DeferredUnread:
    """Those of these numbers, which rise, that are deferred rows."""

    fragment: FragmentKey
    numbers: Sequence[int]

    def run(self, store: MessagingStore) -> UnreadRows:
        found = store.facts(self.fragment, self.numbers)
        return _unread(found, [state == MessageState.DEFERRED for state in found.states], self.numbers[-1])


def _unread(found: RowFacts, is_wanted: Sequence[bool], last_seen: int | None) -> UnreadRows:
    return UnreadRows(list(compress(found.numbers, is_wanted)), list(compress(found.sizes, is_wanted)), last_seen)


@dataclass(frozen=True, slots=True)
class ReadTogether:
    """As `ReadNumbers`, or None if their content passes `bytes_max`. A single row is never too large: nobody could ask
    for less."""

    fragment: FragmentKey
    numbers: Sequence[int]
    bytes_max: int

    def run(self, store: MessagingStore) -> Rows | None:
        rows = store.read(self.fragment, self.numbers, self.bytes_max)
        if rows:
            left = self.numbers[self.numbers.index(rows[-1].sequence_number) + 1 :]
            is_too_large = sum([len(row.content) for row in rows]) > self.bytes_max and len(self.numbers) > 1
            if is_too_large or store.read(self.fragment, left, 1):
                return None
        return rows


class NumberedTime(NamedTuple):
    number: int
    enqueued_at: Millis


@dataclass(frozen=True, slots=True)
class TimesFrom:
    """For each of these numbers, the first row with this number or above, in any state; None if there is no such row."""

    fragment: FragmentKey
    numbers: Sequence[int]

    def run(self, store: MessagingStore) -> list[NumberedTime | None]:
        found: list[NumberedTime | None] = []
        for number in self.numbers:
            rows = store.scan(self.fragment, number - 1, 1, 1, ANY_STATE)
            found.append(NumberedTime(rows[0].sequence_number, rows[0].enqueued_at) if rows else None)
        return found


class Unexpired(NamedTuple):
    rows: Rows
    has_more: bool  # rows behind these, expired or not


@dataclass(frozen=True, slots=True)
class FirstUnexpired:
    """The first rows numbered `from_number` or above that have not expired, in any state; empty if there are none."""

    fragment: FragmentKey
    from_number: int
    count_max: int
    bytes_max: int
    now: Millis

    def run(self, store: MessagingStore) -> Unexpired:
        after = self.from_number - 1
        while rows := store.scan(self.fragment, after, self.count_max, self.bytes_max, ANY_STATE):
            after = rows[-1].sequence_number
            kept = unexpired(rows, self.now)
            if kept:
                return Unexpired(kept, bool(store.scan(self.fragment, after, 1, 1, ANY_STATE)))
        return Unexpired([], False)


def unexpired(rows: Rows, now: Millis) -> Rows:
    """Without the active ones whose time is over: others do not expire where they are (contract A14)."""
    return [row for row in rows if row.state is not MessageState.ACTIVE or row.expires_at > now]


# Rows whose time has come


class Timely(NamedTuple):
    rows: Rows
    next_at: Millis  # when to look again; NEVER if there is nothing to wait for


@dataclass(frozen=True, slots=True)
class DueRows:
    """Scheduled rows that are due, by due time: at most `count_max`, and `ROWS_BYTES_MAX` or one."""

    fragment: FragmentKey
    now: Millis
    count_max: int

    def run(self, store: MessagingStore) -> Timely:
        numbers, next_due = store.due(self.fragment, self.now, self.count_max)
        rows = _read_some(store, self.fragment, numbers)
        return Timely(rows, next_due if len(rows) == len(numbers) else self.now)


class DueUnread(NamedTuple):
    """Rows that were sent with a schedule, as columns, by due time and up to the first that was put off."""

    numbers: list[int]
    lives: list[Millis]  # from when they were due; NEVER for those that do not expire
    session_ids: list[str | None]
    is_put_off_next: bool
    next_at: Millis

    def without(self, numbers: AbstractSet[int]) -> "DueUnread":
        if numbers.isdisjoint(self.numbers):
            return self
        kept = [number not in numbers for number in self.numbers]
        return self._replace(
            numbers=list(compress(self.numbers, kept)),
            lives=list(compress(self.lives, kept)),
            session_ids=list(compress(self.session_ids, kept)),
        )


@dataclass(frozen=True, slots=True)
class DueFacts:
    """As `DueRows`, without their content and however large that is."""

    fragment: FragmentKey
    now: Millis
    count_max: int

    def run(self, store: MessagingStore) -> DueUnread:
        numbers, next_due = store.due(self.fragment, self.now, self.count_max)
        rows = store.facts(self.fragment, numbers)
        sent_count = len(list(takewhile(lambda count: count == 0, rows.delivery_counts)))
        times = islice(zip(rows.due_at, rows.expires_at, strict=True), sent_count)
        return DueUnread(
            list(rows.numbers[:sent_count]),
            [expires_at - due_at if expires_at < NEVER else NEVER for due_at, expires_at in times],
            list(rows.session_ids[:sent_count]),
            sent_count < len(rows.numbers),
            next_due,
        )


@dataclass(frozen=True, slots=True)
class ExpiredRows:
    """Active rows that have expired, by expiry, without those in `held`: at most `count_max`, and `ROWS_BYTES_MAX` or one.

    What is held may be free by `retry_at`, so it is looked at again then.
    """

    fragment: FragmentKey
    now: Millis
    count_max: int
    held: frozenset[int]
    retry_at: Millis

    def run(self, store: MessagingStore) -> Timely:
        numbers, next_expiry = store.expired(self.fragment, self.now, self.count_max + len(self.held))
        free = [number for number in numbers if number not in self.held]
        rows = _read_some(store, self.fragment, free[: self.count_max])
        if len(rows) < len(free):
            return Timely(rows, self.now)
        return Timely(rows, min(next_expiry, self.retry_at) if len(free) < len(numbers) else next_expiry)


def _read_some(store: MessagingStore, fragment: FragmentKey, numbers: Sequence[int]) -> Rows:
    """The first of these rows, all of which exist, up to `ROWS_BYTES_MAX`; at least one."""
    return store.read(fragment, numbers, ROWS_BYTES_MAX)


# Destinations


@dataclass(slots=True)
class Share:
    message_count: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class BacklogShares:
    """By destination; None stands for messages that no paired sender put there. `next_number`: where to go on."""

    by_destination: dict[str | None, Share] = field(default_factory=dict)
    next_number: int | None = None

    def add(self, destination: str | None, message_count: int, size_bytes: int) -> None:
        share = self.by_destination.setdefault(destination, Share())
        share.message_count += message_count
        share.size_bytes += size_bytes


class CountedRows(NamedTuple):
    by_destination: Mapping[str | None, Share]  # of the rows that have not expired
    row_count: int  # read, expired or not
    next_number: int  # where to go on: in the next fragment if nothing is left in this one


@dataclass(frozen=True, slots=True)
class BacklogPage:
    """For which destinations the rows numbered `from_number` or above wait, in any state. Their content stays here."""

    fragment: FragmentKey
    from_number: int
    count_max: int
    bytes_max: int
    now: Millis

    def run(self, store: MessagingStore) -> CountedRows:
        rows = store.scan(self.fragment, self.from_number - 1, self.count_max, self.bytes_max, ANY_STATE)
        shares = BacklogShares()
        for row in unexpired(rows, self.now):
            shares.add(_destination(row.content), 1, len(row.content))
        following_fragment = ((self.from_number >> SEQUENCE_BITS) + 1) << SEQUENCE_BITS
        next_number = rows[-1].sequence_number + 1 if rows else following_fragment
        return CountedRows(shares.by_destination, len(rows), next_number)


def _destination(content: bytes) -> str | None:
    path = application_properties(content).get(wire_names.TRANSFER_PATH)
    return path if isinstance(path, str) else None


# Message sessions


# A fragment may have hundreds of thousands of them: what is asked for is picked out here, and the rest does not travel.


@dataclass(frozen=True, slots=True)
class PrepareSessions:
    """A step towards the list that the next reads need; False: ask again. Others are served in between."""

    fragment: FragmentKey

    def run(self, store: MessagingStore) -> bool:
        return store.prepare_session_list(self.fragment)


@dataclass(frozen=True, slots=True)
class SessionNames:
    """A page of the message sessions with active messages or a state, by name; with a time, of those whose state was set later."""

    fragment: FragmentKey
    updated_after: Millis | None
    skip: int
    top: int

    def run(self, store: MessagingStore) -> list[str]:
        sessions, after = store.session_list(self.fragment), self.updated_after
        found = sessions.by_name
        if after is not None:
            with_state = sessions.with_state
            found = [each for each in with_state if each.state_updated_at is not None and each.state_updated_at > after]
        return [each.session_id for each in found[self.skip : self.skip + self.top]]


class SessionTotals(NamedTuple):
    session_count: int
    active_count: int
    busiest: list[tuple[str, int]]  # session id and active messages: those with most first, then by name
    asked: list[str]  # of the keys that were asked about, those of sessions with active messages


@dataclass(frozen=True, slots=True)
class BusiestSessions:
    """The sums over all message sessions with active messages, and those with most. `keys`: see `SessionTotals.asked`."""

    fragment: FragmentKey
    top: int
    keys: frozenset[str]

    def run(self, store: MessagingStore) -> SessionTotals:
        found = store.session_list(self.fragment)
        busiest = [(each.session_id, each.active_count) for each in found.busiest[: self.top]]
        asked = sorted(key for key in self.keys if key in found.active_keys)
        return SessionTotals(len(found.busiest), found.active_count, busiest, asked)


@dataclass(frozen=True, slots=True)
class ReadSessionState:
    """The state that applications keep with a message session; None if it has none."""

    fragment: FragmentKey
    session_id: str

    def run(self, store: MessagingStore) -> bytes | None:
        return store.session_state(self.fragment, self.session_id)


@dataclass(frozen=True, slots=True)
class KeysSeen:
    """What `DuplicatesSeen` has written of a fragment, with their ends, oldest end first."""

    fragment: FragmentKey

    def run(self, store: MessagingStore) -> list[tuple[str, Millis]]:
        return store.duplicates(self.fragment)


# Whole fragments


@dataclass(frozen=True, slots=True)
class FragmentMemory:
    """What a message broker has to know of a fragment before it can serve it."""

    summary: FragmentSummary
    next_due: Millis
    next_expiry: Millis
    sessions: Sequence[SessionSummary]
    duplicates: Sequence[tuple[str, Millis]]

    @classmethod
    def of_new(cls, fragment: FragmentKey) -> "FragmentMemory":
        return cls(FragmentSummary(fragment, 0, 0, 0, 0, 0), NEVER, NEVER, (), ())


class MemoryWanted(NamedTuple):
    fragment: FragmentKey
    has_sessions: bool
    has_duplicates: bool


@dataclass(frozen=True, slots=True)
class Load:
    """The memory of each of these fragments, in this order; None for one that the store does not have."""

    wanted: Sequence[MemoryWanted]

    def run(self, store: MessagingStore) -> list[FragmentMemory | None]:
        summaries = {summary.fragment: summary for summary in store.summaries()}
        return [
            _memory(store, summaries[one.fragment], one) if one.fragment in summaries else None for one in self.wanted
        ]


def _memory(store: MessagingStore, summary: FragmentSummary, wanted: MemoryWanted) -> FragmentMemory:
    fragment, has_sessions, has_duplicates = wanted
    # Before the beginning of time nothing is due: what comes back is when the first one will be.
    return FragmentMemory(
        summary,
        next_due=store.due(fragment, -1, 1)[1] if summary.scheduled_count else NEVER,
        next_expiry=store.expired(fragment, -1, 1)[1] if summary.active_count else NEVER,
        sessions=store.sessions(fragment) if has_sessions else (),
        duplicates=store.duplicates(fragment) if has_duplicates else (),
    )


# Damage


@dataclass(frozen=True, slots=True)
class CheckRows:
    """Whether rows at rest are what was written: the first ones, or those behind where an earlier page ended."""

    after: int = -1

    def run(self, store: MessagingStore) -> CheckedPage:
        return store.check(self.after)


def carry_out(read: Read[T], store: MessagingStore) -> T:
    """The answer of the store. Raises TypeError for what is not one of `READS`, and StoreUnavailable as the store does."""
    if type(read) not in READS:
        raise TypeError(f"{read!r} is not a read of a messaging store: twinbus.store.reads has all of them")
    return read.run(store)


READS: Final = frozenset(
    {
        Scan,
        PackedScan,
        ReadNumbers,
        ActiveUnread,
        DeferredUnread,
        ReadTogether,
        TimesFrom,
        FirstUnexpired,
        DueRows,
        DueFacts,
        ExpiredRows,
        BacklogPage,
        PrepareSessions,
        SessionNames,
        BusiestSessions,
        ReadSessionState,
        KeysSeen,
        Load,
        CheckRows,
    }
)
