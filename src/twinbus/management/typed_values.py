"""Values of rule parameters and properties as pairs of an XML Schema type name and text, and back.

The administration API sends them so and the catalog keeps them so. The SDKs expect back what they sent: a time without
a zone stays one without, a `long` is a `long` whatever its value, and times and durations keep their ticks of a
ten-millionth of a second, for which Python's own types have no room.
"""

import math
import re
from datetime import datetime, timedelta
from uuid import UUID

from twinbus.amqp.codec.types import Long
from twinbus.errors import ArgumentError
from twinbus.model.iso8601 import read_duration, write_duration

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
INTEGER_TYPES = frozenset({"int", "long", "short", "byte", "unsignedInt", "unsignedShort", "unsignedByte", "integer"})
MICROSECONDS_AND_MORE = re.compile(r"[.,]\d{7}", re.ASCII)
MILLISECONDS_AND_MORE = re.compile(r"\.\d{3}(?P<rest>\d+)", re.ASCII)
FLOAT_TYPES = frozenset({"double", "float", "decimal"})


class WrittenTime(datetime):
    """A time that keeps the text it was read from."""

    text: str


class WrittenDuration(timedelta):
    """A duration that keeps the text it was read from."""

    text: str


def write_typed(value: object) -> tuple[str, str]:
    match value:
        case bool():
            return "boolean", "true" if value else "false"
        case Long():
            return "long", str(int(value))
        case WrittenTime():
            return "dateTime", value.text
        case WrittenDuration():
            return "duration", value.text
        case int():
            return ("int" if -INT_MAX - 1 <= value <= INT_MAX else "long"), str(int(value))
        case float():
            return "double", _write_double(value)
        case UUID():
            return "guid", str(value)
        case datetime():
            return "dateTime", value.isoformat().replace("+00:00", "Z")
        case timedelta():
            sign = "-" if value < timedelta() else ""
            return "duration", sign + write_duration(abs(value) // timedelta(milliseconds=1))
        case _:
            return "string", str(value)


def read_typed(type_name: str, text: str) -> object:
    """Raises ArgumentError for text that does not fit the type, and for types we do not know."""
    try:
        if type_name == "string":
            return text
        if type_name == "guid":
            return UUID(text.strip())
        if type_name == "long":
            return Long(_read_integer(text))
        if type_name in INTEGER_TYPES:
            return _read_integer(text)
        if type_name in FLOAT_TYPES:
            return float({"INF": "inf", "-INF": "-inf"}.get(text.strip(), text))
        if type_name == "boolean":
            return _read_boolean(text)
        if type_name == "dateTime":
            return _read_time(text.strip())
        if type_name == "duration":
            return _read_timedelta(text.strip())
    except (ValueError, OverflowError):
        raise ArgumentError(f"'{text[:64]}' is not a valid {type_name}. Correct the value or its type.") from None
    raise ArgumentError(
        f"Values of type '{type_name[:64]}' are not supported. Use string, int, long, double, boolean, guid, dateTime or duration."
    )


def _write_double(value: float) -> str:
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return "NaN" if math.isnan(value) else repr(value)


def _read_integer(text: str) -> int:
    if len(text) > 32:
        raise ValueError
    value = int(text)
    if not -LONG_MAX - 1 <= value <= LONG_MAX:
        raise ValueError
    return value


def _read_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "1", "false", "0"):
        raise ValueError
    return word in ("true", "1")


def _read_time(text: str) -> datetime:
    if MICROSECONDS_AND_MORE.search(text) is None:
        return datetime.fromisoformat(text)
    written = WrittenTime.fromisoformat(text)
    written.text = text
    return written


def _read_timedelta(text: str) -> timedelta:
    sign = -1 if text.startswith("-") else 1
    duration = timedelta(milliseconds=read_duration(text.removeprefix("-"), "A value"))
    finer = MILLISECONDS_AND_MORE.search(text)
    if finer is None:
        return sign * duration
    microseconds = timedelta(microseconds=int(finer["rest"].ljust(3, "0")[:3]))
    written = WrittenDuration(microseconds=sign * ((duration + microseconds) // timedelta(microseconds=1)))
    written.text = text
    return written
