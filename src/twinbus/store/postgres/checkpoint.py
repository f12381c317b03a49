"""A checkpoint in PostgreSQL: one sealed layer in, its sum written to the tables in one transaction.

The server cuts contents out of the journal itself, so that they travel once. The transaction holds the lock of the epoch, as a
commit does: a successor waits for it or ends it.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from twinbus.model.session_key import session_key
from twinbus.store.changes import FragmentKey
from twinbus.store.layers.located_changes import PLACE, SESSION_ID, SIZE, Row
from twinbus.store.layers.overlay import FragmentOverlay, Layer
from twinbus.store.postgres.connection import Connection
from twinbus.store.postgres.journal import SegmentRows, fenced
from twinbus.store.postgres.statements import SQL, journal_statement
from twinbus.store.row_ids import COUNTER_MASK, row_id

ROWS_PER_STATEMENT = 1_000

Item = TypeVar("Item")


def write_checkpoint(connection: Connection, layer: Layer, epoch: int) -> None:
    segment = layer.segment
    assert isinstance(segment, SegmentRows)
    with connection.raw.transaction():
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
        rows = self._overlay.rows
        copied = [
            (row_id(slot, number), row_id(slot, -row[PLACE]))
            for number, row in rows.items()
            if row[PLACE] < 0 and -row[PLACE] != number
        ]
        for some in _chunks(copied):
            self._run("copy_contents", *_columns(some))
        self._write_contents(slot, [(number, row) for number, row in rows.items() if row[PLACE] > 0])
        for some_rows in _chunks([_values(slot, number, row) for number, row in rows.items()]):
            self._run("put_messages", slot, *_columns(some_rows))
        gone = [row_id(slot, number) for number in sorted(self._overlay.removed - rows.keys())]
        for some_ids in _chunks(gone):
            self._run("delete_messages", some_ids)
            self._run("delete_contents", some_ids)

    def _write_contents(self, slot: int, here: Sequence[tuple[int, Row]]) -> None:
        statement = journal_statement("put_contents", self._segment.number)
        whole: list[tuple[int, ...]] = []
        for number, row in here:
            pieces = self._segment.pieces(row[PLACE], row[SIZE])
            if len(pieces) == 1:
                whole.append((row_id(slot, number), *pieces[0]))
            else:
                # In several parts of a large commit: they are put together here.
                self._run("put_content", row_id(slot, number), self._fetched(pieces))
        for some in _chunks(whole):
            self._connection.cursor.execute(statement, _columns(some))

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
    session_id = row[SESSION_ID]
    texts = (None, None) if session_id is None else (json.dumps(session_id), json.dumps(session_key(session_id)))
    return (row_id(slot, number), *row[:SESSION_ID], *texts)


def _columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _chunks(items: Sequence[Item]) -> Iterator[list[Item]]:
    source = iter(items)
    while some := list(islice(source, ROWS_PER_STATEMENT)):
        yield some
