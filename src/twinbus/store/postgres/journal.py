"""A journal segment as rows of a table: one row for each commit, several parts for a large one.

A row is inserted only if the epoch is still ours, and the row of the epoch is locked for that long (`epoch` in schema.sql): so
whoever has taken the store over has seen every commit that was ever acknowledged. Which row holds which place is kept in memory.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from twinbus.errors import StoreDamaged, StoreTaken
from twinbus.store.medium import Batch, Body
from twinbus.store.postgres.connection import Connection
from twinbus.store.postgres.statements import JOURNAL_COUNT, journal_statement

PART_BYTES = 4 << 20
FIRST_PLACE = 1


class SegmentOwner(Protocol):
    """`PostgresMedium`, as far as its segments have to know."""

    @property
    def epoch(self) -> int: ...

    def segment_name(self, number: int) -> str: ...

    def retire_segment(self, number: int) -> None: ...


class SegmentRows:
    """See `Segment`. All but `pieces` is called by the store's thread."""

    def __init__(self, medium: SegmentOwner, connection: Connection, number: int, first_sequence: int) -> None:
        self.number = number
        self.end = FIRST_PLACE
        self.next_sequence = first_sequence
        self._medium = medium
        self._connection = connection
        self._append = journal_statement("append", number)
        self._append_name = b"append_%d" % (number % JOURNAL_COUNT)
        self._starts: list[int] = []
        self._rows: list[tuple[int, int]] = []  # (sequence, part) of the row that begins at each of `_starts`

    @property
    def body_place(self) -> int:
        return self.end

    def append(self, bodies: Sequence[Body]) -> None:
        body = b"".join(bodies)
        if len(body) <= PART_BYTES:
            self._insert(0, self.end, body)
        else:
            with self._connection.transaction():
                for part, first in enumerate(range(0, len(body), PART_BYTES)):
                    self._insert(part, self.end + first, body[first : first + PART_BYTES])
        self._connection.require_no_warning()
        self._count(body)

    def _insert(self, part: int, start: int, body: bytes) -> None:
        values = (self.next_sequence, part, self.number, start, body, self._medium.epoch)
        if self._connection.change(self._append_name, self._append, *values) != 1:
            raise fenced(self._medium.segment_name(self.number))

    def _count(self, body: bytes) -> None:
        for part, first in enumerate(range(0, max(len(body), 1), PART_BYTES)):
            self._starts.append(self.end + first)
            self._rows.append((self.next_sequence, part))
        self.end += len(body)
        self.next_sequence += 1

    def batches(self) -> Iterator[Batch]:
        parts: list[bytes] = []
        for sequence, part, start, body in self._found():
            if part == 0 and parts:
                yield self._batch(parts)
                parts = []
            if (sequence, part, start) != (self.next_sequence, len(parts), self.end + sum(map(len, parts))):
                raise StoreDamaged(
                    f"{self._medium.segment_name(self.number)}: commit {sequence}, part {part} is not the one that follows. "
                    "Restore the database."
                )
            parts.append(body)
        if parts:
            yield self._batch(parts)

    def _batch(self, parts: list[bytes]) -> Batch:
        body, place = b"".join(parts), self.end
        self._count(body)
        return Batch(place, body)

    def _found(self) -> Iterator[tuple[int, int, int, bytes]]:
        """One by one: together, rows of several megabytes would take a lot of memory."""
        cursor = self._connection.raw.cursor(binary=True)
        return cursor.stream(journal_statement("batches", self.number), (self.number,))

    def renew_tail(self) -> None:
        """Nothing to do: what a transaction sees was committed, and the takeover that came before waited for the standby."""

    def contents(self, places: Sequence[tuple[int, int]]) -> Iterable[bytes]:
        """One query for all of them: of each row what spans everything that is wanted of it."""
        spans: dict[int, tuple[int, int]] = {}
        for place, size in places:
            for row in self._rows_of(place, size):
                first, last = max(place, self._starts[row]), min(place + size, self._end_of(row))
                known_first, known_last = spans.get(row, (first, last))
                spans[row] = (min(first, known_first), max(last, known_last))
        found = self._read(spans)
        for place, size in places:
            content = b"".join(
                found[row][max(place - spans[row][0], 0) : place + size - spans[row][0]]
                for row in self._rows_of(place, size)
            )
            if len(content) != size:
                raise StoreDamaged(
                    f"{self._medium.segment_name(self.number)}: {len(content)} bytes of {size} at place {place}. "
                    "Restore the database."
                )
            yield content

    def _read(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, bytes]:
        """The bytes of rows from one place to another."""
        if not spans:
            return {}
        wanted = [
            (row, *self._rows[row], first - self._starts[row] + 1, last - first) for row, (first, last) in spans.items()
        ]
        columns = [list(column) for column in zip(*wanted, strict=True)]
        return dict(self._connection.cursor.execute(journal_statement("pieces", self.number), columns).fetchall())

    def pieces(self, place: int, size: int) -> list[tuple[int, int, int, int]]:
        """Where a content is, as (sequence, part, first byte counted from 1, size) of each row that has some of it."""
        return [
            (
                *self._rows[row],
                max(place, self._starts[row]) - self._starts[row] + 1,
                min(place + size, self._end_of(row)) - max(place, self._starts[row]),
            )
            for row in self._rows_of(place, size)
        ]

    def _rows_of(self, place: int, size: int) -> range:
        first = bisect_right(self._starts, place) - 1
        last = first
        while self._end_of(last) < place + size:
            last += 1
        return range(first, last + 1)

    def _end_of(self, row: int) -> int:
        return self._starts[row + 1] if row + 1 < len(self._starts) else self.end

    def retire(self) -> None:
        self._medium.retire_segment(self.number)

    def close(self) -> None:
        """The connection is the medium's."""


def fenced(where: str) -> StoreTaken:
    return StoreTaken(f"{where}: another process has taken the store over. It serves what is kept here now.")
