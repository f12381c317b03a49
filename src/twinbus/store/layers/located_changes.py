"""Changes whose contents are in a journal: what an overlay keeps instead of bytes.

A row is a plain tuple, because tens of thousands of them are in memory at a time and the garbage collector does not
track tuples of numbers and texts. The constants name its fields.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from twinbus.clock import Millis
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
    StoredMessage,
)

Row: TypeAlias = tuple[int, Millis, Millis, int, Millis, int, int, str | None, int]
STATE: Final = 0
DUE_AT: Final = 1
EXPIRES_AT: Final = 2
DELIVERY_COUNT: Final = 3
ENQUEUED_AT: Final = 4
ENQUEUED_NUMBER: Final = 5
SIZE: Final = 6
SESSION_ID: Final = 7
PLACE: Final = 8
# PLACE above 0: the content starts at this offset of the layer's own journal segment.
# PLACE below 0: the content is that of the row with this number, negated, in whatever is below the layer.
# PLACE of a row of the tables: the checksum of its content.

STATES = tuple(MessageState)
CONTENT_STAYS = -1
"""The size in a RowAltered that leaves the content unchanged."""


class RowsAdded(NamedTuple):
    fragment: FragmentKey
    numbers: list[int]
    rows: list[Row]


class RowAltered(NamedTuple):
    fragment: FragmentKey
    number: int
    state: int
    delivery_count: int
    due_at: Millis
    expires_at: Millis
    size: int
    place: int


class RowsAltered(NamedTuple):
    fragment: FragmentKey
    numbers: list[int]
    state: int
    due_at: Millis


LocatedChange: TypeAlias = (
    FragmentCreated
    | FragmentDeleted
    | RowsAdded
    | Removed
    | RowAltered
    | RowsAltered
    | ActivatedTogether
    | SessionStateSet
    | DuplicatesSeen
    | DuplicatesForgotten
)


def stored_messages(numbers: Sequence[int], rows: Sequence[Row], contents: Sequence[bytes]) -> list[StoredMessage]:
    if not rows:
        return []
    states, due_at, expiries, counts, enqueued, origins, _, sessions, _ = zip(*rows, strict=True)
    named = map(STATES.__getitem__, states)
    return list(map(StoredMessage, numbers, contents, enqueued, expiries, named, due_at, counts, sessions, origins))
