"""A checkpoint: one sealed layer in, its sum written to the tables in one transaction.

Messages that were enqueued and removed within the layer's segment never get here. Each statement writes a hundred rows:
with one row each, this thread and the store's would pass the interpreter lock back and forth; with many more, commits
would wait while the values of a statement are assembled.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

from twinbus.model.session_key import session_key
from twinbus.store.changes import FragmentKey
from twinbus.store.located_changes import PLACE, SESSION_ID, SIZE, Row
from twinbus.store.overlay import FragmentOverlay, Layer
from twinbus.store.tables import COUNTER_MASK, SQL, row_id, stored_text

ROWS_PER_STATEMENT = 100
BYTES_PER_STATEMENT = 1 << 20
NO_SLOT = 0

Item = TypeVar("Item")


def write_checkpoint(connection: sqlite3.Connection, layer: Layer) -> None:
    """Afterwards, the tables hold the layer and the number of its segment. If this raises, they are unchanged."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for fragment, overlay in layer.fragments.items():
            _FragmentCheckpoint(connection, layer, fragment, overlay).write()
        connection.execute(SQL["set_position"], (layer.segment.number,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class _FragmentCheckpoint:
    def __init__(
        self, connection: sqlite3.Connection, layer: Layer, fragment: FragmentKey, overlay: FragmentOverlay
    ) -> None:
        self._connection = connection
        self._segment = layer.segment
        self._fragment = fragment
        self._overlay = overlay
        found = self._run("slot_of", fragment).fetchone()
        self._slot: int = found[0] if found else NO_SLOT

    def write(self) -> None:
        if self._overlay.hides_below and self._slot != NO_SLOT:
            self._clear_slot()
        if self._overlay.last_number is None:
            self._run("delete_fragment", self._fragment)
            return
        if self._slot == NO_SLOT:
            (self._slot,) = self._run("lowest_free_slot").fetchone()
        self._run("put_fragment", self._slot, self._fragment, self._overlay.last_number)
        self._write_rows()
        self._write_session_states()
        self._write_duplicates()

    def _clear_slot(self) -> None:
        ids = (row_id(self._slot, 0), row_id(self._slot, COUNTER_MASK))
        self._run("delete_slot_contents", *ids)
        self._run("delete_slot_messages", *ids)
        self._run("delete_slot_session_states", self._slot)
        self._run("delete_slot_duplicates", self._slot)

    def _write_rows(self) -> None:
        rows = self._overlay.rows
        for some in _chunks(list(rows.items()), ROWS_PER_STATEMENT):
            self._run("put_messages", self._slot, json.dumps([self._values(number, row) for number, row in some]))
        copied = [(number, row) for number, row in rows.items() if row[PLACE] < 0 and -row[PLACE] != number]
        for some in _chunks(copied, ROWS_PER_STATEMENT):
            ids = [(row_id(self._slot, number), row_id(self._slot, -row[PLACE])) for number, row in some]
            self._run("copy_contents", json.dumps(ids))
        for place, piece, cuts in self._pieces():
            content = self._segment.read(place, piece)
            self._run("put_contents", json.dumps(cuts), content)
        gone = [row_id(self._slot, number) for number in sorted(self._overlay.removed - rows.keys())]
        for some_ids in _chunks(gone, ROWS_PER_STATEMENT):
            self._run("delete_messages", json.dumps(some_ids))
            self._run("delete_contents", json.dumps(some_ids))

    def _values(self, number: int, row: Row) -> tuple[object, ...]:
        session_id = row[SESSION_ID]
        key = None if session_id is None else stored_text(session_key(session_id))
        return (row_id(self._slot, number), *row[:SESSION_ID], stored_text(session_id), key)

    def _pieces(self) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
        """Pieces of the segment as (place, size, cuts); a cut is one content in the piece as (id, start counted from 1, size)."""
        here = sorted((row[PLACE], row[SIZE], number) for number, row in self._overlay.rows.items() if row[PLACE] > 0)
        start = end = 0
        cuts: list[tuple[int, int, int]] = []
        for place, size, number in here:
            if cuts and (place + size - start > BYTES_PER_STATEMENT or len(cuts) == ROWS_PER_STATEMENT):
                yield start, end - start, cuts
                cuts = []
            if not cuts:
                start = place
            cuts.append((row_id(self._slot, number), place - start + 1, size))
            end = place + size
        if cuts:
            yield start, end - start, cuts

    def _write_session_states(self) -> None:
        for key, change in self._overlay.session_states.items():
            if change.state is None:
                self._run("delete_session_state", self._slot, stored_text(key))
            else:
                values = (stored_text(key), stored_text(change.session_id), change.state, change.updated_at)
                self._run("put_session_state", self._slot, *values)

    def _write_duplicates(self) -> None:
        self._run("forget_duplicates", self._slot, self._overlay.forgotten_until)
        kept = [(stored_text(key), until) for key, until in self._overlay.duplicates.items() if until is not None]
        for some in _chunks(kept, ROWS_PER_STATEMENT):
            self._run("put_duplicates", self._slot, json.dumps(some))
        gone = [stored_text(key) for key, until in self._overlay.duplicates.items() if until is None]
        for some_keys in _chunks(gone, ROWS_PER_STATEMENT):
            self._run("delete_duplicates", self._slot, json.dumps(some_keys))

    def _run(self, name: str, *parameters: object) -> sqlite3.Cursor:
        return self._connection.execute(SQL[name], parameters)


def _chunks(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    source = iter(items)
    while some := list(islice(source, size)):
        yield some
