"""Messages as rows: received messages in, Arrow record batches out, none of them larger than a few MiB.

Spark's own batching counts rows, whatever their size; ours counts bytes, so that large messages do not fill a worker.
A part of a message that cannot be decoded is null in its row: one bad message must not stop a stream for good.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from twinbus.amqp.codec.types import Array, Described, Value
from twinbus.amqp.errors import DecodeError
from twinbus.client.received_message import ReceivedMessage
from twinbus.model import wire_names
from twinbus.model.message_limits import TIME_TO_LIVE_MAX
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.pipeline.property_values import property_text
from twinbus.pipeline.source.columns import ARROW_TYPES, COLUMNS, LARGE, NAMES, TEXT, TIME, arrow_schema
from twinbus.pipeline.source.message_parts import ANNOTATIONS, APPLICATION, BODY, HEADER, PROPERTIES, Parts, parts_of
from twinbus.pipeline.source.message_shapes import TEXT as TEXT_KIND
from twinbus.pipeline.source.message_shapes import Place, Shape, taker

BATCH_BYTES_MAX = 4 * 1024 * 1024
BATCH_ROWS_MAX = 10_000
SHAPES_MAX = 24
"""Shapes that a reader remembers: ids and keys of a few lengths each make that many."""
WORTH_MISSES = 4
"""Messages in a known shape for each in a new one, below which shapes are not worth looking for."""
GROUP_MIN = 4
"""Fewer messages of a shape are decoded one by one."""
BODY_NAME = "body"

_MICROS = 1_000  # in a millisecond
# The years 1 to 9999: Spark counts further in both directions, but no row with such a time could be collected in Python.
_MILLIS_MIN, _MILLIS_MAX = -62_135_596_800_000, 253_402_300_799_999
_INT_MAX = 2**31 - 1
_KINDS = {column.name: column.kind for column in COLUMNS}
_ENTITY = "entity"
_STATES = {int(state): state.name.lower() for state in MessageState}
_SEQUENCE_NUMBER, _ENQUEUED_TIME, _MESSAGE_STATE = (
    wire_names.SEQUENCE_NUMBER,
    wire_names.ENQUEUED_TIME,
    wire_names.MESSAGE_STATE,
)
# Places of fields in their sections.
_TIME_TO_LIVE, _DELIVERY_COUNT, _ABSOLUTE_EXPIRY, _CREATION = 2, 4, 8, 9


def record_batches(
    pages: Iterable[Sequence[ReceivedMessage]], path: str, names: Sequence[str] = NAMES
) -> Iterator[pa.RecordBatch]:
    """Pages joined to batches of `BATCH_BYTES_MAX`; only a single message may make one that is larger."""
    rows = ShapedRows(path, names)
    waiting: list[ReceivedMessage] = []
    size = 0
    for page in pages:
        for message in page:
            added = len(message.payload)
            if waiting and (size + added > BATCH_BYTES_MAX or len(waiting) == BATCH_ROWS_MAX):
                yield rows.batch(waiting)
                waiting, size = [], 0
            waiting.append(message)
            size += added
    if waiting:
        yield rows.batch(waiting)


def record_batch(messages: Sequence[ReceivedMessage], path: str, names: Sequence[str] = NAMES) -> pa.RecordBatch:
    """Each message decoded by itself: what `ShapedRows` has to be equal to."""
    return pa.RecordBatch.from_arrays(_decoded(messages, path, names), schema=arrow_schema(names))


def _decoded(messages: Sequence[ReceivedMessage], path: str, names: Sequence[str]) -> list[pa.Array]:
    wanted = {place for name in names for place in _READERS[name].sections}
    parts = [parts_of(message, wanted) for message in messages]
    return [_array(name, parts, path) for name in names]


def _array(name: str, parts: Sequence[Parts], path: str) -> pa.Array:
    if name == _ENTITY:
        return _constant(name, path, len(parts))
    read = _READERS[name].read
    return pa.array([read(each) for each in parts], ARROW_TYPES[_KINDS[name]])


def _constant(name: str, value: Any, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, ARROW_TYPES[_KINDS[name]]), count)


# Messages that look alike


class ShapedRows:
    """Rows of one entity, by the shapes of its messages as far as they have some in common.

    Where every message has a shape of its own there is nothing to gain, and messages are decoded one by one.
    """

    def __init__(self, path: str, names: Sequence[str]) -> None:
        self._path = path
        self._names = tuple(names)
        self._plans: list[_ShapePlan] = []
        self._misses = self._hits = 0

    def batch(self, messages: Sequence[ReceivedMessage]) -> pa.RecordBatch:
        groups: dict[_ShapePlan | None, list[int]] = {}
        for place, message in enumerate(messages):
            groups.setdefault(self._plan_for(message), []).append(place)
        found = [self._arrays(plan, [messages[place] for place in places]) for plan, places in groups.items()]
        arrays = found[0]
        if len(found) > 1:
            order = [place for places in groups.values() for place in places]
            inverse = pa.array(sorted(range(len(order)), key=order.__getitem__), pa.int64())
            arrays = [pa.concat_arrays(parts).take(inverse) for parts in zip(*found, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self._names))

    def _plan_for(self, message: ReceivedMessage) -> "_ShapePlan | None":
        payload = message.payload
        for place, plan in enumerate(self._plans):
            if plan.fits(payload):
                if place:
                    del self._plans[place]
                    self._plans.insert(0, plan)
                self._hits += 1
                return plan
        self._misses += 1
        if self._misses > SHAPES_MAX and self._misses * WORTH_MISSES > self._hits:
            self._plans.clear()
            return None
        try:
            plan = _ShapePlan(Shape(payload), message, self._names)
        except (ValueError, DecodeError):
            return None
        self._plans.insert(0, plan)
        del self._plans[SHAPES_MAX:]
        return plan

    def _arrays(self, plan: "_ShapePlan | None", messages: Sequence[ReceivedMessage]) -> list[pa.Array]:
        if plan is not None and len(messages) >= GROUP_MIN:
            try:
                return plan.arrays(messages, self._path)
            except (pa.ArrowInvalid, OverflowError, ValueError):
                pass  # text that is not UTF-8, or a time outside the calendar: null where it is
        return _decoded(messages, self._path, self._names)


class _ShapePlan:
    """How each of the wanted columns is made of the payloads of a shape."""

    def __init__(self, shape: Shape, example: ReceivedMessage, names: Sequence[str]) -> None:
        self.fits = shape.fits
        self._shape = shape
        self._names = names
        wanted = {place for name in names for place in _READERS[name].sections}
        parts = parts_of(example, wanted)
        places: dict[Place, None] = {}
        self._sources: dict[str, Place | None] = {}
        self._constants: dict[str, Any] = {}
        for name in names:
            found = _source(shape, name)
            if found is _SAME:
                self._constants[name] = None if name == _ENTITY else _READERS[name].read(parts)
            elif isinstance(found, Place):
                self._sources[name] = found
                places[found] = None
        self._order = {place: number for number, place in enumerate(sorted(places, key=lambda each: each.start))}
        self._take = taker(list(self._order))

    def arrays(self, messages: Sequence[ReceivedMessage], path: str) -> list[pa.Array]:
        payloads = [message.payload for message in messages]
        taken = list(zip(*map(self._take, payloads), strict=True)) if self._order else []
        slow = [
            name
            for name in self._names
            if name not in self._constants and name not in self._sources and name != BODY_NAME
        ]
        decoded = dict(zip(slow, _decoded(messages, path, slow), strict=True)) if slow else {}
        arrays = []
        for name in self._names:
            if name == _ENTITY:
                arrays.append(_constant(name, path, len(payloads)))
            elif name in decoded:
                arrays.append(decoded[name])
            elif name in self._constants:
                arrays.append(_constant(name, self._constants[name], len(payloads)))
            elif name == BODY_NAME:
                start = self._shape.body_at
                arrays.append(pa.array([payload[start:] for payload in payloads], pa.binary()))
            else:
                place = self._sources[name]
                assert place is not None
                arrays.append(_column(name, place, taken[self._order[place]]))
        return arrays


_SAME = object()
"""The value of a column is the same in all messages of a shape."""


def _source(shape: Shape, name: str) -> object:
    """A place, `_SAME`, or None where the column is decoded from each message."""
    if name == _ENTITY:
        return _SAME
    if name == BODY_NAME:
        return _SAME if shape.body_at is None else None
    if name in ("deliveryCount", "state"):
        return _SAME if name == "deliveryCount" else _of(shape.annotations.get(_MESSAGE_STATE))
    if name == "timeToLive":
        return _SAME if _is_plain_time_to_live(shape) else None
    if name == "expiresAt":
        absolute = shape.properties.get(_ABSOLUTE_EXPIRY)
        if absolute is not None and not absolute.is_constant:
            return _of(absolute)
        return None if shape.has_time_to_live else _SAME
    if name == "properties":
        return _SAME if not shape.has_application else None
    kind, key = _PLACES[name]
    places: Any = {ANNOTATIONS: shape.annotations, PROPERTIES: shape.properties, APPLICATION: shape.application}[kind]
    return _of(places.get(key))


def _of(place: Place | None) -> object:
    if place is None or place.is_constant:
        return _SAME
    return place if place.kind is not None else None


def _is_plain_time_to_live(shape: Shape) -> bool:
    """It is in the header alone, and so the same in all."""
    places = (shape.properties.get(_ABSOLUTE_EXPIRY), shape.properties.get(_CREATION))
    return all(place is None or place.is_constant for place in places)


def _column(name: str, place: Place, values: Sequence[Any]) -> pa.Array:
    """Raises ArrowInvalid or ValueError where a value needs a closer look."""
    kind = _KINDS[name]
    if place.kind == TEXT_KIND:
        if kind != TEXT:
            raise ValueError("text where a number is expected")
        return pa.array(values, pa.binary()).cast(pa.string())
    if name == "fragment":
        return pa.array([number >> SEQUENCE_BITS for number in values], pa.int32())
    if kind == TIME:
        if not _MILLIS_MIN <= min(values) <= max(values) <= _MILLIS_MAX:
            raise ValueError("a time outside the calendar")
        return pa.array([millis * _MICROS for millis in values], pa.int64()).cast(ARROW_TYPES[TIME])
    if kind != LARGE:
        raise ValueError("a number where text is expected")
    return pa.array(values, pa.int64())


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
    return millis * _MICROS if isinstance(millis, int) and _MILLIS_MIN <= millis <= _MILLIS_MAX else None


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
    return min(count, _INT_MAX) if isinstance(count, int) else 0


def _state(parts: Parts) -> str:
    found = parts.annotations.get(_MESSAGE_STATE, 0) if parts.annotations else 0
    return _STATES.get(found, _STATES[0])


def _expires_at(parts: Parts) -> int | None:
    absolute = parts.properties[_ABSOLUTE_EXPIRY] if parts.properties is not None else None
    if absolute is not None:
        return _micros(absolute)
    ttl = parts.header[_TIME_TO_LIVE] if parts.header is not None else None
    enqueued = parts.annotations.get(_ENQUEUED_TIME) if parts.annotations else None
    return _micros(enqueued + ttl) if isinstance(ttl, int) and isinstance(enqueued, int) else None


def _time_to_live(parts: Parts) -> int | None:
    """One that is longer than a header can say is the span of two dates."""
    ttl = parts.header[_TIME_TO_LIVE] if parts.header is not None else None
    if ttl == TIME_TO_LIVE_MAX and parts.properties is not None:
        created, expires = parts.properties[_CREATION], parts.properties[_ABSOLUTE_EXPIRY]
        if isinstance(created, int) and isinstance(expires, int) and expires - created > ttl:
            return expires - created
    return ttl if isinstance(ttl, int) and ttl > 0 else None


def _properties(parts: Parts) -> list[tuple[str, str]] | None:
    given = parts.application
    if not given:
        return None if given is None else []
    return [(str(name), property_text(value)) for name, value in given.items() if name != wire_names.CLAIMED_BY]


_READERS: dict[str, Reader] = {
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
    _ENTITY: Reader(lambda parts: None),
}

_PLACES: dict[str, tuple[int, int | str]] = {
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
