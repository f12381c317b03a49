"""Messages as they are sent: Python values in, an encoded message out.

    payload = encode_message("hello", message_id="1", session_id="a", application_properties={"n": 1})

Bytes and text become a data section, other bodies an amqp-value; `DataBody`, `SequenceBody` and `ValueBody` of
`twinbus.amqp.codec.sections` choose the kind explicitly. In properties a datetime becomes a timestamp, and the classes of
`twinbus.amqp.codec.types` choose an AMQP type where Python has only one.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from twinbus.amqp.codec.encode import encode_binary, encode_descriptor, encode_value
from twinbus.amqp.codec.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Body,
    DataBody,
    SequenceBody,
    ValueBody,
)
from twinbus.amqp.codec.types import Symbol, Timestamp, UInt, Value
from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.model import wire_names
from twinbus.model.message_limits import TIME_TO_LIVE_MAX

PARTITION_KEY = Symbol(wire_names.PARTITION_KEY)
VIA_PARTITION_KEY = Symbol(wire_names.VIA_PARTITION_KEY)
SCHEDULED_TIME = Symbol(wire_names.SCHEDULED_ENQUEUE_TIME)

_MILLISECOND = timedelta(milliseconds=1)
_HEADER, _ANNOTATIONS, _PROPERTIES, _APPLICATION, _DATA, _SEQUENCE, _VALUE = map(
    encode_descriptor, (HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE)
)


def encode_message(
    body: bytes | str | Body | Value = None,
    *,
    message_id: str | int | UUID | bytes | None = None,
    session_id: str | None = None,
    partition_key: str | None = None,
    via_partition_key: str | None = None,
    subject: str | None = None,
    correlation_id: str | int | UUID | bytes | None = None,
    content_type: str | None = None,
    to: str | None = None,
    reply_to: str | None = None,
    reply_to_session_id: str | None = None,
    time_to_live: timedelta | None = None,
    created_at: datetime | None = None,
    scheduled_at: datetime | None = None,
    application_properties: Mapping[str, Value] | None = None,
    annotations: Mapping[str, Value] | None = None,
) -> bytes:
    """Without a body there is no body section; without a message id the namespace generates one.

    A time to live of more than 49 days is sent as an expiry date, and so needs `created_at`.
    """
    created = None if created_at is None else timestamp(created_at)
    expires, parts = None, []
    if time_to_live is not None:
        ttl, expires = _lifetime(time_to_live, created)
        parts += [_HEADER, encode_value([None, None, ttl])]
    if annotations or scheduled_at or partition_key is not None or via_partition_key is not None:
        entries = _annotations(annotations or {}, partition_key, via_partition_key, scheduled_at)
        parts += [_ANNOTATIONS, encode_value(entries)]
    # Field by field of the section; a list ends with the last field that is set.
    fields: list[Value] = [message_id, None, to, subject, reply_to, correlation_id, None, None, expires, created]
    if content_type is not None:
        fields[6] = Symbol(content_type)
    if session_id is not None or reply_to_session_id is not None:
        fields += [session_id, None, reply_to_session_id]
    while fields and fields[-1] is None:
        fields.pop()
    if fields:
        parts += [_PROPERTIES, encode_value(fields)]
    if application_properties:
        named = {name: property_value(value) for name, value in application_properties.items()}
        parts += [_APPLICATION, encode_value(named)]
    return b"".join([*parts, *_body_parts(body)])


def timestamp(time: datetime) -> Timestamp:
    if time.tzinfo is None:
        raise ArgumentError(f"{time} has no time zone. Use datetime.now(UTC) or the like.")
    return Timestamp(time.timestamp() * 1000)


def _lifetime(time_to_live: timedelta, created: Timestamp | None) -> tuple[UInt, Timestamp | None]:
    """For the header, and the absolute expiry time if the header cannot hold it."""
    span: Millis = time_to_live // _MILLISECOND
    if span <= 0:
        raise ArgumentError(f"A time to live of {time_to_live} ends before the message is sent. Give a longer one.")
    if span <= TIME_TO_LIVE_MAX:
        return UInt(span), None
    if created is None:
        raise ArgumentError(f"A time to live of {time_to_live} needs created_at: it is sent as an expiry date.")
    return UInt(TIME_TO_LIVE_MAX), Timestamp(created + span)


def _annotations(
    given: Mapping[str, Value], partition_key: str | None, via_partition_key: str | None, scheduled_at: datetime | None
) -> dict[Symbol, Value]:
    entries = {Symbol(name): property_value(value) for name, value in given.items()}
    if partition_key is not None:
        entries[PARTITION_KEY] = partition_key
    if via_partition_key is not None:
        entries[VIA_PARTITION_KEY] = via_partition_key
    if scheduled_at is not None:
        entries[SCHEDULED_TIME] = timestamp(scheduled_at)
    return entries


def property_value(value: Value) -> Value:
    return timestamp(value) if isinstance(value, datetime) else value


def _body_parts(body: Any) -> list[bytes]:
    if isinstance(body, bytes):
        return [_DATA, encode_binary(body)]
    match body:
        case None:
            return []
        case str():
            return [_DATA, encode_binary(body.encode())]
        case DataBody(parts):
            return [piece for part in parts for piece in (_DATA, encode_binary(part))]
        case SequenceBody(rows):
            return [piece for row in rows for piece in (_SEQUENCE, encode_value(row))]
        case ValueBody(value):
            return [_VALUE, encode_value(value)]
        case _:
            return [_VALUE, encode_value(body)]
