"""Application properties as text: an AMQP value in, JSON out, and exactly the same value back.

Spark has one type for all values of a map, so each value is a JSON text, as Event Hubs' connector has it. What JSON can
express is plain JSON; a type that it does not have is written as an object with the type's name.

    string  "text"        boolean  true         null  null
    int     5             double   5.0          (a number without a fraction that is too large for an int is a long)
    others  {"long": 5}   {"timestamp": "2026-01-02T03:04:05.678Z"}   {"uuid": "..."}   {"binary": "<base64>"}   ...

Reading is lenient, for texts that people write by hand: what is no JSON at all, or a JSON document that is none of the
above, is a string as it stands. So `blue` and `"blue"` are the same string, while `5` is a number and `"5"` is not.
"""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.encode import INT_MAX, INT_MIN, encode_value
from twinbus.amqp.codec.types import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)
from twinbus.amqp.errors import AmqpError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_ENCODED = "amqp"
"""What has no name here (a list, an array, a time outside the calendar) is its AMQP encoding."""

_INTEGERS: dict[str, type[int]] = {
    "ubyte": UByte,
    "ushort": UShort,
    "uint": UInt,
    "ulong": ULong,
    "byte": Byte,
    "short": Short,
    "long": Long,
}
_BYTES: dict[str, type[bytes]] = {
    "binary": bytes,
    "decimal32": Decimal32,
    "decimal64": Decimal64,
    "decimal128": Decimal128,
}
_TEXTS: dict[str, type[str]] = {"symbol": Symbol, "char": Char}
_NAMES: dict[type, str] = {kind: name for table in (_INTEGERS, _BYTES, _TEXTS) for name, kind in table.items()}


def property_text(value: Value) -> str:
    """The text of one value; every AMQP value has one."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return json.dumps(value, ensure_ascii=False)
    if kind is Int or kind is int or (kind is Long and not INT_MIN <= value <= INT_MAX):
        return str(int(value))
    if kind is float and math.isfinite(value):
        return repr(value)
    return json.dumps(_tagged(value, kind), ensure_ascii=False)


def property_value(text: str) -> Value:
    """The value that a text stands for; see above for texts that nobody encoded."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if found is None or isinstance(found, str | bool):
        return found
    if isinstance(found, int | float):
        # JSON has no number that is none or endless, though Python reads them; and AMQP has none beyond 64 bits.
        return found if math.isfinite(found) and (isinstance(found, float) or -(2**63) <= found < 2**63) else text
    if isinstance(found, dict) and len(found) == 1:
        ((name, content),) = found.items()
        try:
            value = _READERS[name](content)
            encode_value(value)  # raises where it is out of the type's range
            return value
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError, AmqpError):
            return text
    return text


def _tagged(value: Value, kind: type) -> dict[str, Any]:
    name = _NAMES.get(kind)
    if name in _INTEGERS:
        return {name: int(value)}
    if name in _BYTES:
        return {name: b64encode(value).decode()}
    if name in _TEXTS:
        return {name: str(value)}
    if kind is UUID:
        return {"uuid": str(value)}
    if kind is Float or kind is float:
        return {"float" if kind is Float else "double": float(value) if math.isfinite(value) else str(float(value))}
    if kind is Timestamp and (time := _time_text(value)) is not None:
        return {"timestamp": time}
    return {_ENCODED: b64encode(encode_value(value)).decode()}


def _time_text(millis: int) -> str | None:
    try:
        return (_EPOCH + millis * _MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None


def _integer(kind: type[int]) -> Callable[[Any], Value]:
    def read(content: Any) -> Value:
        if type(content) is not int:
            raise TypeError
        return kind(content)

    return read


def _text(kind: type[str]) -> Callable[[Any], Value]:
    def read(content: Any) -> Value:
        if not isinstance(content, str):
            raise TypeError
        return kind(content)

    return read


def _bytes(kind: type[bytes]) -> Callable[[Any], Value]:
    return lambda content: kind(b64decode(content, validate=True))


def _timestamp(content: Any) -> Value:
    time = datetime.fromisoformat(content)
    if time.tzinfo is None:
        raise ValueError
    return Timestamp((time - _EPOCH) // _MILLISECOND)


def _encoded(content: Any) -> Value:
    data = b64decode(content, validate=True)
    value, end = decode_value(data, 0)
    if end != len(data):
        raise ValueError
    return value


_READERS: dict[str, Callable[[Any], Value]] = {
    **{name: _integer(kind) for name, kind in _INTEGERS.items()},
    **{name: _bytes(kind) for name, kind in _BYTES.items()},
    **{name: _text(kind) for name, kind in _TEXTS.items()},
    "float": lambda content: Float(float(content)),
    "double": lambda content: float(content),
    "uuid": lambda content: UUID(content),
    "timestamp": _timestamp,
    _ENCODED: _encoded,
}
