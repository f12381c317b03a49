"""MemoryStore: the sum of all changes in plain dictionaries, gone when the process ends.

It keeps every promise of the protocol but durability. The durable store is tested against it, so it does everything in
the most obvious way instead of the fastest; only scans do not start from the beginning.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

from twinbus.clock import NEVER, Millis
from twinbus.errors import StoreUnavailable
from twinbus.model.session_key import is_same_session, session_key
from twinbus.model.wire_names import MessageState
from twinbus.store.change_rules import check_changes
from twinbus.store.changes import (
    Activated,
    ActivatedTogether,
    Altered,
    AlteredTogether,
    Change,
    Copied,
    DuplicatesForgotten,
    DuplicatesSeen,
    Enqueued,
    FragmentCreated,
    FragmentDeleted,
    FragmentKey,
    Removed,
    SessionStateSet,
    StoredMessage,
)
from twinbus.store.damage import CheckedPage, Damage
from twinbus.store.messaging_store import FragmentSummary, RowFacts, SessionList, SessionSummary
from twinbus.store.room import RoomLeft


def copy_of(row: StoredMessage) -> StoredMessage:
    return StoredMessage(
        row.sequence_number,
        row.content,
        row.enqueued_at,
        row.expires_at,
        row.state,
        row.due_at,
        row.delivery_count,
        row.session_id,
        row.enqueued_sequence_number,
    )


@dataclass(slots=True)
class _Fragment:
    last_number: int = 0
    rows: dict[int, StoredMessage] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # sorted; may still hold some that were removed
    states: dict[str, tuple[str, bytes, Millis]] = field(default_factory=dict)
    duplicates: dict[str, Millis] = field(default_factory=dict)

    def add(self, rows: Iterable[StoredMessage]) -> None:
        for row in rows:
            self.rows[row.sequence_number] = row
            self.numbers.append(row.sequence_number)

    def remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.rows.pop(number, None)
        if len(self.numbers) > 2 * len(self.rows) + 100:
            self.numbers = list(self.rows)

    def alter(self, change: Altered) -> None:
        row = self.rows.get(change.sequence_number)
        if row is None:
            return
        row.state, row.delivery_count = change.state, change.delivery_count
        row.due_at, row.expires_at = change.due_at, change.expires_at
        if change.content is not None:
            row.content = change.content

    def activate(self, change: Activated) -> None:
        row = self.rows.pop(change.scheduled_number, None)
        if row is None:
            return
        row.sequence_number, row.state, row.due_at = change.sequence_number, MessageState.ACTIVE, 0
        row.enqueued_at, row.expires_at = change.enqueued_at, change.expires_at
        self.add([row])

    def after(self, number: int, last: int | None = None) -> Iterable[StoredMessage]:
        end = len(self.numbers) if last is None else bisect_right(self.numbers, last)
        for position in range(bisect_right(self.numbers, number), end):
            row = self.rows.get(self.numbers[position])
            if row is not None:
                yield row

    def summary(self, key: FragmentKey) -> FragmentSummary:
        states = [row.state for row in self.rows.values()]
        return FragmentSummary(
            key,
            self.last_number,
            states.count(MessageState.ACTIVE),
            states.count(MessageState.DEFERRED),
            states.count(MessageState.SCHEDULED),
            sum(len(row.content) for row in self.rows.values()),
        )

    def sessions(self) -> list[SessionSummary]:
        active: dict[str, list[tuple[int, str]]] = {}
        for row in self.rows.values():
            if row.session_id is not None and row.state is MessageState.ACTIVE:
                active.setdefault(session_key(row.session_id), []).append((row.sequence_number, row.session_id))
        with_messages = []
        for key, messages in active.items():
            first, name = min(messages)
            updated_at = self.states[key][2] if key in self.states else None
            with_messages.append(SessionSummary(name, len(messages), first, updated_at))
        with_messages.sort(key=lambda session: session.first_sequence_number)
        state_alone = sorted(self.states[key] for key in self.states.keys() - active.keys())
        return with_messages + [SessionSummary(name, 0, 0, updated_at) for name, _, updated_at in state_alone]


def _first(waiting: list[tuple[Millis, int]], now: Millis, count_max: int) -> tuple[list[int], Millis]:
    waiting.sort()
    numbers = [number for at, number in waiting[:count_max] if at <= now]
    return numbers, waiting[len(numbers)][0] if len(numbers) < len(waiting) else NEVER


def _facts(rows: Sequence[StoredMessage]) -> RowFacts:
    return RowFacts(
        tuple(row.sequence_number for row in rows),
        tuple(int(row.state) for row in rows),
        tuple(row.due_at for row in rows),
        tuple(row.expires_at for row in rows),
        tuple(row.delivery_count for row in rows),
        tuple(row.session_id for row in rows),
        tuple(len(row.content) for row in rows),
    )


class MemoryStore:
    """See `MessagingStore`."""

    def __init__(self) -> None:
        self._fragments: dict[FragmentKey, _Fragment] = {}
        self._is_closed = False

    def commit(self, changes: Sequence[Change]) -> None:
        self._must_be_open()
        last_numbers = {
            change.fragment: self._fragment(change.fragment).last_number
            for change in changes
            if change.fragment in self._fragments
        }
        touched = check_changes(changes, last_numbers)
        for change in changes:
            self._apply(change)
        for key, last in touched.items():
            if last is not None:
                self._fragments[key].last_number = last

    def catch_up(self) -> bool:
        """Nothing is ever left for later."""
        return False

    def rest(self) -> bool:
        """Nor is anything to be tidied."""
        return False

    def is_pressed(self) -> bool:
        return False

    def room_left(self) -> RoomLeft:
        return RoomLeft.ENOUGH

    def kept_in(self) -> str:
        return "memory"

    def epoch(self) -> int:
        return 0

    def damage(self) -> list[Damage]:
        return []

    def check(self, after: int) -> CheckedPage:
        return CheckedPage(0, None)

    def _apply(self, change: Change) -> None:
        fragment = self._fragment(change.fragment)
        match change:
            case FragmentCreated(key):
                self._fragments[key] = fragment
            case FragmentDeleted(key):
                self._fragments.pop(key, None)
            case Enqueued(messages=messages):
                fragment.add(map(copy_of, messages))
            case Copied(first_number=first, rows=rows):
                fragment.add(rows.numbered(first))
            case Removed(sequence_numbers=numbers):
                fragment.remove(numbers)
            case Altered():
                fragment.alter(change)
            case AlteredTogether(sequence_numbers=numbers, state=new_state, due_at=due_at):
                for row in [fragment.rows[number] for number in numbers if number in fragment.rows]:
                    row.state, row.due_at = new_state, due_at
            case Activated():
                fragment.activate(change)
            case ActivatedTogether():
                for each in change.each():
                    fragment.activate(each)
            case SessionStateSet(session_id=name, state=None):
                fragment.states.pop(session_key(name), None)
            case SessionStateSet(session_id=name, state=bytes(state), updated_at=updated_at):
                fragment.states[session_key(name)] = (name, state, updated_at)
            case DuplicatesSeen(keys=keys):
                fragment.duplicates.update(keys)
            case DuplicatesForgotten(until=until):
                fragment.duplicates = {key: end for key, end in fragment.duplicates.items() if end > until}

    def summaries(self) -> list[FragmentSummary]:
        self._must_be_open()
        return [fragment.summary(key) for key, fragment in self._fragments.items()]

    def scan(
        self,
        fragment: FragmentKey,
        after: int,
        count_max: int,
        bytes_max: int,
        states: Collection[MessageState],
        session_id: str | None = None,
        last: int | None = None,
    ) -> list[StoredMessage]:
        rows: list[StoredMessage] = []
        size = 0
        for row in self._fragment(fragment).after(after, last):
            if row.state not in states or not (session_id is None or is_same_session(session_id, row.session_id)):
                continue
            size += len(row.content)
            if len(rows) >= count_max or (rows and size > bytes_max):
                break
            rows.append(copy_of(row))
        return rows

    def read(
        self, fragment: FragmentKey, sequence_numbers: Sequence[int], bytes_max: int | None = None
    ) -> list[StoredMessage]:
        rows = self._fragment(fragment).rows
        chosen = [rows[number] for number in sequence_numbers if number in rows]
        if bytes_max is not None:
            sizes = accumulate([len(row.content) for row in chosen])
            chosen = chosen[: max(1, sum([size <= bytes_max for size in sizes]))]
        return [copy_of(row) for row in chosen]

    def facts(self, fragment: FragmentKey, sequence_numbers: Sequence[int]) -> RowFacts:
        return _facts(self.read(fragment, sequence_numbers))

    def facts_after(
        self,
        fragment: FragmentKey,
        after: int,
        count_max: int,
        states: Collection[MessageState],
        last: int | None = None,
    ) -> RowFacts:
        rows = (row for row in self._fragment(fragment).after(after, last) if row.state in states)
        return _facts(list(islice(rows, count_max)))

    def due(self, fragment: FragmentKey, now: Millis, count_max: int) -> tuple[list[int], Millis]:
        rows = self._fragment(fragment).rows.values()
        waiting = [(row.due_at, row.sequence_number) for row in rows if row.state is MessageState.SCHEDULED]
        return _first(waiting, now, count_max)

    def expired(self, fragment: FragmentKey, now: Millis, count_max: int) -> tuple[list[int], Millis]:
        rows = self._fragment(fragment).rows.values()
        mortal = [row for row in rows if row.state is MessageState.ACTIVE and row.expires_at != NEVER]
        return _first([(row.expires_at, row.sequence_number) for row in mortal], now, count_max)

    def sessions(self, fragment: FragmentKey) -> list[SessionSummary]:
        return self._fragment(fragment).sessions()

    def prepare_session_list(self, fragment: FragmentKey) -> bool:
        self._must_be_open()
        return True

    def session_list(self, fragment: FragmentKey) -> SessionList:
        return SessionList.of(self.sessions(fragment))

    def session_state(self, fragment: FragmentKey, session_id: str) -> bytes | None:
        state = self._fragment(fragment).states.get(session_key(session_id))
        return None if state is None else state[1]

    def duplicates(self, fragment: FragmentKey) -> list[tuple[str, Millis]]:
        history = self._fragment(fragment).duplicates.items()
        return sorted(history, key=lambda entry: (entry[1], entry[0]))

    def close(self) -> None:
        self._is_closed = True

    def _fragment(self, key: FragmentKey) -> _Fragment:
        """The fragment, or an empty one that is not kept."""
        self._must_be_open()
        return self._fragments.get(key) or _Fragment()

    def _must_be_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("this memory store is closed. Open a new one.")
