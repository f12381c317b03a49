"""Frames between a namespace and the process that keeps its messaging stores, on one socket pair for each store.

    kind 1 | size 4, then the content

    to the store    COMMIT journal records · LAID_COMMIT where they are in the shared room, and their size
                    QUERY how many laid answers were read since the last one, then a value of `twinbus.store.reads`, pickled
                    SWITCH its name and arguments, pickled · UNWRITABLE why a commit could not be encoded
    from it         DONE how many commits · ROWS the answer to a query, if it is rows, as a journal record; SOME_ROWS the same,
                    and more of this answer follows · LAID_ROWS, SOME_LAID_ROWS the same, as a place in the shared room and a size
                    EVENT any other event, pickled · LAID_EVENT the same, as a place in the shared room and a size

Both ends are the same program on the same machine, hence pickles and native byte order.

What is large is not sent but laid down (`shared_room`), as long as there is room. An answer of megabytes that has to be sent is
sent in frames of PART_BYTES_MAX, so that both ends use the same few pages of memory again and again: to get fresh ones from the
system for each answer takes longer than to copy what is in them.
"""

import pickle
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Final, TypeGuard

from twinbus.server.stores.shared_room import LAID_SIZE_MIN, Room
from twinbus.store.changes import StoredMessage
from twinbus.store.journal_record import encode_rows

HEADER: Final = Struct("=BI")
COUNT: Final = Struct("=I")
LAID: Final = Struct("=II")
"""Place and size."""

COMMIT: Final = 1
QUERY: Final = 2
SWITCH: Final = 3
DONE: Final = 4
EVENT: Final = 5
UNWRITABLE: Final = 6
ROWS: Final = 7
SOME_ROWS: Final = 8
LAID_COMMIT: Final = 9
LAID_ROWS: Final = 10
SOME_LAID_ROWS: Final = 11
LAID_EVENT: Final = 12

PART_BYTES_MAX: Final = 96 * 1024
"""Of the contents in a frame of rows, unless it is a single row. Below 128 KiB, where the allocator asks the system each time."""
LAID_PART_BYTES_MAX: Final = 1024 * 1024
"""Of the contents that are laid down together."""
PART_COUNT_MAX: Final = 500
"""The system takes about a thousand pieces in one call."""
SPACE_BYTES: Final = 256 * 1024


def frame(kind: int, content: bytes) -> bytes:
    return HEADER.pack(kind, len(content)) + content


def event_frame(event: Any, room: Room | None) -> bytes:
    """A large one, such as a page that is packed, is laid down if there is room."""
    content = pickle.dumps(event, pickle.HIGHEST_PROTOCOL)
    place = room.lay_down([content], len(content)) if room is not None and len(content) >= LAID_SIZE_MIN else None
    return frame(EVENT, content) if place is None else frame(LAID_EVENT, LAID.pack(place, len(content)))


def is_rows(result: object) -> TypeGuard[list[StoredMessage]]:
    """Whether it is an answer that travels as columns. Lists of a store hold one type of value."""
    return isinstance(result, list) and bool(result) and isinstance(result[0], StoredMessage)


def row_frames(rows: list[StoredMessage], room: Room | None) -> Iterator[tuple[int, list[bytes]]]:
    """The frames of an answer: the size of each, and its pieces."""
    for start, end in _parts(rows, 0, len(rows), PART_BYTES_MAX if room is None else LAID_PART_BYTES_MAX):
        pieces = encode_rows(rows[start:end])
        size = sum(map(len, pieces))
        place = room.lay_down(pieces, size) if room is not None and size >= LAID_SIZE_MIN else None
        if place is not None:
            kind = LAID_ROWS if end == len(rows) else SOME_LAID_ROWS
            yield HEADER.size + LAID.size, [HEADER.pack(kind, LAID.size), LAID.pack(place, size)]
        else:
            yield from _sent_frames(rows, start, end)


def _sent_frames(rows: list[StoredMessage], start: int, end: int) -> Iterator[tuple[int, list[bytes]]]:
    for first, last in _parts(rows, start, end, PART_BYTES_MAX):
        pieces = encode_rows(rows[first:last])
        size = sum(map(len, pieces))
        yield HEADER.size + size, [HEADER.pack(ROWS if last == len(rows) else SOME_ROWS, size), *pieces]


def _parts(rows: Sequence[StoredMessage], start: int, end: int, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Where each part of these rows starts and ends."""
    size = 0
    for position in range(start, end):
        size += len(rows[position].content)
        if (size > bytes_max and position > start) or position - start == PART_COUNT_MAX:
            yield start, position
            start, size = position, len(rows[position].content)
    yield start, end


class FrameSpace:
    """Memory that frames are read into, and the whole ones out of it.

    A frame that is larger than the space gets one of its own, which goes again with it.
    """

    def __init__(self, size: int = SPACE_BYTES) -> None:
        self._size = size
        self._space = memoryview(bytearray(size))
        self._filled = 0
        self._start = 0  # of the first frame that is not complete

    def free(self) -> memoryview:
        """Where the next bytes belong. `take` has to tell how many there were."""
        if self._start == self._filled:
            self._start = self._filled = 0
        else:
            self._make_room()
        return self._space[self._filled :]

    def take(self, size: int) -> list[tuple[int, memoryview]]:
        """So many bytes were added: kinds and contents of the frames that are now complete, to be used before the next `free`."""
        space, start, filled = self._space, self._start, self._filled + size
        found: list[tuple[int, memoryview]] = []
        while filled - start >= HEADER.size:
            kind, content_size = HEADER.unpack_from(space, start)
            end = start + HEADER.size + content_size
            if end > filled:
                break
            found.append((kind, space[start + HEADER.size : end]))
            start = end
        if start == filled and len(space) > self._size:
            self._space, start, filled = memoryview(bytearray(self._size)), 0, 0
        self._start, self._filled = start, filled
        return found

    def _make_room(self) -> None:
        """There is space for all of the next frame, and what is there of it is at the front."""
        space, start, filled = self._space, self._start, self._filled
        needed = 0
        if filled - start >= HEADER.size:
            needed = HEADER.size + HEADER.unpack_from(space, start)[1]
        wanted = max(self._size, needed)
        if start == 0 and len(space) == wanted:
            return  # a large frame comes in many reads, and to move it for each would take a copy of all that is there
        rest = bytes(space[start:filled])
        if len(space) != wanted:
            self._space = memoryview(bytearray(wanted))
        self._space[: len(rest)] = rest
        self._start, self._filled = 0, len(rest)
