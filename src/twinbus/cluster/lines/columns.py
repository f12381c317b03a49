"""Messages by the hundred on a line: one column after the other, so that a burst costs a few calls and not a few for each message.

    integers                    array of i64, little-endian
    bytes, texts                array of i32 with the sizes (-1: none), then all of them without a gap
    a column that is the same   one value, or nothing at all where it says nothing: a bit of the frame tells
    for all

What comes in is checked as far as it is read: a column that is too short breaks the line.
"""

import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, pairwise, repeat
from operator import attrgetter
from struct import Struct, error
from typing import Any

from twinbus.broker.consumer import TakenMessage
from twinbus.clock import NEVER
from twinbus.cluster.lines.frames import LineBroken
from twinbus.model.message import Message
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage

assert array("i").itemsize == 4
assert array("q").itemsize == 8

_COUNT = Struct("<I")
_HEAD = Struct("<IH")
TOKEN_SIZE = 16

_STATES = {state.value: state for state in MessageState}
_taken_message = attrgetter("message")


class ColumnWriter:
    def __init__(self, head: bytes = b"") -> None:
        self._parts = [head] if head else []

    def raw(self, data: bytes) -> None:
        self._parts.append(data)

    def integers(self, values: Sequence[int]) -> None:
        self._parts.append(_array("q", values))

    def small(self, values: Sequence[int]) -> None:
        self._parts.append(_array("i", values))

    def blobs(self, values: Sequence[bytes]) -> None:
        self._parts += (_array("i", [len(value) for value in values]), *values)

    def texts(self, values: Sequence[str | None]) -> None:
        with suppress(TypeError):  # one of them is None
            joined = "".join(values)  # type: ignore[arg-type]
            if joined.isascii():  # as most are: all of them in one piece
                self._parts += (_array("i", [*map(len, values)]), joined.encode())  # type: ignore[arg-type]
                return
        data = [None if value is None else value.encode("utf-8", "surrogatepass") for value in values]
        self._parts.append(_array("i", [-1 if value is None else len(value) for value in data]))
        self._parts += [value for value in data if value is not None]

    def blob(self, data: bytes) -> None:
        self._parts += (_COUNT.pack(len(data)), data)

    def done(self) -> bytes:
        return b"".join(self._parts)


class ColumnReader:
    """Raises LineBroken where a column is not what it should be."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise LineBroken("A frame ends before its columns do.")
        found = self._data[self._at : end]
        self._at = end
        return found

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def integers(self, count: int) -> list[int]:
        return _values("q", self.take(8 * count))

    def small(self, count: int) -> list[int]:
        return _values("i", self.take(4 * count))

    def blobs(self, count: int) -> list[bytes]:
        sizes = self.small(count)
        if sizes and min(sizes) < 0:
            raise LineBroken("A column says that something has less than no bytes.")
        data, start = self._data, self._at
        self.take(sum(sizes))
        return [data[first:last] for first, last in pairwise(accumulate(sizes, initial=start))]

    def texts(self, count: int) -> list[str | None]:
        sizes = self.small(count)
        try:
            if sizes and min(sizes) >= 0:
                joined = self._data[self._at : self._at + sum(sizes)]
                if joined.isascii():
                    text = self.take(sum(sizes)).decode()
                    return [text[first:last] for first, last in pairwise(accumulate(sizes, initial=0))]
            return [None if size == -1 else self.take(size).decode("utf-8", "surrogatepass") for size in sizes]
        except UnicodeDecodeError:
            raise LineBroken("A column of texts holds something else.") from None

    def blob(self) -> bytes:
        (size,) = self.unpack(_COUNT)
        return self.take(size)

    def end(self) -> None:
        if self._at != len(self._data):
            raise LineBroken("There is more behind the columns of a frame than belongs to it.")


def _array(code: str, values: Sequence[int]) -> bytes:
    made = array(code, values)
    if sys.byteorder != "little":
        made.byteswap()
    return made.tobytes()


def _values(code: str, data: bytes) -> list[int]:
    made = array(code)
    made.frombytes(data)
    if sys.byteorder != "little":
        made.byteswap()
    return made.tolist()


# Messages on their way in

_SESSIONS, _KEYS, _VIA_KEYS, _LIFETIMES, _SCHEDULES, _PINGS, _ORIGINS = (1 << bit for bit in range(7))


def write_messages(to: ColumnWriter, messages: Sequence[Message], origins: Sequence[int] | None = None) -> None:
    rows = [
        (
            each.session_id,
            each.partition_key,
            each.via_partition_key,
            each.time_to_live,
            each.scheduled_at,
            each.is_ping,
        )
        for each in messages
    ]
    session_ids, keys, via_keys, lifetimes, schedules, pings = zip(*rows, strict=True) if rows else ((),) * 6
    bits = 0
    for bit, column in zip(
        (_SESSIONS, _KEYS, _VIA_KEYS, _LIFETIMES, _SCHEDULES), zip(*rows, strict=True), strict=False
    ):
        if column.count(None) < len(column):
            bits |= bit
    bits |= _PINGS if any(pings) else 0
    bits |= _ORIGINS if origins is not None else 0
    to.raw(_HEAD.pack(len(rows), bits))
    to.texts([each.message_id for each in messages])
    for bit, texts in ((_SESSIONS, session_ids), (_KEYS, keys), (_VIA_KEYS, via_keys)):
        if bits & bit:
            to.texts(texts)
    for bit, times in ((_LIFETIMES, lifetimes), (_SCHEDULES, schedules)):
        if bits & bit:
            to.integers([-1 if time is None else time for time in times])
    if bits & _PINGS:
        to.raw(bytes(pings))
    if origins is not None:
        to.integers(origins)
    to.blobs([each.content for each in messages])


def read_messages(data: ColumnReader) -> tuple[list[Message], list[int] | None]:
    count, bits = data.unpack(_HEAD)
    ids = data.texts(count)
    session_ids, keys, via_keys = (
        data.texts(count) if bits & bit else repeat(None, count) for bit in (_SESSIONS, _KEYS, _VIA_KEYS)
    )
    lifetimes, schedules = (
        [None if time == -1 else time for time in data.integers(count)] if bits & bit else repeat(None, count)
        for bit in (_LIFETIMES, _SCHEDULES)
    )
    pings = map(bool, data.take(count)) if bits & _PINGS else repeat(False, count)
    origins = data.integers(count) if bits & _ORIGINS else None
    contents = data.blobs(count)
    if None in ids:
        raise LineBroken("A message came without an id.")
    return [*map(Message, contents, ids, session_ids, keys, via_keys, lifetimes, schedules, pings)], origins


# Messages on their way out

_TOKENS, _ONE_END, _EXPIRIES, _STATES_DIFFER, _DUES, _COUNTS, _OUT_SESSIONS, _FIRST_NUMBERS = (
    1 << bit for bit in range(8)
)
_END = Struct("<q")


def write_taken(to: ColumnWriter, taken: Sequence[TakenMessage]) -> None:
    rows = [*map(_taken_message, taken)]
    ends = [each.locked_until for each in taken]
    expiries = [row.expires_at for row in rows]
    counts = [row.delivery_count for row in rows]
    session_ids = [row.session_id for row in rows]
    dues = [row.due_at for row in rows]
    first_numbers = [row.enqueued_sequence_number for row in rows]
    states = [row.state.value for row in rows]
    bits = 0
    if taken and taken[0].lock_token:
        bits |= _TOKENS
    if ends.count(ends[0]) == len(ends):
        bits |= _ONE_END
    for bit, column, nothing in (
        (_EXPIRIES, expiries, NEVER),
        (_STATES_DIFFER, states, MessageState.ACTIVE.value),
        (_DUES, dues, 0),
        (_COUNTS, counts, 0),
        (_OUT_SESSIONS, session_ids, None),
        (_FIRST_NUMBERS, first_numbers, 0),
    ):
        if column.count(nothing) < len(column):
            bits |= bit
    to.raw(_HEAD.pack(len(rows), bits))
    if bits & _TOKENS:
        to.raw(b"".join([each.lock_token for each in taken]))
    if bits & _ONE_END:
        to.raw(_END.pack(ends[0]))
    else:
        to.integers(ends)
    to.integers([row.sequence_number for row in rows])
    to.integers([row.enqueued_at for row in rows])
    if bits & _EXPIRIES:
        to.integers(expiries)
    if bits & _STATES_DIFFER:
        to.small(states)
    if bits & _DUES:
        to.integers(dues)
    if bits & _COUNTS:
        to.small(counts)
    if bits & _OUT_SESSIONS:
        to.texts(session_ids)
    if bits & _FIRST_NUMBERS:
        to.integers(first_numbers)
    to.blobs([row.content for row in rows])


def read_taken(data: ColumnReader) -> list[TakenMessage]:
    count, bits = data.unpack(_HEAD)
    tokens: Any = repeat(b"", count)
    if bits & _TOKENS:
        raw = data.take(TOKEN_SIZE * count)
        tokens = [raw[at : at + TOKEN_SIZE] for at in range(0, len(raw), TOKEN_SIZE)]
    ends = repeat(data.unpack(_END)[0], count) if bits & _ONE_END else data.integers(count)
    numbers, times = data.integers(count), data.integers(count)
    expiries = data.integers(count) if bits & _EXPIRIES else repeat(NEVER, count)
    states: Any = repeat(MessageState.ACTIVE, count)
    if bits & _STATES_DIFFER:
        try:
            states = [_STATES[value] for value in data.small(count)]
        except KeyError:
            raise LineBroken("A message came in a state that there is not.") from None
    dues = data.integers(count) if bits & _DUES else repeat(0, count)
    counts = data.small(count) if bits & _COUNTS else repeat(0, count)
    session_ids = data.texts(count) if bits & _OUT_SESSIONS else repeat(None, count)
    first_numbers = data.integers(count) if bits & _FIRST_NUMBERS else repeat(0, count)
    contents = data.blobs(count)
    rows = map(StoredMessage, numbers, contents, times, expiries, states, dues, counts, session_ids, first_numbers)
    return [*map(TakenMessage, rows, tokens, ends)]


def unpack(layout: Struct, data: bytes) -> tuple[Any, ...]:
    """Of a payload that is nothing but this."""
    try:
        return layout.unpack(data)
    except error:
        raise LineBroken("A frame came with another size than it has.") from None
