"""What each column of a row is made of: received messages in, arrays of Arrow out, each message decoded by itself.

A part of a message that cannot be decoded is null in its row: one bad message must not stop a stream for good. Messages that look
alike are read much faster by `shaped_rows`, which has to come to the same result.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from twinbus.amqp.codec.types import Array, Described, Value
from twinbus.client.received_message import ReceivedMessage
from twinbus.model import wire_names
from twinbus.model.message_limits import DATE_MAX, TIME_TO_LIVE_MAX
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.pipeline.property_values import property_text
from twinbus.pipeline.source.rows.columns import ARROW_TYPES, COLUMNS, NAMES, arrow_schema
from twinbus.pipeline.source.rows.message_parts import (
    ANNOTATIONS,
    APPLICATION,
    BODY,
    HEADER,
    PROPERTIES,
    Parts,
    parts_of,
)

MICROS = 1_000  # in a millisecond
# The years 1 to 9999: Spark counts further in both directions, but no row with such a time could be collected in Python.
MILLIS_MIN, MILLIS_MAX = -62_135_596_800_000, DATE_MAX
_INT_MAX = 2**31 - 1
KINDS = {column.name: column.kind for column in COLUMNS}
ENTITY = "entity"
_STATES = {int(state): state.name.lower() for state in MessageState}
_SEQUENCE_NUMBER, _ENQUEUED_TIME, MESSAGE_STATE = (
    wire_names.SEQUENCE_NUMBER,
    wire_names.ENQUEUED_TIME,
    wire_names.MESSAGE_STATE,
)
# Places of fields in their sections.
_TIME_TO_LIVE, _DELIVERY_COUNT, ABSOLUTE_EXPIRY, CREATION = 2, 4, 8, 9


def record_batch(messages: Sequence[ReceivedMessage], path: str, names: Sequence[str] = NAMES) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(decoded(messages, path, names), schema=arrow_schema(names))


def decoded(messages: Sequence[ReceivedMessage], path: str, names: Sequence[str]) -> list[pa.Array]:
    wanted = {place for name in names for place in READERS[name].sections}
    parts = [parts_of(message, wanted) for message in messages]
    return [_array(name, parts, path) for name in names]


def _array(name: str, parts: Sequence[Parts], path: str) -> pa.Array:
    if name == ENTITY:
        return constant(name, path, len(parts))
    read = READERS[name].read
    return pa.array([read(each) for each in parts], ARROW_TYPES[KINDS[name]])


def constant(name: str, value: Any, count: int) -> pa.Array:
    kind = ARROW_TYPES[KINDS[name]]
    if value is None:
        return pa.nulls(count, kind)
    # Arrow repeats a map row by row, which takes longer than everything else about a row without properties.
    return _empty_maps(kind, count) if value == [] else pa.repeat(pa.scalar(value, kind), count)


def _empty_maps(kind: pa.MapType, count: int) -> pa.MapArray:
    nothing = pa.array([], pa.struct([kind.key_field, kind.item_field]))
    offsets = bytes(4 * (count + 1))
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets)], 0, children=[nothing])


# How each column is read


class Reader(NamedTuple):
    read: Callable[[Parts], Any]
    sections: tuple[int, ...] = ()


def _body(parts: Parts) -> bytes | None:
    body = parts.body
    if body is None or type(body) is bytes:
        return body
    return body.encode() if isinstance(body, str) else json.dumps(_plain(body)).encode()


def _plain(value: Value) -> Any:
    """As JSON can express it. AMQP has maps whose keys are not strings, and numbers and times that JSON has no types for."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return b64encode(value).decode()
        case dict():
            return {_plain(key): _plain(content) for key, content in value.items()}
        case list():
            return [_plain(each) for each in value]
        case Array():
            return [_plain(each) for each in value.values]
        case Described():
            return _plain(value.value)
    return str(value)


def _text(value: Value) -> str | None:
    """Ids may be numbers, UUIDs or bytes; all of them are shown as text."""
    if value is None or type(value) is str:
        return value
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else str(value)


def _micros(millis: Value) -> int | None:
    """As Spark counts time; null if it is not a time, or outside the calendar."""
    return millis * MICROS if isinstance(millis, int) and MILLIS_MIN <= millis <= MILLIS_MAX else None


def _property(place: int) -> Reader:
    def read(parts: Parts) -> str | None:
        fields = parts.properties
        value = None if fields is None else fields[place]
        return value if value is None or type(value) is str else _text(value)

    return Reader(read, (PROPERTIES,))


def _annotation(name: str, convert: Callable[[Value], Any]) -> Reader:
    def read(parts: Parts) -> Any:
        value = None if parts.annotations is None else parts.annotations.get(name)
        return None if value is None else convert(value)

    return Reader(read, (ANNOTATIONS,))


def _application(name: str) -> Reader:
    return Reader(lambda parts: _text(parts.application.get(name)) if parts.application else None, (APPLICATION,))


def _number(value: Value) -> int | None:
    return value if isinstance(value, int) else None


def _fragment(parts: Parts) -> int:
    number = parts.annotations.get(_SEQUENCE_NUMBER) if parts.annotations else None
    return (number or 0) >> SEQUENCE_BITS


def _delivery_count(parts: Parts) -> int:
    count = parts.header[_DELIVERY_COUNT] if parts.header is not None else None
    return max(0, min(count, _INT_MAX)) if isinstance(count, int) else 0


def _state(parts: Parts) -> str:
    found = parts.annotations.get(MESSAGE_STATE, 0) if parts.annotations else 0
    return _STATES.get(found, _STATES[0])


def _expires_at(parts: Parts) -> int | None:
    absolute = parts.properties[ABSOLUTE_EXPIRY] if parts.properties is not None else None
    if absolute is not None:
        return _micros(absolute)
    ttl = parts.header[_TIME_TO_LIVE] if parts.header is not None else None
    enqueued = parts.annotations.get(_ENQUEUED_TIME) if parts.annotations else None
    return _micros(enqueued + ttl) if isinstance(ttl, int) and isinstance(enqueued, int) else None


def _time_to_live(parts: Parts) -> int | None:
    """One that is longer than a header can say is the span of two dates, if both are in the calendar: senders write what they like."""
    ttl = parts.header[_TIME_TO_LIVE] if parts.header is not None else None
    if not isinstance(ttl, int) or not 0 < ttl <= TIME_TO_LIVE_MAX:
        return None
    if ttl == TIME_TO_LIVE_MAX and parts.properties is not None:
        created, expires = parts.properties[CREATION], parts.properties[ABSOLUTE_EXPIRY]
        if _micros(created) is not None and _micros(expires) is not None:
            return max(int(ttl), int(expires - created))
    return ttl


def _properties(parts: Parts) -> list[tuple[str, str]] | None:
    given = parts.application
    if not given:
        return None if given is None else []
    return [(str(name), property_text(value)) for name, value in given.items() if name != wire_names.CLAIMED_BY]


READERS: dict[str, Reader] = {
    "body": Reader(_body, (BODY,)),
    "messageId": _property(0),
    "sequenceNumber": _annotation(_SEQUENCE_NUMBER, _number),
    "fragment": Reader(_fragment, (ANNOTATIONS,)),
    "enqueuedTime": _annotation(_ENQUEUED_TIME, _micros),
    "enqueuedSequenceNumber": _annotation(wire_names.ENQUEUED_SEQUENCE_NUMBER, _number),
    "sessionId": _property(10),
    "partitionKey": _annotation(wire_names.PARTITION_KEY, _text),
    "correlationId": _property(5),
    "subject": _property(3),
    "to": _property(2),
    "replyTo": _property(4),
    "replyToSessionId": _property(12),
    "contentType": _property(6),
    "deliveryCount": Reader(_delivery_count, (HEADER,)),
    "state": Reader(_state, (ANNOTATIONS,)),
    "expiresAt": Reader(_expires_at, (HEADER, ANNOTATIONS, PROPERTIES)),
    "timeToLive": Reader(_time_to_live, (HEADER, PROPERTIES)),
    "scheduledEnqueueTime": _annotation(wire_names.SCHEDULED_ENQUEUE_TIME, _micros),
    "deadLetterReason": _application(wire_names.DEAD_LETTER_REASON),
    "deadLetterErrorDescription": _application(wire_names.DEAD_LETTER_DESCRIPTION),
    "deadLetterSource": _annotation(wire_names.DEAD_LETTER_SOURCE, _text),
    "properties": Reader(_properties, (APPLICATION,)),
    ENTITY: Reader(lambda parts: None),
}

PLACES: dict[str, tuple[int, int | str]] = {
    "messageId": (PROPERTIES, 0),
    "sequenceNumber": (ANNOTATIONS, _SEQUENCE_NUMBER),
    "fragment": (ANNOTATIONS, _SEQUENCE_NUMBER),
    "enqueuedTime": (ANNOTATIONS, _ENQUEUED_TIME),
    "enqueuedSequenceNumber": (ANNOTATIONS, wire_names.ENQUEUED_SEQUENCE_NUMBER),
    "sessionId": (PROPERTIES, 10),
    "partitionKey": (ANNOTATIONS, wire_names.PARTITION_KEY),
    "correlationId": (PROPERTIES, 5),
    "subject": (PROPERTIES, 3),
    "to": (PROPERTIES, 2),
    "replyTo": (PROPERTIES, 4),
    "replyToSessionId": (PROPERTIES, 12),
    "contentType": (PROPERTIES, 6),
    "scheduledEnqueueTime": (ANNOTATIONS, wire_names.SCHEDULED_ENQUEUE_TIME),
    "deadLetterReason": (APPLICATION, wire_names.DEAD_LETTER_REASON),
    "deadLetterErrorDescription": (APPLICATION, wire_names.DEAD_LETTER_DESCRIPTION),
    "deadLetterSource": (ANNOTATIONS, wire_names.DEAD_LETTER_SOURCE),
}
"""Columns that are one value of a message: its section, and its position or name in it."""
