"""The columns of a message in Spark: one table for schemas, rows and the reference page.

A row is a message as a peek shows it. Absent properties are null.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from twinbus.pipeline.connection_options import OptionError

TEXT, BYTES, TIME, SMALL, LARGE, MAP = "string", "binary", "timestamp", "int", "bigint", "map<string,string>"

ARROW_TYPES: dict[str, pa.DataType] = {
    TEXT: pa.string(),
    BYTES: pa.binary(),
    TIME: pa.timestamp("us", tz="UTC"),
    SMALL: pa.int32(),
    LARGE: pa.int64(),
    MAP: pa.map_(pa.string(), pa.string()),
}
"""As Spark itself maps its types: batches of any other type are refused by its readers."""


class Column(NamedTuple):
    name: str
    kind: str  # in the words of Spark's DDL
    meaning: str


COLUMNS: tuple[Column, ...] = (
    Column("body", BYTES, "data as sent; text in UTF-8; any other value as JSON"),
    Column("messageId", TEXT, ""),
    Column("sequenceNumber", LARGE, "unique in the entity; the upper 16 bits are the fragment"),
    Column("fragment", SMALL, "0 if the entity is not partitioned"),
    Column("enqueuedTime", TIME, "when the entity accepted it, or when it became due if it was scheduled"),
    Column(
        "enqueuedSequenceNumber", LARGE, "the number it had when it was first sent, if it was scheduled or forwarded"
    ),
    Column("sessionId", TEXT, "its message session"),
    Column("partitionKey", TEXT, ""),
    Column("correlationId", TEXT, ""),
    Column("subject", TEXT, "also called label"),
    Column("to", TEXT, ""),
    Column("replyTo", TEXT, ""),
    Column("replyToSessionId", TEXT, ""),
    Column("contentType", TEXT, ""),
    Column("deliveryCount", SMALL, "the number of deliveries without settlement"),
    Column(
        "state",
        TEXT,
        "active, deferred or scheduled; messages read with `mode=consume` are deferred, because that is how they are claimed",
    ),
    Column("expiresAt", TIME, "null if it never expires"),
    Column(
        "timeToLive",
        LARGE,
        "milliseconds, as sent; null if none was sent. A sink forwards it, and it starts again; to send "
        "the remaining time, write `unix_millis(expiresAt) - unix_millis(now())`",
    ),
    Column("scheduledEnqueueTime", TIME, ""),
    Column("deadLetterReason", TEXT, ""),
    Column("deadLetterErrorDescription", TEXT, ""),
    Column("deadLetterSource", TEXT, "the entity it was in before it was dead-lettered and forwarded"),
    Column("properties", MAP, "application properties, each value as JSON: strings are in quotation marks"),
    Column("entity", TEXT, "the path of the entity it was read from"),
)
NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)

_KINDS = {column.name: column.kind for column in COLUMNS}


def ddl(names: Sequence[str] = NAMES) -> str:
    """The schema in Spark's words."""
    return ", ".join(f"`{name}` {_KINDS[name]}" for name in names)


def arrow_schema(names: Sequence[str] = NAMES) -> pa.Schema:
    return pa.schema([pa.field(name, ARROW_TYPES[_KINDS[name]]) for name in names])


def chosen(fields: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The columns that a reader with a schema of its own wants, given as names and types in Spark's words.

    Raises OptionError for a column that there is not, or not with this type.
    """
    for name, kind in fields:
        if name not in _KINDS:
            raise OptionError(
                f"The schema has an unknown column '{name}'; the columns of a message are {', '.join(NAMES)}."
            )
        if kind != _KINDS[name]:
            raise OptionError(f"The schema has '{name}' as {kind}; it is {_KINDS[name]}. Cast it after reading.")
    return tuple(name for name, _ in fields)
