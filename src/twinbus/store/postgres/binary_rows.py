"""Numbers and rows in PostgreSQL's binary formats, packed many at a time: a checkpoint has tens of thousands of them, and a driver
that looks at each value takes longer than the server needs to store it.

    Integers        a list as one parameter of type bigint[]
    message_rows    facts of messages, as COPY reads them
"""

import json
from array import array
from collections.abc import Iterable, Sequence
from struct import Struct
from sys import byteorder
from typing import Final

from psycopg.adapt import Dumper
from psycopg.postgres import types
from psycopg.pq import Format

from twinbus.model.session_key import session_key
from twinbus.store.layers.located_changes import SESSION_ID, Row
from twinbus.store.row_ids import row_id

BIGINT: Final = types["int8"]
ARRAY_HEADER: Final = Struct("!iiIii")  # dimensions, has nulls, type of the elements, how many, number of the first one
ELEMENT_BYTES: Final = 12  # its length, then the integer

COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_END: Final = b"\xff\xff"
FACTS: Final = Struct("!hiiiqihiqiqiiiqiqiq")  # how many columns, then for each its length and the integer
NO_SESSION: Final = b"\xff" * 8  # two columns whose length is -1
LENGTH: Final = Struct("!i")


class Integers:
    """At least one."""

    def __init__(self, values: Iterable[int]) -> None:
        self.values = array("q", values)


class IntegersDumper(Dumper):
    format = Format.BINARY
    oid = BIGINT.array_oid

    def dump(self, obj: Integers) -> bytes:
        count = len(obj.values)
        numbers = obj.values[:]
        if byteorder == "little":
            numbers.byteswap()
        raw = numbers.tobytes()
        elements = bytearray(ELEMENT_BYTES * count)
        elements[3::ELEMENT_BYTES] = b"\x08" * count
        for place in range(8):
            elements[4 + place :: ELEMENT_BYTES] = raw[place::8]
        return ARRAY_HEADER.pack(1, 0, BIGINT.oid, count, 1) + elements


def message_rows(slot: int, rows: Sequence[tuple[int, Row]]) -> bytes:
    """Of messages with these numbers, in the order of `copy_messages`."""
    packed: list[bytes] = []
    for number, row in rows:
        state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, _ = row
        packed.append(
            FACTS.pack(
                *(11, 4, slot, 8, row_id(slot, number), 2, state, 8, due_at, 8, expires_at),
                *(4, delivery_count, 8, enqueued_at, 8, enqueued_number, 8, size),
            )
        )
        packed.append(NO_SESSION if session_id is None else b"".join(map(_text, session_texts(row))))
    return b"".join(packed)


def session_texts(row: Row) -> tuple[str, str] | tuple[None, None]:
    """As the tables hold them: session id and the key that finds it."""
    session_id = row[SESSION_ID]
    return (None, None) if session_id is None else (json.dumps(session_id), json.dumps(session_key(session_id)))


def _text(text: str | None) -> bytes:
    assert text is not None
    content = text.encode()
    return LENGTH.pack(len(content)) + content
