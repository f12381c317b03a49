"""The overlay: what the changes of one journal segment do to everything below it.

A layer belongs to one segment and lies on top of older layers and the tables. It holds rows that are new or changed, and
the numbers of those that are gone; a row below is visible only if no layer above has its number. Contents stay in the
segment. The top layer takes changes; once sealed, a layer never changes again, so a checkpoint may read it from another
thread.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from typing import TypeAlias

from twinbus.clock import NEVER, Millis
from twinbus.model.session_key import session_key
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import (
    ActivatedTogether,
    DuplicatesForgotten,
    DuplicatesSeen,
    FragmentCreated,
    FragmentDeleted,
    FragmentKey,
    Removed,
    SessionStateSet,
)
from twinbus.store.layers.located_changes import (
    CONTENT_STAYS,
    DUE_AT,
    EXPIRES_AT,
    PLACE,
    SESSION_ID,
    SIZE,
    STATE,
    LocatedChange,
    Row,
    RowAltered,
    RowsAdded,
    RowsAltered,
)
from twinbus.store.layers.time_index import TimeIndex
from twinbus.store.medium import Segment

FindBelow: TypeAlias = Callable[[FragmentKey, int], Row | None]
"""Looks a row up in everything below a layer."""

ACTIVE, DEFERRED, SCHEDULED = MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED


class FragmentOverlay:
    """One fragment in one layer."""

    __slots__ = (
        "_duplicate_ends",
        "added",
        "duplicates",
        "expiring",
        "forgotten_until",
        "hides_below",
        "last_number",
        "lifted",
        "made_of",
        "removed",
        "restated",
        "rows",
        "scheduled",
        "session_numbers",
        "session_states",
    )

    def __init__(self, last_number: int | None, *, hides_below: bool) -> None:
        self.last_number = last_number  # None: the fragment does not exist
        self.hides_below = hides_below
        self.rows: dict[int, Row] = {}
        self.added: list[int] = []  # ascending; includes numbers that were removed since
        self.lifted: list[int] = []  # numbers of rows below that were altered here, sorted
        self.removed: set[int] = set()  # numbers that may exist below and are hidden: gone or lifted
        self.restated: set[int] = (
            set()
        )  # of those that were lifted: if still here, their state and due time alone are not those below
        self.made_of: dict[int, int] = {}  # rows that were activated here, and the numbers below that they had before
        self.session_numbers: dict[str, list[int]] = {}  # `added` by the key of the session
        self.scheduled: TimeIndex[int] = TimeIndex()
        self.expiring: TimeIndex[int] = TimeIndex()
        self.session_states: dict[str, SessionStateSet] = {}  # the last one, by the key of the session
        self.duplicates: dict[str, Millis | None] = {}  # None: forgotten, whatever is below
        self.forgotten_until: Millis = -1
        self._duplicate_ends: TimeIndex[str] = TimeIndex()

    def add(self, change: RowsAdded) -> None:
        self.rows.update(zip(change.numbers, change.rows, strict=True))
        self.added += change.numbers
        self.last_number = change.numbers[-1] if change.numbers else self.last_number
        for number, row in zip(change.numbers, change.rows, strict=True):
            # Most rows are active, never expire and have no session: one test each and no call.
            if row[SESSION_ID] is not None or row[EXPIRES_AT] != NEVER or row[STATE]:
                self._index_new(number, row)

    def remove(self, numbers: Collection[int]) -> None:
        rows, removed = self.rows, self.removed
        for number in numbers:
            if rows.pop(number, None) is None:
                removed.add(number)

    def alter(self, change: RowAltered, find_below: FindBelow) -> None:
        row = self._find(change.fragment, change.number, find_below)
        if row is None:
            return
        size, place = (row[SIZE], row[PLACE]) if change.size == CONTENT_STAYS else (change.size, change.place)
        if change.number not in self.rows:
            insort(self.lifted, change.number)
            self.removed.add(change.number)
        self.restated.discard(change.number)
        altered: Row = (
            change.state,
            change.due_at,
            change.expires_at,
            change.delivery_count,
            *row[4:6],
            size,
            row[SESSION_ID],
            place,
        )
        self.rows[change.number] = altered
        self._index_times(change.number, altered)

    def alter_together(self, change: RowsAltered, find_below: FindBelow) -> None:
        rows, state, due_at, is_indexed = self.rows, change.state, change.due_at, change.state != DEFERRED
        lifted: list[int] = []
        for number in sorted(change.numbers):
            row = rows.get(number)
            if row is None:
                row = self._find(change.fragment, number, find_below)
                if row is None:
                    continue
                lifted.append(number)
            rows[number] = altered = (state, due_at, *row[2:])
            if is_indexed:
                self._index_times(number, altered)
        if lifted:
            self.removed.update(lifted)
            self.restated.update(lifted)
            is_behind = not self.lifted or self.lifted[-1] < lifted[0]
            self.lifted += lifted
            if not is_behind:
                self.lifted.sort()

    def activate(self, change: ActivatedTogether, find_below: FindBelow) -> None:
        if self.last_number is None:
            return
        fragment, enqueued_at, rows, removed = change.fragment, change.enqueued_at, self.rows, self.removed
        number = change.first_number - 1
        for scheduled_number, expires_at in zip(change.scheduled_numbers, change.expiries, strict=True):
            number += 1
            row = rows.pop(scheduled_number, None)
            if row is None:
                row = self._find(fragment, scheduled_number, find_below)
                if row is None:
                    continue
                removed.add(scheduled_number)
            origin = self.made_of.pop(scheduled_number, scheduled_number)
            if origin in removed:
                self.made_of[number] = origin
            active: Row = (ACTIVE, 0, expires_at, row[3], enqueued_at, *row[5:])
            rows[number] = active
            self.added.append(number)
            if expires_at != NEVER or row[SESSION_ID] is not None:
                self._index_new(number, active)
        self.last_number = number

    def set_state(self, change: SessionStateSet) -> None:
        self.session_states[session_key(change.session_id)] = change

    def see(self, change: DuplicatesSeen) -> None:
        self.duplicates.update(change.keys)
        for key, end in change.keys:
            self._duplicate_ends.add(end, key)

    def forget(self, until: Millis) -> None:
        self.forgotten_until = max(self.forgotten_until, until)
        for key in self._duplicate_ends.take_until(until):
            end = self.duplicates[key]
            if end is not None and end <= until:
                self.duplicates[key] = None

    def gone_of(self, rows: Mapping[int, Row]) -> set[int]:
        """Which of these rows below are no more."""
        return (rows.keys() & self.removed) - self.rows.keys()

    def needed(self) -> set[int]:
        """Numbers below without which rows of this layer would not be found again: those whose content they have, and those that
        they were made of, since the journal says how, and not what became of it."""
        sources = {-row[PLACE] for row in self.rows.values() if row[PLACE] < 0}
        return sources.union(origin for number, origin in self.made_of.items() if number in self.rows)

    def without(self, gone: Collection[int]) -> "FragmentOverlay":
        """As if these had been removed here. For a checkpoint: what finds rows by times and sessions is the same as before."""
        thin = copy(self)
        thin.rows = {number: row for number, row in self.rows.items() if number not in gone}
        return thin

    def restated_runs(self, count_min: int, count_max: int) -> Iterator[Sequence[int]]:
        """Numbers that follow each other, as those of a claim do, of rows that have got the same state and due time here and are
        otherwise as they are below: so many at least, and no more than `count_max` at a time."""
        rows = self.rows
        run: list[int] = []
        for number in sorted(self.restated.intersection(rows)):
            if run and (number != run[-1] + 1 or rows[number][:2] != rows[run[0]][:2] or len(run) == count_max):
                if len(run) >= count_min:
                    yield run
                run = []
            run.append(number)
        if len(run) >= count_min:
            yield run

    def says_nothing_of(self, numbers: Collection[int]) -> bool:
        """Whether all of these are as they are below, if they exist there."""
        return self.rows.keys().isdisjoint(numbers) and self.removed.isdisjoint(numbers)

    def frozen(self) -> "FragmentOverlay":
        """As it is, whatever is done to this one from now on: its rows and the states of sessions. They are not found by times."""
        copied = copy(self)
        copied.rows, copied.removed, copied.session_states = (
            self.rows.copy(),
            self.removed.copy(),
            dict(self.session_states),
        )
        return copied

    def due(self, hidden: Callable[[int], bool]) -> Iterator[tuple[Millis, int]]:
        """Without the numbers that a layer above hides. They stay hidden, so they are not looked at again."""
        return self.scheduled.in_order(
            lambda at, number: not hidden(number) and self._is(number, STATE, SCHEDULED, DUE_AT, at)
        )

    def mortal(self, hidden: Callable[[int], bool]) -> Iterator[tuple[Millis, int]]:
        """As `due`."""
        return self.expiring.in_order(
            lambda at, number: not hidden(number) and self._is(number, STATE, ACTIVE, EXPIRES_AT, at)
        )

    def after(self, number: int, key: str | None) -> Iterator[int]:
        """Numbers of the rows added here above `number`, in order; with a key, those of that message session."""
        numbers = self.added if key is None else self.session_numbers.get(key, [])
        for position in range(bisect_right(numbers, number), len(numbers)):
            if numbers[position] in self.rows:
                yield numbers[position]

    def lifted_after(self, number: int) -> Iterator[int]:
        for position in range(bisect_right(self.lifted, number), len(self.lifted)):
            if self.lifted[position] in self.rows:
                yield self.lifted[position]

    def _is(self, number: int, state_field: int, state: int, time_field: int, at: Millis) -> bool:
        row = self.rows.get(number)
        return row is not None and row[state_field] == state and row[time_field] == at

    def _find(self, fragment: FragmentKey, number: int, find_below: FindBelow) -> Row | None:
        """The row as it is now, with the place of its content as seen from this layer."""
        row = self.rows.get(number)
        if row is not None or self.hides_below or number in self.removed:
            return row
        row = find_below(fragment, number)
        return None if row is None else (*row[:8], -number)

    def _index_new(self, number: int, row: Row) -> None:
        session_id = row[SESSION_ID]
        if session_id is not None:
            self.session_numbers.setdefault(session_key(session_id), []).append(number)
        self._index_times(number, row)

    def _index_times(self, number: int, row: Row) -> None:
        if row[STATE] == SCHEDULED:
            self.scheduled.add(row[DUE_AT], number)
        elif row[STATE] == ACTIVE and row[EXPIRES_AT] != NEVER:
            self.expiring.add(row[EXPIRES_AT], number)


GONE = FragmentOverlay(None, hides_below=True)
"""Of every fragment that was deleted in a layer: nothing is ever added to it. One of its own would take as much memory as five rows, and
clients that create and delete entities leave thousands."""


class Layer:
    """What one segment does to all fragments."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.fragments: dict[FragmentKey, FragmentOverlay] = {}
        self.entry_count = 0  # what the layer holds in memory, counted in rows

    def thinned(self, above: "Sequence[Layer]") -> "Layer":
        """The same layer without rows that those above have removed for good: what of it the tables need."""
        thin = Layer(self.segment)
        thin.entry_count = self.entry_count
        for fragment, overlay in self.fragments.items():
            overlays = [layer.fragments[fragment] for layer in above if fragment in layer.fragments]
            gone = set[int]().union(*[each.gone_of(overlay.rows) for each in overlays])
            if gone:
                # Commits wait for this: what is needed is looked for only if something might be left out.
                gone.difference_update(*[each.needed() for each in overlays])
            thin.fragments[fragment] = overlay.without(gone) if gone else overlay
        return thin

    def frozen(self, fragment: FragmentKey) -> "Layer":
        """With this fragment alone (`FragmentOverlay.frozen`)."""
        copied = Layer(self.segment)
        if fragment in self.fragments:
            copied.fragments[fragment] = self.fragments[fragment].frozen()
        return copied

    def apply(self, change: LocatedChange, last_number: int | None, find_below: FindBelow) -> None:
        """Apply the next change. `last_number` is the fragment's highest number in the layers below."""
        overlay = self.fragments.get(change.fragment)
        if overlay is None:
            overlay = self.fragments[change.fragment] = FragmentOverlay(last_number, hides_below=False)
        self.entry_count += 1
        if overlay is GONE and not isinstance(change, FragmentCreated):
            return
        match change:
            case RowsAdded():
                overlay.add(change)
                self.entry_count += len(change.numbers)
            case Removed(sequence_numbers=numbers):
                before = len(overlay.removed)
                overlay.remove(numbers)
                self.entry_count += len(overlay.removed) - before
            case RowAltered():
                overlay.alter(change, find_below)
            case RowsAltered():
                # What the layer has already takes no more room: a claim of messages that have just been sent must not drive
                # them out into the tables, for they will be removed soon.
                before = len(overlay.lifted)
                overlay.alter_together(change, find_below)
                self.entry_count += len(overlay.lifted) - before
            case ActivatedTogether(scheduled_numbers=numbers):
                overlay.activate(change, find_below)
                self.entry_count += len(numbers)
            case FragmentCreated(fragment):
                if overlay.last_number is None:
                    self.fragments[fragment] = FragmentOverlay(0, hides_below=True)
            case FragmentDeleted(fragment):
                self.fragments[fragment] = GONE
            case SessionStateSet():
                overlay.set_state(change)
            case DuplicatesSeen():
                overlay.see(change)
                self.entry_count += len(change.keys)
            case DuplicatesForgotten(until=until):
                overlay.forget(until)
