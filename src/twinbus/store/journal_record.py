"""Journal records: changes in, bytes out; and bytes in, changes out whose contents are located in a segment.

A record is one change. All kinds have the same frame, little-endian on every machine (VERSION 1):

    kind 1 | fragment 8 | integer count 4 | text length 4 | tail length 8
    integers, 8 bytes each | text, JSON | tail, raw bytes

Integers are written column by column (all numbers, then all states, ...), so that a burst of messages is packed and
unpacked with a handful of calls instead of several per message. Contents are the tail: the overlay keeps where each of
them starts and how long it is.

Rows that several fragments get are written once, for the first one. The records of the others (COPIED) say how many bytes before
them that record begins, in the same commit, and their first number: a batch for hundreds of subscriptions would be hundreds of times
as long otherwise, and everybody in the store would wait until it is on the disk.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import accumulate, repeat
from struct import Struct
from typing import NamedTuple

from twinbus.clock import Millis
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
from twinbus.store.layers.located_changes import (
    CONTENT_STAYS,
    STATES,
    LocatedChange,
    Row,
    RowAltered,
    RowsAdded,
    RowsAltered,
)

FRAME = Struct("<BqIIQ")
VERSION = 1
"""Of the records: a medium keeps it beside them and refuses a newer one."""
ENQUEUED_COLUMNS = 8
ALTERED_COLUMNS = 6
ONE_ROW = Struct("<8q")
NO_FRAGMENT = 0
PART_WEIGHT = 4_000
"""Rows that are encoded together, where there are many: three milliseconds."""
NUMBERS_PER_ROW = 8
"""Numbers of rows that are removed, in the time of a row that is new."""
VIEW_SIZE_MIN = 8 * 1024
"""Contents of this size on average are cut out of a view; smaller ones are cut faster out of a copy of all of them."""
STATE_FORGOTTEN = -1
IS_SWAPPED = sys.byteorder == "big"

_ALTERED = Struct(f"{FRAME.format}{ALTERED_COLUMNS}q")
_ENQUEUED_ONE = Struct(f"{FRAME.format}{ENQUEUED_COLUMNS}q")
_COPIED = Struct(f"{FRAME.format}2q")


class Kind(IntEnum):
    FRAGMENT_CREATED = 1
    FRAGMENT_DELETED = 2
    ENQUEUED = 3
    REMOVED = 4
    ALTERED = 5
    ACTIVATED = 6
    SESSION_STATE_SET = 7
    DUPLICATES_SEEN = 8
    DUPLICATES_FORGOTTEN = 9
    ACTIVATED_TOGETHER = 10
    ALTERED_TOGETHER = 11
    COPIED = 12


ENQUEUED, REMOVED = int(Kind.ENQUEUED), int(Kind.REMOVED)


class _Record(NamedTuple):
    kind: int
    integers: list[int]
    text: bytes
    tail: list[bytes]
    tail_size: int


def encode_changes(changes: Sequence[Change], before: Encoded | None = None) -> list[bytes]:
    """The records of the changes, as pieces to be joined. `before`: what there is of the same commit; these follow it."""
    pieces: list[bytes] = []
    begun_at: dict[int, int] = {} if before is None else before.begun_at
    size = 0 if before is None else before.size
    measured_count = 0
    for change in changes:
        if isinstance(change, Copied):
            size += sum(map(len, pieces[measured_count:]))
            measured_count = len(pieces)
            begin = begun_at.setdefault(id(change.rows), size)
            if begin < size:
                pieces.append(_COPIED.pack(Kind.COPIED, change.fragment, 2, 0, 0, change.first_number, size - begin))
                continue
            numbers = range(change.first_number, change.first_number + len(change.rows))
            kind, integers, text, tail, tail_size = _enqueued(change.rows.messages, numbers)
        elif type(change) is Enqueued and len(change.messages) == 1 and change.messages[0].session_id is None:
            pieces += _enqueued_one(change.fragment, change.messages[0])
            continue
        elif type(change) is Altered:
            pieces += _altered(change)
            continue
        else:
            kind, integers, text, tail, tail_size = _record(change)
        pieces += (
            FRAME.pack(kind, change.fragment, len(integers), len(text), tail_size),
            _packed(integers),
            text,
            *tail,
        )
    if before is not None:
        before.size = size + sum(map(len, pieces[measured_count:]))
    return pieces


class Encoded:
    """How much of a commit there is so far. Shared rows of it are known by their identity, and stay alive until its end."""

    __slots__ = ("begun_at", "size")

    def __init__(self) -> None:
        self.begun_at: dict[int, int] = {}  # the record that holds shared rows, in bytes from the start
        self.size = 0


def encode_in_parts(changes: Sequence[Change]) -> Iterator[list[bytes]]:
    """The same commit as that of `encode_changes`, some milliseconds at a time. The rows of a change may be in several records."""
    before, part, weight = Encoded(), list[Change](), 0
    for change in changes:
        for piece in _cut(change):
            part.append(piece)
            weight += 1 if isinstance(piece, Copied) and id(piece.rows) in before.begun_at else _weight(piece)
            if weight >= PART_WEIGHT:
                yield encode_changes(part, before)
                part, weight = [], 0
    yield encode_changes(part, before)


def is_long(changes: Sequence[Change]) -> bool:
    """Whether to encode them takes so long that it is to be done in parts."""
    weight = 0
    for change in changes:
        # One call fewer for most commits, which have one of these.
        weight += len(change.messages) if type(change) is Enqueued else _weight(change)
    return weight > 2 * PART_WEIGHT


def _weight(change: Change) -> int:
    """In rows: how long it takes at most."""
    if type(change) is Enqueued:
        return len(change.messages)
    if type(change) is Copied:
        return len(change.rows)
    if type(change) is Removed:
        return 1 + len(change.sequence_numbers) // NUMBERS_PER_ROW
    return 1


def _cut(change: Change) -> Iterator[Change]:
    if type(change) is Enqueued and len(change.messages) > PART_WEIGHT:
        for start in range(0, len(change.messages), PART_WEIGHT):
            yield Enqueued(change.fragment, change.messages[start : start + PART_WEIGHT])
    else:
        yield change


def decode_changes(body: bytes | memoryview, place: int) -> Iterator[LocatedChange]:
    """The changes of records, the first of which starts at `place` of the segment. They hold nothing of a view."""
    position = 0
    shared: dict[int, RowsAdded] = {}  # by the position of their record
    while position < len(body):
        kind, fragment, integer_count, text_size, tail_size = FRAME.unpack_from(body, position)
        position += FRAME.size
        if kind == ENQUEUED and integer_count == ENQUEUED_COLUMNS and not text_size:
            # A message that comes alone: somebody waits for it, and for nothing else.
            number, state, due, expiry, count, enqueued, origin, size = ONE_ROW.unpack_from(body, position)
            position += ONE_ROW.size
            row: Row = (state, due, expiry, count, enqueued, origin, size, None, place + position)
            yield RowsAdded(fragment, [number], [row])
            position += tail_size
            continue
        integers = _unpacked(bytes(body[position : position + 8 * integer_count]))
        position += 8 * integer_count
        text = bytes(body[position : position + text_size])
        position += text_size
        if kind == REMOVED:
            yield Removed(fragment, integers)
        elif kind == ENQUEUED:
            sessions = json.loads(text) if text else [None] * (integer_count // ENQUEUED_COLUMNS)
            yield _rows_added(fragment, integers, sessions, place + position)
        elif kind == Kind.COPIED:
            first_number, distance = integers
            begin = position - _COPIED.size - distance
            if begin not in shared:
                shared[begin] = _rows_at(body, begin, place)
            rows = shared[begin].rows
            yield RowsAdded(fragment, list(range(first_number, first_number + len(rows))), rows)
        elif kind == Kind.ALTERED:
            yield _row_altered(fragment, integers, place + position)
        elif kind == Kind.ALTERED_TOGETHER:
            state, due, *numbers = integers
            yield RowsAltered(fragment, numbers, state, due)
        elif kind == Kind.ACTIVATED_TOGETHER:
            yield _rows_activated(fragment, integers)
        else:
            yield _change(Kind(kind), fragment, integers, text, bytes(body[position : position + tail_size]))
        position += tail_size


def _rows_at(body: bytes | memoryview, position: int, place: int) -> RowsAdded:
    """Of the record that begins at this position."""
    added = next(decode_changes(memoryview(body)[position:], place + position))
    assert isinstance(added, RowsAdded)
    return added


def encode_rows(rows: list[StoredMessage]) -> list[bytes]:
    """Rows with their contents, in the columns of a record: how a store's process answers a read."""
    return encode_changes([Enqueued(NO_FRAGMENT, rows)])


def decode_rows(record: bytes | memoryview) -> list[StoredMessage]:
    _, _, integer_count, text_size, tail_size = FRAME.unpack_from(record)
    count, position = integer_count // ENQUEUED_COLUMNS, FRAME.size + 8 * integer_count
    if tail_size < count * VIEW_SIZE_MIN:
        record = bytes(record)
    integers = _unpacked(bytes(record[FRAME.size : position]))
    numbers, states, due, expiries, counts, enqueued, origins, sizes = (
        integers[start : start + count] for start in range(0, integer_count, count)
    )
    sessions = json.loads(bytes(record[position : position + text_size])) if text_size else repeat(None, count)
    ends = accumulate(sizes, initial=position + text_size)
    next(ends)
    contents = [bytes(record[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
    named = map(STATES.__getitem__, states)
    return list(map(StoredMessage, numbers, contents, enqueued, expiries, named, due, counts, sessions, origins))


def _packed(integers: Sequence[int]) -> bytes:
    packed = array("q", integers)
    if IS_SWAPPED:
        packed.byteswap()
    return packed.tobytes()


def _unpacked(data: bytes) -> list[int]:
    packed = array("q", data)
    if IS_SWAPPED:
        packed.byteswap()
    return packed.tolist()


def _enqueued(messages: Sequence[StoredMessage], numbers: Sequence[int]) -> _Record:
    contents = [message.content for message in messages]
    sizes = [len(content) for content in contents]
    integers = [*numbers]
    integers += [message.state for message in messages]
    integers += [message.due_at for message in messages]
    integers += [message.expires_at for message in messages]
    integers += [message.delivery_count for message in messages]
    integers += [message.enqueued_at for message in messages]
    integers += [message.enqueued_sequence_number for message in messages]
    integers += sizes
    sessions = [message.session_id for message in messages]
    text = b"" if sessions.count(None) == len(sessions) else json.dumps(sessions).encode()
    return _Record(Kind.ENQUEUED, integers, text, contents, sum(sizes))


def _enqueued_one(fragment: FragmentKey, message: StoredMessage) -> tuple[bytes, bytes]:
    """The same record for a message that comes alone: columns of one integer each."""
    content = message.content
    front = _ENQUEUED_ONE.pack(
        ENQUEUED,
        fragment,
        ENQUEUED_COLUMNS,
        0,
        len(content),
        message.sequence_number,
        message.state,
        message.due_at,
        message.expires_at,
        message.delivery_count,
        message.enqueued_at,
        message.enqueued_sequence_number,
        len(content),
    )
    return front, content


def _rows_added(fragment: FragmentKey, integers: list[int], sessions: list[str | None], place: int) -> RowsAdded:
    count = len(integers) // ENQUEUED_COLUMNS
    if count == 0:
        return RowsAdded(fragment, [], [])
    numbers, *columns = (integers[start : start + count] for start in range(0, len(integers), count))
    places = accumulate(columns[-1], initial=place)
    rows: list[Row] = list(zip(*columns, sessions, places, strict=False))
    return RowsAdded(fragment, numbers, rows)


def _rows_activated(fragment: FragmentKey, integers: list[int]) -> ActivatedTogether:
    first_number, enqueued_at, *columns = integers
    count = len(columns) // 2
    return ActivatedTogether(fragment, columns[:count], first_number, enqueued_at, columns[count:])


def _row_altered(fragment: FragmentKey, integers: list[int], place: int) -> RowAltered:
    number, state, delivery_count, due_at, expires_at, size = integers
    return RowAltered(fragment, number, state, delivery_count, due_at, expires_at, size, place)


def _altered(change: Altered) -> tuple[bytes, bytes]:
    content = change.content
    integers = change.sequence_number, change.state, change.delivery_count, change.due_at, change.expires_at
    if content is None:
        size, content = CONTENT_STAYS, b""
    else:
        size = len(content)
    return _ALTERED.pack(Kind.ALTERED, change.fragment, ALTERED_COLUMNS, 0, len(content), *integers, size), content


def _record(change: Change) -> _Record:
    if isinstance(change, Enqueued):
        return _enqueued(change.messages, [message.sequence_number for message in change.messages])
    integers: list[int] = []
    text = tail = b""
    match change:
        case FragmentCreated():
            kind = Kind.FRAGMENT_CREATED
        case FragmentDeleted():
            kind = Kind.FRAGMENT_DELETED
        case Removed(sequence_numbers=integers):
            kind = Kind.REMOVED
        case AlteredTogether(_, numbers, state, due_at):
            kind, integers = Kind.ALTERED_TOGETHER, [state, due_at, *numbers]
        case Activated(_, scheduled_number, number, enqueued_at, expires_at):
            kind, integers = Kind.ACTIVATED, [scheduled_number, number, enqueued_at, expires_at]
        case ActivatedTogether(_, numbers, first_number, enqueued_at, expiries):
            kind, integers = Kind.ACTIVATED_TOGETHER, [first_number, enqueued_at, *numbers, *expiries]
        case SessionStateSet(_, session_id, state_bytes, updated_at):
            kind, text, tail = Kind.SESSION_STATE_SET, json.dumps(session_id).encode(), state_bytes or b""
            integers = [updated_at, STATE_FORGOTTEN if state_bytes is None else len(state_bytes)]
        case DuplicatesSeen(keys=keys):
            kind, text = Kind.DUPLICATES_SEEN, json.dumps([key for key, _ in keys]).encode()
            integers = [end for _, end in keys]
        case DuplicatesForgotten(until=until):
            kind, integers = Kind.DUPLICATES_FORGOTTEN, [until]
        case _:
            raise TypeError(f"no journal record for {type(change).__name__}")
    return _Record(kind, integers, text, [tail], len(tail))


def _change(kind: Kind, fragment: FragmentKey, integers: list[int], text: bytes, tail: bytes) -> LocatedChange:
    match kind:
        case Kind.FRAGMENT_CREATED:
            return FragmentCreated(fragment)
        case Kind.FRAGMENT_DELETED:
            return FragmentDeleted(fragment)
        case Kind.ACTIVATED:
            scheduled_number, number, enqueued_at, expires_at = integers
            return ActivatedTogether(fragment, [scheduled_number], number, enqueued_at, [expires_at])
        case Kind.SESSION_STATE_SET:
            updated_at, size = integers
            return SessionStateSet(fragment, json.loads(text), None if size == STATE_FORGOTTEN else tail, updated_at)
        case Kind.DUPLICATES_SEEN:
            keys: list[str] = json.loads(text)
            ends: list[Millis] = integers
            return DuplicatesSeen(fragment, list(zip(keys, ends, strict=True)))
        case Kind.DUPLICATES_FORGOTTEN:
            return DuplicatesForgotten(fragment, integers[0])
        case _:
            raise TypeError(f"no change for a journal record of kind {kind}")
