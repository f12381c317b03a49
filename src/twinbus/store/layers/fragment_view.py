"""One fragment as it is now: a snapshot of the tables with layers on top in, rows and facts out.

    top layer      takes commits         a row is searched from the top down;
    sealed layer   being checkpointed    a number in a layer's `removed` hides all rows with that
    tables         everything older      number below it

New numbers are above all older ones, so the rows of the tables and those added by each layer follow each other in order;
only the few lifted rows (altered in a layer, added below it) have to be merged in.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby, islice
from operator import itemgetter
from typing import NamedTuple, TypeVar

from twinbus.clock import NEVER, Millis
from twinbus.model.session_key import session_key
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import FragmentKey, StoredMessage
from twinbus.store.checksums import NO_SUM
from twinbus.store.layers.hidden_fronts import HiddenFront
from twinbus.store.layers.located_changes import (
    PLACE,
    SESSION_ID,
    SIZE,
    STATE,
    Row,
    stored_messages,
)
from twinbus.store.layers.overlay import FragmentOverlay, Layer
from twinbus.store.medium import Segment, Snapshot
from twinbus.store.messaging_store import FragmentSummary, RowFacts, SessionSummary

TABLES = -1
"""The level below all layers."""

ROWS_PER_QUERY = 1_000

T = TypeVar("T")


class Found(NamedTuple):
    number: int
    level: int
    row: Row


def _is_of(row: Row, key: str | None) -> bool:
    """Whether it is of the message session with this key; without one, all are wanted."""
    session_id = row[SESSION_ID]
    return key is None or (session_id is not None and session_key(session_id) == key)


def facts_of(found: Sequence[tuple[int, int, Row]]) -> RowFacts:
    if not found:
        return RowFacts()
    numbers, _, rows = zip(*found, strict=True)
    states, due_at, expires_at, delivery_counts, _, _, sizes, session_ids, _ = zip(*rows, strict=True)
    return RowFacts(numbers, states, due_at, expires_at, delivery_counts, session_ids, sizes)


class FragmentView:
    def __init__(self, snapshot: Snapshot, layers: Sequence[Layer], fragment: FragmentKey) -> None:
        """`layers` are bottom first, and none of them is in the snapshot yet."""
        self._snapshot = snapshot
        self.position = snapshot.position
        stack = [(layer, layer.fragments[fragment]) for layer in layers if fragment in layer.fragments]
        bottom = max((level for level, (_, overlay) in enumerate(stack) if overlay.hides_below), default=None)
        self.has_tables = snapshot.has_fragment and bottom is None
        self._layers = [layer for layer, _ in stack[bottom or 0 :]]
        self._overlays = [overlay for _, overlay in stack[bottom or 0 :]]

    def find_all(self, numbers: Sequence[int]) -> list[Found]:
        """Those that exist, in the order asked. One statement for all that are in the tables."""
        if all(overlay.says_nothing_of(numbers) for overlay in self._overlays):
            rows = self._snapshot.rows(numbers) if numbers and self.has_tables else {}
            return [Found(number, TABLES, rows[number]) for number in numbers if number in rows]
        in_layers = {number: self._find_in_layers(number) for number in numbers}
        below = [number for number, found in in_layers.items() if found == TABLES]
        in_tables = self._snapshot.rows(below) if below and self.has_tables else {}
        found_all = list[Found]()
        for number in numbers:
            found = in_layers[number]
            if isinstance(found, Found):
                found_all.append(found)
            elif number in in_tables:
                found_all.append(Found(number, TABLES, in_tables[number]))
        return found_all

    def _find_in_layers(self, number: int) -> Found | int | None:
        """TABLES if no layer says anything about it, None if one says that it is gone."""
        for level in range(len(self._overlays) - 1, TABLES, -1):
            row = self._overlays[level].rows.get(number)
            if row is not None:
                return Found(number, level, row)
            if number in self._overlays[level].removed:
                return None
        return TABLES

    def find(self, number: int) -> Found | None:
        found = self._find_in_layers(number)
        if found == TABLES:
            row = self._snapshot.row(number) if self.has_tables else None
            return None if row is None else Found(number, TABLES, row)
        assert not isinstance(found, int)
        return found

    def scan(
        self,
        after: int,
        count_max: int,
        bytes_max: int,
        states: Collection[MessageState],
        session_id: str | None,
        last: int | None,
    ) -> list[StoredMessage]:
        key = None if session_id is None else session_key(session_id)
        chosen: list[tuple[int, int, Row]] = []
        size = 0
        for found in self._after(after, last, count_max, states, key):
            size += found[2][SIZE]
            if len(chosen) >= count_max or (chosen and size > bytes_max):
                break
            chosen.append(found)
        return self._load(chosen)

    def read(self, numbers: Sequence[int], bytes_max: int | None) -> list[StoredMessage]:
        chosen = self.find_all(numbers)
        if bytes_max is not None:
            sizes = accumulate([row[SIZE] for _, _, row in chosen])
            chosen = chosen[: max(1, sum([size <= bytes_max for size in sizes]))]
        return self._load(chosen)

    def find_after(
        self, after: int, count_max: int, states: Collection[MessageState], last: int | None
    ) -> list[tuple[int, int, Row]]:
        return list(islice(self._after(after, last, count_max, states, None), count_max))

    def due(self, now: Millis, count_max: int, front: HiddenFront) -> tuple[list[int], Millis]:
        in_tables = self._table_times(self._snapshot.scheduled_after, count_max, front)
        return self._first(FragmentOverlay.due, in_tables, now, count_max)

    def expired(self, now: Millis, count_max: int, front: HiddenFront) -> tuple[list[int], Millis]:
        in_tables = self._table_times(self._snapshot.mortal_after, count_max, front)
        return self._first(FragmentOverlay.mortal, in_tables, now, count_max)

    def sessions(self) -> list[SessionSummary]:
        steps = self.session_steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: list[SessionSummary] = end.value
                return sorted(found, key=_by_first)

    def session_steps(self) -> Generator[None, None, list[SessionSummary]]:
        """As `sessions`, of a view that stays as it is, and in no particular order; yields after every thousand of whatever it
        looks at."""
        counts: Counter[str] = Counter()
        firsts: dict[str, tuple[int, str]] = {}
        states: dict[str, tuple[str, Millis]] = {}
        if self.has_tables:
            hidden = self.hidden_in_tables()
            yield
            for page in self._snapshot.session_pages(hidden):
                for session_id, count, first in page:
                    key = session_key(session_id)
                    counts[key], firsts[key] = count, (first, session_id)
                yield
            for state_page in self._snapshot.state_pages():
                states.update([(session_key(session_id), (session_id, at)) for session_id, at in state_page])
                yield
        for some in _thousands(self.rows_in_layers()):
            for number, _, row in some:
                name = row[SESSION_ID]
                if name is not None and row[STATE] == MessageState.ACTIVE:
                    key = session_key(name)
                    counts[key] += 1
                    firsts[key] = min(firsts.get(key, (number, name)), (number, name))
            yield
        for changes in _thousands(chain.from_iterable(each.session_states.items() for each in self._overlays)):
            for key, change in changes:
                if change.state is None:
                    states.pop(key, None)
                else:
                    states[key] = (change.session_id, change.updated_at)
            yield
        found = list[SessionSummary]()
        for names in _thousands(firsts.items()):
            found += [
                SessionSummary(session_id, counts[key], first, states[key][1] if key in states else None)
                for key, (first, session_id) in names
            ]
            yield
        for others in _thousands(states.items()):
            found += [SessionSummary(name, 0, 0, updated_at) for key, (name, updated_at) in others if key not in firsts]
            yield
        return found

    def session_state(self, session_id: str) -> bytes | None:
        key = session_key(session_id)
        for overlay in reversed(self._overlays):
            change = overlay.session_states.get(key)
            if change is not None:
                return change.state
        return self._snapshot.session_state(key) if self.has_tables else None

    def duplicates(self) -> list[tuple[str, Millis]]:
        history = self._snapshot.duplicates() if self.has_tables else {}
        for overlay in self._overlays:
            kept = {key: end for key, end in history.items() if end > overlay.forgotten_until}
            changed = overlay.duplicates
            kept.update({key: end for key, end in changed.items() if end is not None})
            history = {key: end for key, end in kept.items() if changed.get(key, end) is not None}
        return sorted(history.items(), key=lambda entry: (entry[1], entry[0]))

    def hidden_in_tables(self) -> list[int]:
        return list(set().union(*(overlay.removed for overlay in self._overlays)))

    def rows_in_layers(self) -> Iterator[Found]:
        """Every visible row that is not from the tables, in no particular order."""
        for level, overlay in enumerate(self._overlays):
            hidden = self._hides(level)
            for number, row in overlay.rows.items():
                if not hidden(number):
                    yield Found(number, level, row)

    def _hides(self, level: int) -> Callable[[int], bool]:
        """A function that says whether a layer above the level hides a number."""
        above = [overlay.removed for overlay in self._overlays[level + 1 :] if overlay.removed]
        if not above:
            return lambda _: False
        hidden: Callable[[int], bool] = above[0].__contains__
        for removed in above[1:]:
            hidden = _in_either(hidden, removed)
        return hidden

    def _after(
        self, after: int, last: int | None, count_max: int, states: Collection[MessageState], key: str | None
    ) -> Iterator[tuple[int, int, Row]]:
        in_turn: Iterator[tuple[int, int, Row]] = chain(
            self._tables_after(after, last, count_max, states, key),
            *(self._added_after(level, after, last, states, key) for level in range(len(self._overlays))),
        )
        # As far as they are wanted and no further: a claim of everything lifts every row.
        lifted = [
            self._lifted_after(level, after, last, states, key)
            for level, overlay in enumerate(self._overlays)
            if overlay.lifted and overlay.lifted[-1] > after
        ]
        return heapq.merge(in_turn, *lifted) if lifted else in_turn

    def _tables_after(
        self, after: int, last: int | None, count_max: int, states: Collection[MessageState], key: str | None
    ) -> Iterator[tuple[int, int, Row]]:
        if not self.has_tables:
            return
        hidden = self._hides(TABLES)
        # One row more than wanted: the layers are read only if the tables have no more rows.
        query_max = count_max + 1
        after = self._behind_hidden(after, last)
        while last is None or after < last:
            rows = self._snapshot.rows_after(after, last, query_max, states, key)
            for number, row in rows:
                if not hidden(number):
                    yield number, TABLES, row
            if len(rows) < query_max:
                return
            after = rows[-1][0]
            query_max = max(ROWS_PER_QUERY, count_max)

    def _behind_hidden(self, after: int, last: int | None) -> int:
        """The last of the numbers above `after` that layers hide without a gap: a query that consumes reads what it has claimed,
        which is lifted, so that the rows below it are not worth reading."""
        for removed in [overlay.removed for overlay in self._overlays if overlay.removed]:
            while (last is None or after < last) and after + 1 in removed:
                after += 1
        return after

    def _added_after(
        self, level: int, after: int, last: int | None, states: Collection[MessageState], key: str | None
    ) -> Iterator[tuple[int, int, Row]]:
        overlay = self._overlays[level]
        hidden = self._hides(level)
        for number in overlay.after(after, key):
            if last is not None and number > last:
                return
            row = overlay.rows[number]
            if row[STATE] in states and not hidden(number):
                yield number, level, row

    def _lifted_after(
        self, level: int, after: int, last: int | None, states: Collection[MessageState], key: str | None
    ) -> Iterator[tuple[int, int, Row]]:
        overlay = self._overlays[level]
        hidden = self._hides(level)
        for number in overlay.lifted_after(after):
            if last is not None and number > last:
                return
            row = overlay.rows[number]
            if row[STATE] in states and _is_of(row, key) and not hidden(number):
                yield number, level, row

    def _first(
        self,
        in_layer: Callable[[FragmentOverlay, Callable[[int], bool]], Iterator[tuple[Millis, int]]],
        in_tables: Iterator[tuple[Millis, int]],
        now: Millis,
        count_max: int,
    ) -> tuple[list[int], Millis]:
        streams = [in_layer(overlay, self._hides(level)) for level, overlay in enumerate(self._overlays)]
        numbers: list[int] = []
        for at, number in heapq.merge(in_tables, *streams):
            if at > now or len(numbers) >= count_max:
                return numbers, at
            numbers.append(number)
        return numbers, NEVER

    def _table_times(
        self, query: Callable[[Millis, int, int], list[tuple[Millis, int]]], count_max: int, front: HiddenFront
    ) -> Iterator[tuple[Millis, int]]:
        if not self.has_tables:
            return
        hidden = self._hides(TABLES)
        at, number, is_front = front.at, front.number, True
        query_max = min(count_max + 1, ROWS_PER_QUERY)
        while page := query(at, number, query_max):
            for at, number in page:
                if not hidden(number):
                    is_front = False
                    yield at, number
                elif is_front:
                    front.at, front.number = at, number
            query_max = ROWS_PER_QUERY

    def _load(self, chosen: Sequence[tuple[int, int, Row]]) -> list[StoredMessage]:
        homes = [found if found[1] == TABLES or found[2][PLACE] > 0 else self._home(*found) for found in chosen]
        sums = self._content_sums(chosen, homes)
        from_tables = self._snapshot.contents(sums) if sums else {}
        in_segments = [
            (self._layers[level].segment, row[PLACE], row[SIZE]) for _, level, row in homes if level != TABLES
        ]
        from_segments = _read_places(in_segments)
        contents = [from_tables[home] if level == TABLES else next(from_segments) for home, level, _ in homes]
        return stored_messages([number for number, _, _ in chosen], [row for _, _, row in chosen], contents)

    def _content_sums(
        self, chosen: Sequence[tuple[int, int, Row]], homes: Sequence[tuple[int, int, Row]]
    ) -> dict[int, int]:
        """Of the contents that are in the tables, by number. A lifted row does not know its own, the row below does."""
        in_tables = [
            (home, level, row)
            for (_, level, row), (home, home_level, _) in zip(chosen, homes, strict=True)
            if home_level == TABLES
        ]
        lifted = [home for home, level, _ in in_tables if level != TABLES]
        below = self._snapshot.sums(lifted) if lifted else {}
        return {home: row[PLACE] if level == TABLES else below.get(home, NO_SUM) for home, level, row in in_tables}

    def _home(self, number: int, level: int, row: Row) -> tuple[int, int, Row]:
        """Follow a row down to the layer, or the tables, that hold its content."""
        while level != TABLES and row[PLACE] < 0:
            number = -row[PLACE]
            level -= 1
            while level != TABLES and number not in self._overlays[level].rows:
                level -= 1
            if level != TABLES:
                row = self._overlays[level].rows[number]
        return number, level, row


def _in_either(hidden: Callable[[int], bool], removed: set[int]) -> Callable[[int], bool]:
    return lambda number: number in removed or hidden(number)


def _by_first(session: SessionSummary) -> tuple[bool, int, str]:
    """Those that have only a state come last."""
    return session.active_count == 0, session.first_sequence_number, session.session_id


def _thousands(items: Iterable[T]) -> Iterator[list[T]]:
    source = iter(items)
    while some := list(islice(source, ROWS_PER_QUERY)):
        yield some


def _read_places(wanted: Sequence[tuple[Segment, int, int]]) -> Iterator[bytes]:
    """The content at each (segment, place, size), in this order."""
    for segment, places in groupby(wanted, key=itemgetter(0)):
        yield from segment.contents([(place, size) for _, place, size in places])


def sum_fragments(
    tables: Snapshot, layers: Sequence[Layer], last_numbers: Mapping[FragmentKey, int | None]
) -> list[FragmentSummary]:
    """Summaries of all fragments: one pass over the tables, plus what the layers add and hide."""
    counts: dict[FragmentKey, Counter[int]] = defaultdict(Counter)
    sizes: Counter[FragmentKey] = Counter()
    hidden: list[int] = []
    seen_slots: dict[int, FragmentKey] = {}
    for fragment in last_numbers:
        here = tables.of(fragment)
        view = FragmentView(here, layers, fragment)
        if view.has_tables:
            seen_slots[here.slot] = fragment
            hidden += (here.id(number) for number in view.hidden_in_tables())
        for _, _, row in view.rows_in_layers():
            counts[fragment][row[STATE]] += 1
            sizes[fragment] += row[SIZE]
    for slot, state, count, size in tables.counts_without(hidden):
        if slot in seen_slots:
            counts[seen_slots[slot]][state] += count
            sizes[seen_slots[slot]] += size
    return [
        FragmentSummary(
            fragment,
            last_number,
            counts[fragment][MessageState.ACTIVE],
            counts[fragment][MessageState.DEFERRED],
            counts[fragment][MessageState.SCHEDULED],
            sizes[fragment],
        )
        for fragment, last_number in last_numbers.items()
        if last_number is not None
    ]
