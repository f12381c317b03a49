"""Frames between a namespace and the process that keeps its messaging stores, on one socket pair for each store.

    kind 1 | size 4, then the content

    to the store    COMMIT journal records · QUERY a value of `twinbus.store.reads`, pickled
                    SWITCH its name and arguments, pickled · UNWRITABLE why a commit could not be encoded
    from it         DONE how many commits · ROWS the answer to a query, if it is rows, as a journal record
                    EVENT any other event, pickled

Both ends are the same program on the same machine, hence pickles and native byte order.
"""

import pickle
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, TypeGuard

from twinbus.store.changes import StoredMessage

HEADER: Final = Struct("=BI")
COUNT: Final = Struct("=I")

COMMIT: Final = 1
QUERY: Final = 2
SWITCH: Final = 3
DONE: Final = 4
EVENT: Final = 5
UNWRITABLE: Final = 6
ROWS: Final = 7


def frame(kind: int, content: bytes) -> bytes:
    return HEADER.pack(kind, len(content)) + content


def pickled(kind: int, value: Any) -> bytes:
    return frame(kind, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def is_rows(result: object) -> TypeGuard[list[StoredMessage]]:
    """Whether it is an answer that travels as columns. Lists of a store hold one type of value."""
    return isinstance(result, list) and bool(result) and isinstance(result[0], StoredMessage)


class FrameBuffer:
    """Bytes in as they arrive, whole frames out."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def take(self, data: bytes | memoryview) -> Iterator[tuple[int, bytes]]:
        """Kinds and contents of the frames that are now complete."""
        pending = self._pending
        pending += data
        start, end = 0, len(pending)
        while end - start >= HEADER.size:
            kind, size = HEADER.unpack_from(pending, start)
            if end - start - HEADER.size < size:
                break
            start += HEADER.size
            content = bytes(memoryview(pending)[start : start + size])
            start += size
            yield kind, content
        del pending[:start]
