"""Checksums of what is in the tables: the values of a row in, a CRC-32 out.

A checkpoint computes them from what the journal's own checksums cover, and every read compares them, so that what the disk
changed in between is never taken for what was written. The content of a message has a checksum of its own, which is one of
the facts of its row: facts can change without reading the content, and a content is bound to one row.

Values of other types than these, as damage can leave them, raise ValueError.
"""

import struct
from struct import Struct
from typing import Final

from twinbus.store.crc32 import crc32

NO_SUM: Final = -1
"""The checksum of no content."""
INTEGERS: Final = {count: Struct(f"<{count}q") for count in range(13)}


def content_sum(content: bytes | memoryview) -> int:
    return crc32(content)


def values_sum(*values: object) -> int:
    """Of integers, followed by texts or None."""
    integers = [value for value in values if isinstance(value, int)]
    total = crc32(INTEGERS[len(integers)].pack(*integers))
    for text in values[len(integers) :]:
        if isinstance(text, str):
            # Texts are JSON, which never holds this byte. What was no UTF-8 when it was read has a sum as well, and a wrong one.
            total = crc32(b"\x00" + text.encode("utf-8", "surrogateescape"), total)
        elif text is not None:
            raise ValueError(f"a value of type {type(text).__name__}")
    return total


FACTS: Final = INTEGERS[9]


def row_sum(
    identity: int,
    state: int,
    due_at: int,
    expires_at: int,
    delivery_count: int,
    enqueued_at: int,
    enqueued_number: int,
    size: int,
    content: int,
    session_id: str | None,
) -> int:
    """Of a message; `content` is the sum of its content. As `values_sum`, but quick: it is called for each row that is read."""
    try:
        total = crc32(
            FACTS.pack(identity, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, content)
        )
        return total if session_id is None else crc32(b"\x00" + session_id.encode(), total)
    except (struct.error, AttributeError) as error:
        raise ValueError(str(error)) from None


def restated_difference(state: int, due_at: int, new_state: int, new_due_at: int) -> int:
    """What the checksums of all rows without a session id differ by, bit by bit, if these two facts change: of messages of the same
    length that differ in the same bits, so do their CRCs. What was damaged before stays damaged."""
    before, after = (row_sum(0, *facts, 0, 0, 0, 0, 0, 0, None) for facts in ((state, due_at), (new_state, new_due_at)))
    return before ^ after
