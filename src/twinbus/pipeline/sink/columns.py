"""The columns that a sink takes: the schema of a DataFrame in, where each column is out, or one line on what is wrong.

Columns are found by name, in any order and, as everywhere in Spark, in any case. What a source adds to a message that
somebody received (its number, its time, its delivery count ...) cannot be sent: those columns are known and ignored,
so that what was read can be written without dropping them. Any other column is an error, as a misspelt name would be.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from twinbus.errors import ArgumentError


class SchemaError(ArgumentError, ValueError):
    """The columns of a DataFrame are not those of messages."""


class Column(NamedTuple):
    name: str
    types: tuple[type[DataType], ...]
    expected: str
    meaning: str


_TEXT = (StringType,)


def _text(name: str, meaning: str) -> Column:
    return Column(name, _TEXT, "string", meaning)


COLUMNS = (
    Column("body", (StringType, BinaryType), "string or binary", "The body; a string is sent as UTF-8."),
    _text("messageId", "If null or empty, it is generated from the query, batch, input partition, row and content."),
    _text("sessionId", "The message session; messages with the same one are kept in one fragment."),
    _text("partitionKey", "Messages with the same key are kept in one fragment."),
    _text("correlationId", "Any text."),
    _text("subject", "Any text, also known as label."),
    _text("to", "Any text; not used for routing."),
    _text("replyTo", "The entity for replies."),
    _text("replyToSessionId", "The message session for replies."),
    _text("contentType", "Such as application/json."),
    Column("properties", (MapType,), "map<string,string>", "Application properties; see the option propertyValues."),
    Column("scheduledEnqueueTime", (TimestampType,), "timestamp", "The message is not delivered before this time."),
    Column(
        "timeToLive",
        (DayTimeIntervalType, LongType, IntegerType),
        "interval day to second, or a bigint of milliseconds",
        "The time after its enqueuing at which the message expires.",
    ),
    _text("entity", "The destination of the message, unless the option queue or topic is set."),
)
READ_ONLY = (
    "sequenceNumber",
    "fragment",
    "enqueuedTime",
    "enqueuedSequenceNumber",
    "deliveryCount",
    "state",
    "expiresAt",
    "deadLetterReason",
    "deadLetterErrorDescription",
    "deadLetterSource",
)
"""Columns of sources that say what became of a message; a sink leaves them out."""

_BY_NAME = {column.name.lower(): column for column in COLUMNS}
_IGNORED = frozenset(name.lower() for name in READ_ONLY)


def find_columns(schema: StructType) -> dict[str, int]:
    """Places of the columns that are sent, by their own names. Raises SchemaError."""
    places: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        name = field.name.lower()
        if name in _IGNORED:
            continue
        column = _BY_NAME.get(name)
        if column is not None and isinstance(field.dataType, NullType) and column.name != "body":
            continue  # as `null as subject` makes it: nothing to send
        if column is None:
            known = ", ".join(each.name for each in COLUMNS)
            raise SchemaError(f"A message has no column '{field.name}'. Drop or rename it; the columns are {known}.")
        if column.name in places:
            raise SchemaError(f"The column '{column.name}' exists twice. Drop one of them.")
        _check_type(column, field.dataType)
        places[column.name] = place
    if "body" not in places:
        raise SchemaError(
            "There is no column 'body'. Give the column with the message bodies this name; its type is string or binary."
        )
    return places


def check_destination(places: Mapping[str, int], target: str | None) -> None:
    """Raises SchemaError where nothing says which entity the messages are for."""
    if target is None and "entity" not in places:
        raise SchemaError(
            "The destination of the messages is missing. Set the option queue or topic, or add a column 'entity'."
        )


def _check_type(column: Column, given: DataType) -> None:
    if isinstance(given, column.types) and (not isinstance(given, MapType) or _is_text_map(given)):
        return
    raise SchemaError(f"Column '{column.name}' is {given.simpleString()}; it must be {column.expected}. Cast it.")


def _is_text_map(given: MapType) -> bool:
    return isinstance(given.keyType, StringType) and isinstance(given.valueType, StringType)
