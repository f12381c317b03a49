"""The tables of a store in PostgreSQL, read one snapshot at a time: a transaction that sees one moment."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from twinbus.clock import Millis
from twinbus.errors import StoreDamaged
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.changes import FRAGMENT_INDEX_MAX, FragmentKey
from twinbus.store.checksums import NO_SUM
from twinbus.store.damage import CheckedPage, Damage, RowsDamaged
from twinbus.store.layers.located_changes import Row
from twinbus.store.layers.overlay import Layer
from twinbus.store.layers.pace import Pace
from twinbus.store.postgres.checkpoint import write_checkpoint
from twinbus.store.postgres.connection import Connection
from twinbus.store.postgres.statements import SQL
from twinbus.store.row_ids import COUNTER_MASK, row_id

NO_PLACE = 0
PAGE_ROWS = 1_000


class PostgresTables:
    """See `Tables`. `reader` is the connection of the store's thread, `writer` that of checkpoints, which ends with this."""

    def __init__(
        self, reader: Connection, writer: Connection, connect: Callable[[], Connection], epoch: Callable[[], int]
    ) -> None:
        """`connect`: one more."""
        self._reader = reader
        self._writer = writer
        self._connect = connect
        self._epoch = epoch

    def snapshot(self, fragment: FragmentKey = 0) -> AbstractContextManager["PostgresSnapshot"]:
        return _snapshot(self._reader, fragment)

    @contextmanager
    def frozen(self, fragment: FragmentKey) -> Iterator["PostgresSnapshot"]:
        connection = self._connect()
        try:
            # Nothing is asked of it while others are.
            connection.raw.execute(SQL["wait_in_transaction"])
            yield _begun(connection, fragment)
        finally:
            connection.close()  # which ends the transaction, also where the server is gone

    def write_checkpoint(self, layer: Layer, pace: Pace) -> None:
        write_checkpoint(self._writer, layer, self._epoch())

    def tidy(self, pace: Pace, *, is_short: bool) -> None:
        """The server's own vacuum does it."""

    def damage(self) -> list[Damage]:
        """The server checks its pages and refuses to read what is damaged; nothing is set aside here."""
        return []

    def check(self, after: int) -> CheckedPage:
        return CheckedPage(0, None)

    def set_aside(self, damaged: RowsDamaged) -> str:
        raise StoreDamaged(f"{damaged}. Restore the database.")

    def close(self) -> None:
        self._writer.close()


@contextmanager
def _snapshot(connection: Connection, fragment: FragmentKey) -> Iterator["PostgresSnapshot"]:
    try:
        yield _begun(connection, fragment)
    finally:
        # Also if it could not be begun: within a transaction that failed the lease could not be given back.
        if not connection.raw.broken:
            connection.cursor.execute(b"COMMIT")


def _begun(connection: Connection, fragment: FragmentKey) -> "PostgresSnapshot":
    cursor = connection.cursor
    # In one round trip: the first query fixes the moment that the transaction sees.
    with connection.raw.pipeline():
        cursor.execute(SQL["begin_snapshot"])
        cursor.execute(SQL["position_and_slot"], (fragment,), prepare=True)
    cursor.nextset()
    found = cursor.fetchone()
    if found is None:
        raise connection.lost_row()
    return PostgresSnapshot(connection, found[0], fragment, found[1])


class PostgresSnapshot:
    """See `Snapshot`. A row of the tables has no place."""

    def __init__(self, connection: Connection, position: int, fragment: FragmentKey, slot: int | None) -> None:
        self.position = position
        self.has_fragment = slot is not None
        self.slot = slot or 0
        self._connection = connection
        self._base = (fragment >> 2 & FRAGMENT_INDEX_MAX) << SEQUENCE_BITS

    def of(self, fragment: FragmentKey) -> "PostgresSnapshot":
        found = self._all("slot_of", fragment)
        return PostgresSnapshot(self._connection, self.position, fragment, found[0][0] if found else None)

    def id(self, number: int) -> int:
        return row_id(self.slot, number)

    def number(self, identity: int) -> int:
        return self._base + (identity & COUNTER_MASK)

    def rows_after(
        self, after: int, last: int | None, count_max: int, states: Collection[MessageState], key: str | None
    ) -> list[tuple[int, Row]]:
        counter, end = (
            min(max(number - self._base, 0), COUNTER_MASK)
            for number in (after, self._base + COUNTER_MASK if last is None else last)
        )
        bounds = (self.id(counter), self.id(end), [int(state) for state in states], count_max)
        if key is None:
            found = self._all("rows_after", *bounds)
        else:
            found = self._all("session_rows_after", self.slot, json.dumps(key), *bounds)
        return [(self.number(values[0]), _row(values)) for values in found]

    def row(self, number: int) -> Row | None:
        return self.rows([number]).get(number)

    def rows(self, numbers: Sequence[int]) -> dict[int, Row]:
        identities = [self.id(number) for number in numbers if 0 < number - self._base <= COUNTER_MASK]
        return {self.number(values[0]): _row(values) for values in self._all("rows_by_id", identities)}

    def sums(self, numbers: Sequence[int]) -> Mapping[int, int]:
        return dict.fromkeys(numbers, NO_SUM)

    def contents(self, sums: Mapping[int, int]) -> dict[int, bytes]:
        found = self._all("contents_by_id", [self.id(number) for number in sums])
        contents = {self.number(identity): content for identity, content in found}
        if len(contents) != len(sums):
            missing = min(sums.keys() - contents.keys())
            raise StoreDamaged(f"the content of message {missing} is missing. Restore the database.")
        return contents

    def scheduled_after(self, at: Millis, number: int, count_max: int) -> list[tuple[Millis, int]]:
        return self._times("scheduled_after", at, number, count_max)

    def mortal_after(self, at: Millis, number: int, count_max: int) -> list[tuple[Millis, int]]:
        return self._times("mortal_after", at, number, count_max)

    def counts_without(self, hidden: Sequence[int]) -> Iterable[tuple[int, int, int, int]]:
        counts: Counter[tuple[int, int]] = Counter()
        sizes: Counter[tuple[int, int]] = Counter()
        for found, times in ((self._all("counts"), 1), (self._all("counts_of", list(hidden)) if hidden else [], -1)):
            for slot, state, count, size in found:
                counts[slot, state] += times * count
                sizes[slot, state] += times * size
        return [(slot, state, counts[slot, state], sizes[slot, state]) for slot, state in counts]

    def last_numbers(self) -> dict[FragmentKey, int | None]:
        return dict(self._all("last_numbers"))

    def session_pages(self, hidden: Sequence[int]) -> Iterator[list[tuple[str, int, int]]]:
        for found in self._pages("sessions_without", [self.id(number) for number in hidden], self.slot):
            yield [(json.loads(session_id), count, self.number(first)) for session_id, count, first in found]

    def state_pages(self) -> Iterator[list[tuple[str, Millis]]]:
        for found in self._pages("session_states", self.slot):
            yield [(json.loads(session_id), at) for session_id, at in found]

    def session_state(self, key: str) -> bytes | None:
        found = self._all("session_state", self.slot, json.dumps(key))
        return found[0][0] if found else None

    def duplicates(self) -> dict[str, Millis]:
        return {json.loads(key): until for key, until in self._all("duplicates", self.slot)}

    def _times(self, name: str, at: Millis, number: int, count_max: int) -> list[tuple[Millis, int]]:
        identity = self.id(number) if number else 0
        parameters = {"slot": self.slot, "at": at, "id": identity, "count_max": count_max}
        cursor = self._connection.cursor.execute(SQL[name], parameters, prepare=True)
        return [(when, self.number(found)) for when, found in cursor.fetchall()]

    def _pages(self, name: str, *parameters: object) -> Iterator[list[tuple[Any, ...]]]:
        """From the server piece by piece."""
        with self._connection.raw.cursor("pages", binary=True) as cursor:
            cursor.execute(SQL[name], parameters)
            while found := cursor.fetchmany(PAGE_ROWS):
                yield found

    def _all(self, name: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self._connection.cursor.execute(SQL[name], parameters, prepare=True).fetchall()


def _row(values: tuple[Any, ...]) -> Row:
    session_id = values[8]
    return (*values[1:8], None if session_id is None else json.loads(session_id), NO_PLACE)
