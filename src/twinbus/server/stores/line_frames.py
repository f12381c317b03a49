"""Frames between a namespace and the process that keeps its messaging stores, on one socket pair for each store.

    kind 1 | size 4, then the content

    to the store    COMMIT journal records · QUERY a value of `twinbus.store.reads`, pickled
                    SWITCH its name and arguments, pickled · UNWRITABLE why a commit could not be encoded
    from it         DONE how many commits · ROWS the answer to a query, if it is rows, as a journal record; SOME_ROWS the same,
                    and more of this answer follows · EVENT any other event, pickled

Both ends are the same program on the same machine, hence pickles and native byte order.

An answer of megabytes is sent in frames of PART_BYTES_MAX, so that both ends use the same few pages of memory again and again:
to get fresh ones from the system for each answer takes longer than to copy what is in them.
"""

import pickle
from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, Final, TypeGuard

from twinbus.store.changes import StoredMessage
from twinbus.store.journal_record import Piece, encode_rows, record_size

HEADER: Final = Struct("=BI")
COUNT: Final = Struct("=I")

COMMIT: Final = 1
QUERY: Final = 2
SWITCH: Final = 3
DONE: Final = 4
EVENT: Final = 5
UNWRITABLE: Final = 6
ROWS: Final = 7
SOME_ROWS: Final = 8

PART_BYTES_MAX: Final = 96 * 1024
"""Of the contents in a frame of rows, unless it is a single row. Below 128 KiB, where the allocator asks the system each time."""
PART_COUNT_MAX: Final = 500
"""The system takes about a thousand pieces in one call."""
SPACE_BYTES: Final = 256 * 1024


def frame(kind: int, content: bytes) -> bytes:
    return HEADER.pack(kind, len(content)) + content


def pickled(kind: int, value: Any) -> bytes:
    return frame(kind, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def is_rows(result: object) -> TypeGuard[list[StoredMessage]]:
    """Whether it is an answer that travels as columns. Lists of a store hold one type of value."""
    return isinstance(result, list) and bool(result) and isinstance(result[0], StoredMessage)


def row_frames(rows: list[StoredMessage]) -> Iterator[tuple[int, list[Piece]]]:
    """The frames of an answer: the size of each, and its pieces."""
    ends = _ends_of_parts(rows)
    for start, end in pairwise([0, *ends]):
        pieces = encode_rows(rows[start:end])
        size = record_size(pieces)
        yield HEADER.size + size, [HEADER.pack(SOME_ROWS if end < len(rows) else ROWS, size), *pieces]


def _ends_of_parts(rows: Sequence[StoredMessage]) -> list[int]:
    ends: list[int] = []
    start = size = 0
    for end, row in enumerate(rows):
        size += len(row.content)
        if (size > PART_BYTES_MAX and end > start) or end - start == PART_COUNT_MAX:
            ends.append(end)
            start, size = end, len(row.content)
    return [*ends, len(rows)]


class FrameSpace:
    """Memory that frames are read into, and the whole ones out of it.

    A frame that is larger than the space gets one of its own, which goes again with it.
    """

    def __init__(self, size: int = SPACE_BYTES) -> None:
        self._size = size
        self._space = memoryview(bytearray(size))
        self._filled = 0

    def free(self) -> memoryview:
        """Where the next bytes belong. `take` has to tell how many there were."""
        return self._space[self._filled :]

    def take(self, size: int) -> Iterator[tuple[int, memoryview]]:
        """So many bytes were added: kinds and contents of the frames that are now complete, to be used before the next `free`."""
        start, self._filled = 0, self._filled + size
        needed = 0
        while self._filled - start >= HEADER.size:
            kind, content_size = HEADER.unpack_from(self._space, start)
            end = start + HEADER.size + content_size
            if end > self._filled:
                needed = end - start
                break
            yield kind, self._space[start + HEADER.size : end]
            start = end
        self._keep(start, needed)

    def _keep(self, start: int, needed: int) -> None:
        """What follows `start` stays, and there is space for as much as is needed."""
        rest = self._space[start : self._filled]
        self._filled = len(rest)
        wanted = max(self._size, needed)
        if len(self._space) != wanted:
            space = memoryview(bytearray(wanted))
            space[: len(rest)] = rest
            self._space = space
        elif start and rest:
            self._space[: len(rest)] = bytes(rest)
