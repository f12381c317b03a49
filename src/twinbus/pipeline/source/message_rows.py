"""Messages as rows: received messages in, Arrow record batches out, none of them larger than a few MiB.

Spark's own batching counts rows, whatever their size; ours counts bytes, so that large messages do not fill a worker.
A part of a message that cannot be decoded is null in its row: one bad message must not stop a stream for good.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from twinbus.amqp.errors import DecodeError
from twinbus.amqp.types import Value
from twinbus.client.received_message import ReceivedMessage
from twinbus.pipeline.property_values import property_text
from twinbus.pipeline.source.columns import ARROW_TYPES, COLUMNS, NAMES, arrow_schema
from twinbus.pipeline.source.entity_access import CLAIMED_BY
from twinbus.pipeline.source.ranges import FRAGMENT_SHIFT

BATCH_BYTES_MAX = 4 * 1024 * 1024
BATCH_ROWS_MAX = 10_000

_MICROS = 1_000  # in a millisecond
_KINDS = {column.name: column.kind for column in COLUMNS}
_ENTITY = "entity"

Read = Callable[[ReceivedMessage], Any]


def record_batches(
    pages: Iterable[Sequence[ReceivedMessage]], path: str, names: Sequence[str] = NAMES
) -> Iterator[pa.RecordBatch]:
    """Pages joined to batches of `BATCH_BYTES_MAX`; only a single message may make one that is larger."""
    waiting: list[ReceivedMessage] = []
    size = 0
    for page in pages:
        for message in page:
            added = len(message.payload)
            if waiting and (size + added > BATCH_BYTES_MAX or len(waiting) == BATCH_ROWS_MAX):
                yield record_batch(waiting, path, names)
                waiting, size = [], 0
            waiting.append(message)
            size += added
    if waiting:
        yield record_batch(waiting, path, names)


def record_batch(messages: Sequence[ReceivedMessage], path: str, names: Sequence[str] = NAMES) -> pa.RecordBatch:
    arrays = [_array(name, messages, path) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(names))


def _array(name: str, messages: Sequence[ReceivedMessage], path: str) -> pa.Array:
    if name == _ENTITY:
        return pa.repeat(pa.scalar(path, pa.string()), len(messages))
    read = _READ[name]
    try:
        values = [read(message) for message in messages]
    except DecodeError:
        values = [_or_null(read, message) for message in messages]
    return pa.array(values, ARROW_TYPES[_KINDS[name]])


def _or_null(read: Read, message: ReceivedMessage) -> Any:
    try:
        return read(message)
    except DecodeError:
        return None


# How each column is read


def _body(message: ReceivedMessage) -> bytes | None:
    body = message.body
    if body is None or type(body) is bytes:
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body, default=_json).encode()


def _json(value: Value) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _text(value: Value) -> str | None:
    """Ids may be numbers, UUIDs or bytes; all of them are shown as text."""
    if value is None or type(value) is str:
        return value
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else str(value)


def _annotation(name: str) -> Read:
    return lambda message: message.annotations.get(name)


def _text_annotation(name: str) -> Read:
    return lambda message: _text(message.annotations.get(name))


def _time_annotation(name: str) -> Read:
    def read(message: ReceivedMessage) -> int | None:
        millis = message.annotations.get(name)
        return None if millis is None else millis * _MICROS

    return read


def _text_property(name: str) -> Read:
    return lambda message: _text(message.application_properties.get(name))


def _fragment(message: ReceivedMessage) -> int:
    return (message.sequence_number or 0) >> FRAGMENT_SHIFT


def _expires_at(message: ReceivedMessage) -> int | None:
    absolute = message.properties.absolute_expiry_time
    if absolute is not None:
        return absolute * _MICROS
    ttl, enqueued = message.header.ttl, message.annotations.get("x-opt-enqueued-time")
    return None if ttl is None or enqueued is None else (enqueued + ttl) * _MICROS


def _properties(message: ReceivedMessage) -> list[tuple[str, str]]:
    given = message.application_properties
    return [(str(name), property_text(value)) for name, value in given.items() if name != CLAIMED_BY] if given else []


_READ: dict[str, Read] = {
    "body": _body,
    "messageId": lambda message: _text(message.properties.message_id),
    "sequenceNumber": _annotation("x-opt-sequence-number"),
    "fragment": _fragment,
    "enqueuedTime": _time_annotation("x-opt-enqueued-time"),
    "enqueuedSequenceNumber": _annotation("x-opt-enqueue-sequence-number"),
    "sessionId": lambda message: _text(message.properties.group_id),
    "partitionKey": _text_annotation("x-opt-partition-key"),
    "correlationId": lambda message: _text(message.properties.correlation_id),
    "subject": lambda message: _text(message.properties.subject),
    "to": lambda message: _text(message.properties.to),
    "replyTo": lambda message: _text(message.properties.reply_to),
    "replyToSessionId": lambda message: _text(message.properties.reply_to_group_id),
    "contentType": lambda message: _text(message.properties.content_type),
    "deliveryCount": lambda message: message.header.delivery_count or 0,
    "state": lambda message: message.state.name.lower(),
    "expiresAt": _expires_at,
    "scheduledEnqueueTime": _time_annotation("x-opt-scheduled-enqueue-time"),
    "deadLetterReason": _text_property("DeadLetterReason"),
    "deadLetterErrorDescription": _text_property("DeadLetterErrorDescription"),
    "deadLetterSource": _text_annotation("x-opt-deadletter-source"),
    "properties": _properties,
}
