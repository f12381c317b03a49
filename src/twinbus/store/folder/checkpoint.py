"""A checkpoint: one sealed layer in, its sum written to the tables in one transaction.

Messages that were enqueued and removed within the layer's segment never get here. Each statement writes a hundred rows:
with one row each, this thread and the store's would pass the interpreter lock back and forth; with many more, commits
would wait while the values of a statement are assembled.

Checksums are computed from the segment, whose batches are checked first: what the disk changed meanwhile must not get a
checksum that matches it.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from itertools import accumulate, chain, islice
from typing import TypeVar

from twinbus.errors import StoreDamaged
from twinbus.model.session_key import session_key
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import FragmentKey
from twinbus.store.checksums import NO_SUM, content_sum, restated_difference, row_sum, values_sum
from twinbus.store.folder.journal import SegmentFile
from twinbus.store.folder.tables import SQL, stored_text, write_journal_row
from twinbus.store.layers.located_changes import PLACE, SESSION_ID, SIZE, STATE, Row
from twinbus.store.layers.overlay import FragmentOverlay, Layer
from twinbus.store.layers.pace import Pace
from twinbus.store.row_ids import COUNTER_MASK, row_id

ROWS_PER_STATEMENT = 100
ROWS_PER_RANGE = 1_000
RUN_MIN = 8
BYTES_PER_STATEMENT = 1 << 20
LARGE_BYTES = 1 << 20
NO_SLOT = 0
PAGES_PER_STEP = 128
FREE_PAGES_KEPT = 256
FREE_PART_KEPT = 4  # a file of which less than one part in four is free stays as it is: the space is used again

Item = TypeVar("Item")


def write_checkpoint(connection: sqlite3.Connection, layer: Layer, pace: Pace) -> None:
    """Afterwards, the tables hold the layer and the number of its segment. If this raises, they are unchanged."""
    segment = layer.segment
    assert isinstance(segment, SegmentFile)
    places = [row[PLACE] for overlay in layer.fragments.values() for row in overlay.rows.values() if row[SIZE]]
    segment.check(places, pace.give_way)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for fragment, overlay in layer.fragments.items():
            _FragmentCheckpoint(connection, segment, fragment, overlay, pace).write()
        write_journal_row(connection, segment.number)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def is_large(layer: Layer) -> bool:
    """Whether there is so much to write that it keeps a disk busy."""
    overlays = layer.fragments.values()
    sizes = (row[SIZE] for overlay in overlays for row in overlay.rows.values() if row[PLACE] > 0)
    return any(size > LARGE_BYTES for size in accumulate(sizes))


def give_back_space(connection: sqlite3.Connection, pace: Pace, *, is_short: bool) -> None:
    """Shorten the file while a good part of it is free, or any if space is short. Each step is a transaction of its own."""
    has_shrunk = False
    while not pace.is_hurried() and _has_much_space(connection, is_short=is_short):
        # As a script: there is a row for each page, and `execute` in Python 3.11 stops at the first row of a statement without columns.
        connection.executescript(f"PRAGMA incremental_vacuum({PAGES_PER_STEP})")
        has_shrunk = True
        if is_short:
            _shorten_file(connection)  # after each step, so that the next one finds room in the log
        pace.give_way()
    if has_shrunk:
        _shorten_file(connection)


def _shorten_file(connection: sqlite3.Connection) -> None:
    """The file itself gets shorter when the log is copied into it."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def empty_log(connection: sqlite3.Connection) -> None:
    """SQLite keeps the space that the largest transaction took, also one that was rolled back."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _has_much_space(connection: sqlite3.Connection, *, is_short: bool) -> bool:
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (can_shrink,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    return bool(can_shrink) and free > FREE_PAGES_KEPT and (is_short or free * FREE_PART_KEPT > pages)


@dataclass(slots=True)
class FragmentSums:
    """What the rows of a fragment add up to: columns of the table `fragments`, in their order."""

    active_count: int = 0
    deferred_count: int = 0
    scheduled_count: int = 0
    size_bytes: int = 0
    message_sums: int = 0
    state_sums: int = 0
    duplicate_sums: int = 0

    def count_messages(self, state: int, count: int, size: int, checksum: int, sign: int) -> None:
        """So many messages with this state; their sizes and checksums together."""
        if state == MessageState.ACTIVE:
            self.active_count += sign * count
        elif state == MessageState.DEFERRED:
            self.deferred_count += sign * count
        else:
            self.scheduled_count += sign * count
        self.size_bytes += sign * size
        self.message_sums += sign * checksum


class _FragmentCheckpoint:
    def __init__(
        self,
        connection: sqlite3.Connection,
        segment: SegmentFile,
        fragment: FragmentKey,
        overlay: FragmentOverlay,
        pace: Pace,
    ) -> None:
        self._connection = connection
        self._pace = pace
        self._segment = segment
        self._fragment = fragment
        self._overlay = overlay
        found = self._run("fragment_row", fragment).fetchone()
        if found is not None and values_sum(*found[:-1]) != found[-1]:
            raise StoreDamaged(f"the tables are damaged: the facts of fragment {fragment} are not what was written")
        self._slot: int = found[0] if found else NO_SLOT
        self._sums = FragmentSums(*found[3:-1]) if found else FragmentSums()

    def write(self) -> None:
        if self._overlay.hides_below and self._slot != NO_SLOT:
            self._clear_slot()
        if self._overlay.last_number is None:
            self._run("delete_fragment", self._fragment)
            return
        if self._slot == NO_SLOT:
            (self._slot,) = self._run("lowest_free_slot").fetchone()
        self._write_rows()
        self._write_session_states()
        self._write_duplicates()
        facts = (self._slot, self._fragment, self._overlay.last_number, *astuple(self._sums))
        self._run("put_fragment", *facts, values_sum(*facts))

    def _clear_slot(self) -> None:
        ids = (row_id(self._slot, 0), row_id(self._slot, COUNTER_MASK))
        self._run("delete_slot_contents", *ids)
        self._run("delete_slot_messages", *ids)
        self._run("delete_slot_session_states", self._slot)
        self._run("delete_slot_duplicates", self._slot)
        self._sums = FragmentSums()

    def _write_rows(self) -> None:
        restated = self._restate_runs()
        rows, removed = self._overlay.rows, self._overlay.removed - restated
        if restated:
            rows = {number: row for number, row in rows.items() if number not in restated}
        # Rows that are here under another number, or altered, have their content below, under the old number.
        sources = {-row[PLACE] for row in rows.values() if row[PLACE] < 0}
        gone = self._remove_runs(sorted(removed - rows.keys() - sources))
        content_sums = self._remove_each([*gone, *sorted(removed & (rows.keys() | sources))])
        copied = [(number, row) for number, row in rows.items() if row[PLACE] < 0 and -row[PLACE] != number]
        for some in _chunks(copied, ROWS_PER_STATEMENT):
            ids = [(row_id(self._slot, number), row_id(self._slot, -row[PLACE])) for number, row in some]
            self._run("copy_contents", json.dumps(ids))
            content_sums.update({new: content_sums[old] for new, old in ids if old in content_sums})
        for place, piece, cuts in self._pieces():
            parts = memoryview(self._segment.read(place, piece))
            contents = [(identity, parts[start : start + size]) for identity, start, size in cuts]
            self._put("put_contents", len(contents), list(chain.from_iterable(contents)))
            content_sums.update([(identity, content_sum(content)) for identity, content in contents])
        for some in _chunks(list(rows.items()), ROWS_PER_STATEMENT):
            self._put_messages(some, content_sums)
        unused = [row_id(self._slot, number) for number in [*gone, *sorted(removed & sources - rows.keys())]]
        for some_ids in _chunks(unused, ROWS_PER_STATEMENT):
            self._run("delete_contents", json.dumps(some_ids))

    def _restate_runs(self) -> set[int]:
        """Give rows the state and the due time that they got together: as ranges, where they had the same before. The numbers of
        these."""
        done: set[int] = set()
        for run in self._overlay.restated_runs(RUN_MIN, ROWS_PER_RANGE):
            first, last = row_id(self._slot, run[0]), row_id(self._slot, run[-1])
            count, size, checksum, state, state_max, due_at, due_max, named = self._run(
                "states_of_range", first, last
            ).fetchone()
            # Damage may have left anything here, also what has no order.
            if count != len(run) or state != state_max or due_at != due_max or named:
                continue
            new_state, new_due_at, *_ = self._overlay.rows[run[0]]
            difference = restated_difference(state, due_at, new_state, new_due_at)
            self._sums.count_messages(state, count, size, checksum, -1)
            self._run("restate_range", new_state, new_due_at, difference, first, last)
            for each_state, each_count, each_size, each_checksum in self._run("sums_of_range", first, last).fetchall():
                self._sums.count_messages(each_state, each_count, each_size, each_checksum, 1)
            done.update(run)
        return done

    def _remove_runs(self, numbers: Sequence[int]) -> list[int]:
        """Delete rows that nobody needs any more, with their contents: as ranges where they follow each other, as they do
        when receivers take them in order. The numbers that are left."""
        left: list[int] = []
        for run in _runs(numbers):
            if len(run) < RUN_MIN:
                left += run
                continue
            ids = (row_id(self._slot, run[0]), row_id(self._slot, run[-1]))
            for state, count, size, checksum in self._run("sums_of_range", *ids).fetchall():
                self._sums.count_messages(state, count, size, checksum, -1)
            self._run("delete_slot_messages", *ids)
            self._run("delete_slot_contents", *ids)
        return left

    def _remove_each(self, numbers: Sequence[int]) -> dict[int, int]:
        """Delete rows and leave their contents. The checksums of these, by id."""
        content_sums: dict[int, int] = {}
        for some_ids in _chunks([row_id(self._slot, number) for number in numbers], ROWS_PER_STATEMENT):
            for identity, state, size, content, checksum in self._run(
                "delete_messages", json.dumps(some_ids)
            ).fetchall():
                content_sums[identity] = content
                self._sums.count_messages(state, 1, size, checksum, -1)
        return content_sums

    def _put_messages(self, rows: Sequence[tuple[int, Row]], content_sums: Mapping[int, int]) -> None:
        slot, sums = self._slot, self._sums
        values: list[object] = []
        for number, row in rows:
            identity, name = row_id(slot, number), row[SESSION_ID]
            session_id, key = stored_text(name), None if name is None else stored_text(session_key(name))
            content = content_sums.get(identity, NO_SUM)
            facts = row[:SESSION_ID]
            checksum = row_sum(identity, *facts, content, session_id)
            sums.count_messages(row[STATE], 1, row[SIZE], checksum, 1)
            values += (slot, identity, *facts, session_id, key, content, checksum)
        self._put("put_messages", len(rows), values)

    def _pieces(self) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
        """Pieces of the segment as (place, size, cuts); a cut is one content in the piece as (id, start, size)."""
        here = sorted((row[PLACE], row[SIZE], number) for number, row in self._overlay.rows.items() if row[PLACE] > 0)
        start = end = 0
        cuts: list[tuple[int, int, int]] = []
        for place, size, number in here:
            if cuts and (place + size - start > BYTES_PER_STATEMENT or len(cuts) == ROWS_PER_STATEMENT):
                yield start, end - start, cuts
                cuts = []
            if not cuts:
                start = place
            cuts.append((row_id(self._slot, number), place - start, size))
            end = place + size
        if cuts:
            yield start, end - start, cuts

    def _write_session_states(self) -> None:
        for key, change in self._overlay.session_states.items():
            stored = stored_text(key)
            for (checksum,) in self._run("delete_session_state", self._slot, stored).fetchall():
                self._sums.state_sums -= checksum
            if change.state is not None:
                session_id, content = stored_text(change.session_id), content_sum(change.state)
                checksum = values_sum(self._slot, change.updated_at, content, stored, session_id)
                self._sums.state_sums += checksum
                values = (stored, session_id, change.state, change.updated_at, content, checksum)
                self._run("put_session_state", self._slot, *values)

    def _write_duplicates(self) -> None:
        slot, sums = self._slot, self._sums
        sums.duplicate_sums -= _sum_of(self._run("forget_duplicates", slot, self._overlay.forgotten_until))
        changed = [stored_text(key) for key in self._overlay.duplicates]
        for some_keys in _chunks(changed, ROWS_PER_STATEMENT):
            sums.duplicate_sums -= _sum_of(self._run("delete_duplicates", slot, json.dumps(some_keys)))
        seen = [(stored_text(key), until) for key, until in self._overlay.duplicates.items() if until is not None]
        for some in _chunks(seen, ROWS_PER_STATEMENT):
            values = [(key, until, values_sum(slot, until, key)) for key, until in some]
            sums.duplicate_sums += sum([checksum for _, _, checksum in values])
            self._run("put_duplicates", slot, json.dumps(values))

    def _put(self, name: str, row_count: int, values: Sequence[object]) -> None:
        self._connection.execute(_insert(name, row_count), values)
        self._pace.give_way()

    def _run(self, name: str, *parameters: object) -> sqlite3.Cursor:
        self._pace.give_way()
        return self._connection.execute(SQL[name], parameters)


@cache
def _insert(name: str, row_count: int) -> str:
    """The statement for this many rows. Its text ends with the values of one, in brackets."""
    head, _, values = SQL[name].rstrip(";").rpartition("(")
    return head + ", ".join([f"({values}"] * row_count)


def _runs(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Ascending numbers in runs of those that follow each other."""
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1 or end - start == ROWS_PER_RANGE:
            yield numbers[start:end]
            start = end


def _sum_of(deleted: sqlite3.Cursor) -> int:
    return sum([checksum for (checksum,) in deleted.fetchall()])


def _chunks(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    source = iter(items)
    while some := list(islice(source, size)):
        yield some
