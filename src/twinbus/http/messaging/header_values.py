"""Property values as the REST API writes them in headers and JSON: text in, AMQP values out, and back.

    "High"      a string, as JSON writes it           "Sun, 06 Nov 1994 08:49:37 GMT"   a time
    12, 1.5     numbers                               true, false                       booleans
    High        anything else: a string as it stands

A quoted text that is a time in this form is a time: headers have no other way to say so, and clients rely on it.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from twinbus.amqp.codec.types import Timestamp, Value
from twinbus.clock import Millis
from twinbus.errors import ArgumentError

INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
NUMBER = re.compile(r"[+-]?\d{1,64}(?:\.\d{1,64})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
HTTP_TIME = "%a, %d %b %Y %H:%M:%S GMT"
HTTP_TIME_LENGTH = 29
TIME_SPAN = re.compile(r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,7}))?", re.ASCII)
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_header_value(text: str) -> Value:
    """Never fails: anything that fits no other type is a string."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        inner = _unquoted(text)
        at = _read_http_time(inner)
        return inner if at is None else Timestamp(at)
    if text in ("true", "false"):
        return text == "true"
    if INTEGER.fullmatch(text) and LONG_MIN <= int(text) <= LONG_MAX:
        return int(text)
    if NUMBER.fullmatch(text) and isfinite(float(text)):
        return float(text)
    return text


def write_header_value(value: Value) -> str:
    """In ASCII, and without line ends whatever is in the value."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Timestamp():
            return f'"{write_http_time(value)}"'
        case int():
            return str(int(value))
        case float() if isfinite(value):
            return repr(float(value))
        case str():
            return json.dumps(str(value))
        case bytes():
            return json.dumps(value.hex())
    return json.dumps(str(value))


def read_json(text: str | bytes, what: str) -> Any:
    """Raises ArgumentError, naming `what`, for whatever is not JSON, or JSON that no message can hold."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ArgumentError(f"{what} is not valid JSON. Write names and strings in double quotes.") from None


def read_json_value(value: object, name: str) -> Value:
    """The value of a custom property in a batch; times have no form of their own there and stay texts."""
    if isinstance(value, str):
        return checked_text(value, name)
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and LONG_MIN <= value <= LONG_MAX:
        return value
    raise ArgumentError(f"The property '{name[:64]}' has to be a string, a 64-bit number, a boolean or null.")


def checked_text(text: str, name: str) -> str:
    """JSON can contain half of a surrogate pair, which no encoding can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentError(
            f"'{name[:64].encode(errors='replace').decode()}' holds half of a surrogate pair. Send whole characters."
        ) from None
    return text


def read_time(text: str, what: str) -> Millis:
    """A time as HTTP or as ISO 8601 writes it; without a zone it is UTC."""
    at = _read_http_time(text.strip())
    if at is not None:
        return at
    try:
        moment = datetime.fromisoformat(text.strip())
        return _millis(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise ArgumentError(
            f"{what} is not a time. Write it like Sun, 06 Nov 1994 08:49:37 GMT or 1994-11-06T08:49:37Z."
        ) from None


def read_time_span(text: str, what: str) -> Millis:
    """`[days.]hours:minutes:seconds[.fraction]`, as .NET writes a span of time."""
    found = TIME_SPAN.fullmatch(text.strip())
    if found is None:
        raise ArgumentError(f"{what} is not a time span. Write it like 00:01:30 or 7.00:00:00.")
    days, hours, minutes, seconds = (int(found[group] or 0) for group in range(1, 5))
    fraction = int((found[5] or "").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction


def write_http_time(at: Millis) -> str:
    """Whole seconds, as HTTP has them. A time beyond the calendar is its last second."""
    try:
        return (EPOCH + timedelta(milliseconds=int(at))).strftime(HTTP_TIME)
    except OverflowError:
        return "Fri, 31 Dec 9999 23:59:59 GMT"


def as_json(value: Value) -> object:
    """The nearest JSON value to an AMQP value."""
    match value:
        case None | bool():
            return value
        case Timestamp():
            return write_http_time(value)
        case int():
            return int(value)
        case float():
            return float(value) if isfinite(value) else str(float(value))
        case str():
            return str(value)
        case bytes():
            return value.hex()
        case list():
            return [as_json(each) for each in value]
        case dict():
            return {str(as_json(key)): as_json(each) for key, each in value.items()}
    return str(value)


def _unquoted(text: str) -> str:
    try:
        inner = json.loads(text)
        if isinstance(inner, str):
            return checked_text(inner, "property")
    except (ValueError, ArgumentError):
        pass
    # Clients that only put quotes around a text escape nothing, or nothing but quotes.
    return text[1:-1].replace('\\"', '"')


def _read_http_time(text: str) -> Millis | None:
    if len(text) != HTTP_TIME_LENGTH or not text.endswith(" GMT"):
        return None
    try:
        return _millis(datetime.strptime(text, HTTP_TIME).replace(tzinfo=UTC))
    except ValueError:
        return None


def _millis(moment: datetime) -> Millis:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
