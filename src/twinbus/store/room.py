"""How a store stays in use while its disk fills up.

What a full disk must not do is stop the receivers, for only they make room. So the last of the space is not for messages:

    free < 3 reserve                every few seconds the store rests: what is dead in the journal and in the tables, and what is kept for
                                    speed only, is given back
    free < reserve                  no more messages are taken: the broker asks before it accepts any. Settling goes on: its records are
                                    small, and the journal has space allocated for them ahead. The store rests every second
    a checkpoint would not fit      what it is of stays where it is, in the journal and in memory, and it is tried again with the next
                                    rest: receivers may have taken what it would have written
    free > 1.5 reserve              messages are taken again

A checkpoint writes what a segment holds twice, to SQLite's log and to the tables, before the segment can go. So segments get smaller
with the space that is left: all journals together take no more than a quarter of it.
"""

from enum import IntEnum
from math import inf
from typing import NamedTuple

RESERVE_BYTES = 64 << 20
RESERVE_PART = 8
"""Of a small disk, one part in so many is the reserve."""
AGAIN_AT = 1.5
LITTLE_AT = 3
JOURNAL_PART = 4
SEGMENT_PART = 16
"""What one segment may always take of that: there may be as many stores, all busy."""
SEGMENT_BYTES_MIN = 1 << 20
WRITTEN_TIMES = 2
ROW_BYTES = 256
"""Of a message in the tables beside its content, about, with its places in indexes."""


class RoomLeft(IntEnum):
    """For more messages."""

    NONE = 0  # but what removes some is taken, as far as it goes
    LITTLE = 1
    ENOUGH = 2


class Space(NamedTuple):
    """On the medium of a store, in bytes; infinite where nobody can tell."""

    free: float
    total: float

    @property
    def reserve(self) -> float:
        """What is not for messages."""
        return min(RESERVE_BYTES, self.total / RESERVE_PART)


UNKNOWN_SPACE = Space(inf, inf)


class Room:
    """What a store found when it last looked."""

    def __init__(self) -> None:
        self.left = RoomLeft.ENOUGH
        self._free = inf

    def look(self, space: Space) -> None:
        self._free = space.free
        reserve = space.reserve
        if space.free < reserve * (AGAIN_AT if self.left is RoomLeft.NONE else 1):
            self.left = RoomLeft.NONE
        else:
            self.left = RoomLeft.LITTLE if space.free < reserve * LITTLE_AT else RoomLeft.ENOUGH

    @property
    def journal_bytes_max(self) -> float:
        """Of all stores together."""
        return self._free / JOURNAL_PART

    def segment_bytes_max(self, wanted: int) -> float:
        return min(wanted, max(SEGMENT_BYTES_MIN, self._free / JOURNAL_PART / SEGMENT_PART))

    def fits_segment(self) -> bool:
        return self._free >= SEGMENT_BYTES_MIN

    def fits_checkpoint(self, row_count: int, content_bytes: int) -> bool:
        return self._free >= WRITTEN_TIMES * (content_bytes + row_count * ROW_BYTES)
