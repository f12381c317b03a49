"""A checkpoint in PostgreSQL: one sealed layer in, its sum written to the tables in one transaction.

The server cuts contents out of the journal itself, so that they travel once. Rows that cannot be in the tables yet, as most, are
added without looking for them. The transaction holds the lock of the epoch, as a commit does: a successor waits for it or ends it.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from twinbus.store.changes import FragmentKey
from twinbus.store.layers.located_changes import PLACE, SESSION_ID, SIZE, Row
from twinbus.store.layers.overlay import FragmentOverlay, Layer
from twinbus.store.postgres.binary_rows import COPY_END, COPY_HEADER, Integers, message_rows, session_texts
from twinbus.store.postgres.connection import Connection
from twinbus.store.postgres.journal import SegmentRows, fenced
from twinbus.store.postgres.statements import SQL, journal_statement
from twinbus.store.row_ids import COUNTER_MASK, row_id

ROWS_PER_STATEMENT = 1_000
RUN_MIN = 8

Item = TypeVar("Item")


def write_checkpoint(connection: Connection, layer: Layer, epoch: int) -> None:
    segment = layer.segment
    assert isinstance(segment, SegmentRows)
    with connection.transaction():
        if connection.cursor.execute(SQL["require_epoch"], (epoch,)).fetchone() is None:
            raise fenced(f"segment {segment.number}")
        for fragment, overlay in layer.fragments.items():
            _FragmentCheckpoint(connection, segment, fragment, overlay).write()
        connection.cursor.execute(SQL["put_position"], (segment.number,))
    connection.require_no_warning()


class _FragmentCheckpoint:
    def __init__(
        self, connection: Connection, segment: SegmentRows, fragment: FragmentKey, overlay: FragmentOverlay
    ) -> None:
        self._connection = connection
        self._segment = segment
        self._fragment = fragment
        self._overlay = overlay
        found = self._run("slot_of", fragment).fetchone()
        self._slot: int | None = found[0] if found else None

    def write(self) -> None:
        overlay = self._overlay
        if overlay.hides_below and self._slot is not None:
            self._clear(self._slot)
        if overlay.last_number is None:
            self._run("delete_fragment", self._fragment)
            return
        if self._slot is None:
            free = self._run("lowest_free_slot").fetchone()
            assert free is not None
            (self._slot,) = free
        self._write_rows(self._slot)
        self._write_session_states(self._slot)
        self._write_duplicates(self._slot)
        self._run("put_fragment", self._slot, self._fragment, overlay.last_number)

    def _clear(self, slot: int) -> None:
        ids = (row_id(slot, 0), row_id(slot, COUNTER_MASK))
        self._run("delete_slot_contents", *ids)
        self._run("delete_slot_messages", *ids)
        self._run("delete_slot_session_states", slot)
        self._run("delete_slot_duplicates", slot)

    def _write_rows(self, slot: int) -> None:
        rows, below = self._overlay.rows, self._overlay.removed
        copied = [
            (row_id(slot, number), row_id(slot, -row[PLACE]))
            for number, row in rows.items()
            if row[PLACE] < 0 and -row[PLACE] != number
        ]
        for some in _chunks(copied):
            self._run("copy_contents", *_columns(some))
        added = [item for item in rows.items() if item[0] not in below]
        restated = self._restate_runs(slot)
        altered = [item for item in rows.items() if item[0] in below and item[0] not in restated]
        self._write_contents("add_contents", slot, added)
        self._write_contents("put_contents", slot, altered)
        self._add_messages(slot, added)
        for some_rows in _chunks([_values(slot, number, row) for number, row in altered]):
            self._run("put_messages", slot, *_columns(some_rows))
        gone = [row_id(slot, number) for number in sorted(below - rows.keys())]
        for some_ids in _chunks(gone):
            self._run("delete_messages", some_ids)
            self._run("delete_contents", some_ids)

    def _restate_runs(self, slot: int) -> set[int]:
        """Give rows the state and the due time that they got together, a run of them at a time. The numbers of these: short runs
        would each take a statement, while a thousand rows of them take one."""
        done: set[int] = set()
        for run in self._overlay.restated_runs(RUN_MIN, ROWS_PER_STATEMENT):
            state, due_at, *_ = self._overlay.rows[run[0]]
            self._run("restate_range", state, due_at, row_id(slot, run[0]), row_id(slot, run[-1]))
            done.update(run)
        return done

    def _add_messages(self, slot: int, added: Sequence[tuple[int, Row]]) -> None:
        if not added:
            return
        with self._connection.cursor.copy(SQL["copy_messages"]) as copy:
            copy.write(COPY_HEADER)
            for some in _chunks(added):
                copy.write(message_rows(slot, some))
            copy.write(COPY_END)

    def _write_contents(self, name: str, slot: int, rows: Sequence[tuple[int, Row]]) -> None:
        statement = journal_statement(name, self._segment.number)
        whole: list[tuple[int, ...]] = []
        for number, row in rows:
            if row[PLACE] < 0:
                continue
            pieces = self._segment.pieces(row[PLACE], row[SIZE])
            if len(pieces) == 1:
                whole.append((row_id(slot, number), *pieces[0]))
            else:
                # In several parts of a large commit: they are put together here.
                self._run("put_content", row_id(slot, number), self._fetched(pieces))
        if whole:
            # The server stores some of them while the next are packed.
            with self._connection.raw.pipeline():
                for some in _chunks(whole):
                    columns = [Integers(column) for column in zip(*some, strict=True)]
                    self._connection.cursor.execute(statement, columns, prepare=True)

    def _fetched(self, pieces: Sequence[tuple[int, int, int, int]]) -> bytes:
        wanted = [(place, *piece) for place, piece in enumerate(pieces)]
        statement = journal_statement("pieces", self._segment.number)
        return b"".join(
            content for _, content in sorted(self._connection.cursor.execute(statement, _columns(wanted)).fetchall())
        )

    def _write_session_states(self, slot: int) -> None:
        for key, change in self._overlay.session_states.items():
            if change.state is None:
                self._run("delete_session_state", slot, json.dumps(key))
            else:
                values = (json.dumps(key), json.dumps(change.session_id), change.state, change.updated_at)
                self._run("put_session_state", slot, *values)

    def _write_duplicates(self, slot: int) -> None:
        overlay = self._overlay
        self._run("forget_duplicates", slot, overlay.forgotten_until)
        forgotten = [json.dumps(key) for key, until in overlay.duplicates.items() if until is None]
        for some_keys in _chunks(forgotten):
            self._run("delete_duplicates", slot, some_keys)
        seen = [(json.dumps(key), until) for key, until in overlay.duplicates.items() if until is not None]
        for some in _chunks(seen):
            self._run("put_duplicates", slot, *_columns(some))

    def _run(self, name: str, *parameters: object) -> Any:
        return self._connection.cursor.execute(SQL[name], parameters, prepare=True)


def _values(slot: int, number: int, row: Row) -> tuple[object, ...]:
    return (row_id(slot, number), *row[:SESSION_ID], *session_texts(row))


def _columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    source = iter(items)
    while some := list(islice(source, ROWS_PER_STATEMENT)):
        yield some
