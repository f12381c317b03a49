"""Messages as JSON lines: a message in, a record out that can be edited and sent again, and back.

{"body": ..., "body_type": "text", "message_id": "42", "properties": {"n": 1}, "property_types": {"n": "int"}, ...}

`body_type` says what `body` is: text (UTF-8 bytes), base64 (any bytes), value (an AMQP value that JSON can hold). Types of properties
that JSON has no word for are in `property_types`, so that a message goes round without a change.
"""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from twinbus.amqp.codec import types as amqp
from twinbus.amqp.codec.sections import ValueBody
from twinbus.amqp.errors import DecodeError, EncodeError
from twinbus.client.message import encode_message
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import ArgumentError
from twinbus.model import wire_names

TEXT, BASE64, VALUE = "text", "base64", "value"
NUMBER_TYPES: Mapping[str, Any] = {
    name.lower(): getattr(amqp, name)
    for name in ("Byte", "Short", "Int", "Long", "UByte", "UShort", "UInt", "ULong", "Float")
    if hasattr(amqp, name)
}
NUMBER_NAMES = {number: name for name, number in NUMBER_TYPES.items()}
SYSTEM = (
    "message_id",
    "session_id",
    "partition_key",
    "subject",
    "correlation_id",
    "content_type",
    "to",
    "reply_to",
    "reply_to_session_id",
)
READ_ONLY = (
    "sequence_number",
    "enqueued_at",
    "delivery_count",
    "state",
    "dead_letter_reason",
    "dead_letter_description",
    "locked_until",
    "dead_letter_source",
)


def record_of(message: ReceivedMessage) -> dict[str, Any]:
    """Everything that a reader may want to see; what `payload_of` ignores comes last."""
    found = message.properties
    body_type, body = _body(message.body)
    plain, types = _properties(message.application_properties)
    record: dict[str, Any] = {
        "body": body,
        "body_type": body_type,
        "message_id": _id(found.message_id),
        "session_id": found.group_id,
        "partition_key": message.partition_key,
        "subject": found.subject,
        "correlation_id": _id(found.correlation_id),
        "content_type": None if found.content_type is None else str(found.content_type),
        "to": found.to,
        "reply_to": found.reply_to,
        "reply_to_session_id": found.reply_to_group_id,
        "time_to_live_ms": None if message.time_to_live is None else message.time_to_live // timedelta(milliseconds=1),
        "scheduled_at": _iso(message.scheduled_at),
        "properties": plain or None,
        "property_types": types or None,
        "sequence_number": message.sequence_number,
        "enqueued_at": _iso(message.enqueued_at),
        "delivery_count": message.delivery_count,
        "state": message.state.name.lower(),
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_description,
        "dead_letter_source": message.annotations.get(wire_names.DEAD_LETTER_SOURCE),
    }
    return {name: value for name, value in record.items() if value is not None}


def json_line(message: ReceivedMessage) -> str:
    """A message that nobody can read has a line too, with the reason: others behind it are wanted all the same. That line cannot be sent."""
    try:
        record = record_of(message)
    except DecodeError as error:
        record = {"sequence_number": message.sequence_number, "cannot_be_read": str(error)}
    return json.dumps(record, ensure_ascii=True, default=_as_text)


def _as_text(value: Any) -> str:
    """Where a sender wrote something else than the text that belongs there."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def payload_of(record: Any) -> bytes:
    """The message that a record describes, encoded. Raises ArgumentError that says what is wrong with it."""
    if not isinstance(record, dict):
        raise ArgumentError('A message is a JSON object such as {"body": "hello"}.')
    unknown = set(record) - {
        "body",
        "body_type",
        "time_to_live_ms",
        "scheduled_at",
        "properties",
        "property_types",
        *SYSTEM,
        *READ_ONLY,
    }
    if unknown:
        raise ArgumentError(
            f"A message has no '{sorted(map(str, unknown))[0]}'. Use names such as body, message_id and properties."
        )
    fields = {name: _text(record, name) for name in SYSTEM}
    life = record.get("time_to_live_ms")
    if life is not None and (not isinstance(life, int) or life <= 0):
        raise ArgumentError("'time_to_live_ms' must be a number of milliseconds above 0.")
    try:
        return encode_message(
            _body_of(record),
            **fields,  # type: ignore[arg-type]
            time_to_live=None if life is None else timedelta(milliseconds=life),
            created_at=None if life is None else datetime.now(UTC),
            scheduled_at=_time(record.get("scheduled_at"), "scheduled_at"),
            application_properties=_typed(record.get("properties"), record.get("property_types")),
        )
    except (EncodeError, OverflowError):
        raise ArgumentError("A number is out of range for its AMQP type. Use a smaller one, or another type.") from None


def parse_line(line: str) -> bytes:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ArgumentError("This line is not JSON.") from None
    return payload_of(record)


def _body(body: Any) -> tuple[str, Any]:
    if body is None:
        return TEXT, None
    if isinstance(body, bytes | bytearray):
        try:
            return TEXT, bytes(body).decode()
        except UnicodeDecodeError:
            return BASE64, base64.b64encode(body).decode()
    try:
        return VALUE, json.loads(json.dumps(body))
    except (TypeError, ValueError):
        return VALUE, str(body)


def _body_of(record: Mapping[str, Any]) -> Any:
    body, kind = (
        record.get("body"),
        record.get("body_type", TEXT if isinstance(record.get("body"), str | None) else VALUE),
    )
    if kind == VALUE:
        return ValueBody(body)
    if body is None:
        return None
    if not isinstance(body, str):
        raise ArgumentError('\'body\' must be a string. For another AMQP value add "body_type": "value".')
    if kind == TEXT:
        return body.encode(errors="replace")
    if kind == BASE64:
        try:
            return base64.b64decode(body, validate=True)
        except ValueError:
            raise ArgumentError("'body' is not base64, although 'body_type' says so.") from None
    raise ArgumentError("'body_type' must be text, base64 or value.")


def _properties(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    plain: dict[str, Any] = {}
    types: dict[str, str] = {}
    for name, value in given.items():
        match value:
            case bool() | None:
                plain[name] = value
            case amqp.Timestamp():
                plain[name], types[name] = _time_text(value), "timestamp"
            case UUID():
                plain[name], types[name] = str(value), "uuid"
            case amqp.Symbol():
                plain[name], types[name] = str(value), "symbol"
            case str():
                plain[name] = value
            case int() | float():
                plain[name] = float(value) if isinstance(value, float) else int(value)
                # A plain float is a double, as a number in JSON is; an AMQP float has half of its digits.
                if type(value) in NUMBER_NAMES:
                    types[name] = NUMBER_NAMES[type(value)]
            case bytes():
                plain[name], types[name] = base64.b64encode(value).decode(), "binary"
            case _:
                plain[name] = str(value)
    return plain, types


def _typed(properties: Any, types: Any) -> dict[str, Any] | None:
    if properties is None:
        return None
    if not isinstance(properties, dict) or not isinstance(types or {}, dict):
        raise ArgumentError("'properties' must be a JSON object of names and values.")
    return {name: _value(name, value, (types or {}).get(name)) for name, value in properties.items()}


def _value(name: str, value: Any, kind: Any) -> Any:
    if isinstance(value, dict | list):
        raise ArgumentError(f"The property '{name}' must be a string, a number, true, false or null.")
    try:
        if kind == "timestamp":
            is_number = isinstance(value, int) and not isinstance(value, bool)
            return amqp.Timestamp(value) if is_number else _time(value, name)
        if kind == "uuid":
            return UUID(value)
        if kind == "symbol":
            return amqp.Symbol(value)
        if kind == "binary":
            return base64.b64decode(value, validate=True)
        if kind in NUMBER_TYPES:
            return NUMBER_TYPES[kind](value)
    except (ValueError, TypeError, AttributeError):
        raise ArgumentError(f"The property '{name}' is not a {kind}.") from None
    return value


def _text(record: Mapping[str, Any], name: str) -> str | None:
    value = record.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ArgumentError(f"'{name}' must be a string.")
    return value


def _time(value: Any, name: str) -> datetime | None:
    if value in (None, ""):
        return None
    try:
        found = datetime.fromisoformat(value)
    except (ValueError, TypeError):
        raise ArgumentError(f"'{name}' is not a time. Write it like 2026-01-31T12:00:00Z.") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _time_text(value: amqp.Timestamp) -> str | int:
    """Milliseconds where it is further away than a calendar reaches: AMQP has 64 bits for it."""
    try:
        return _iso(datetime.fromtimestamp(value / 1000, UTC)) or ""
    except (ValueError, OverflowError, OSError):
        return int(value)


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _id(value: Any) -> str | None:
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)
