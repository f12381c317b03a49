"""Application properties on the command line: `NAME=VALUE` and `NAME:TYPE=VALUE` in, names and typed values out.

Without a type, what JSON takes for a number or for true and false is one, and everything else is text: `5` and `1.5` are
numbers, `007`, `1.2.3` and `yes` are text. A type says what is meant: `zip:string=5`.
"""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from twinbus.errors import ArgumentError


class Long(int):
    """A whole number of 64 bits, however small it is."""


INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
PAIR_METAVAR = "NAME[:TYPE]=VALUE"


def read_pairs(given: Sequence[str] | None, option: str) -> dict[str, Any]:
    """Raises ArgumentError for what is not a pair, or not of the type that it names."""
    return dict(_pair(text, option) for text in given or ())


def _pair(text: str, option: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ArgumentError(f"'{text}' is not a pair. Write {option} NAME=VALUE or {option} NAME:TYPE=VALUE.")
    bare, _, kind = name.rpartition(":")
    # A name may contain a colon: only what is a type is one.
    if not bare or kind.lower() not in TYPES:
        return name, _guessed(value)
    try:
        return bare, TYPES[kind.lower()](value)
    except (ValueError, OverflowError):
        raise ArgumentError(f"{option}: '{value}' is not of the type {kind.lower()}.") from None


def _guessed(value: str) -> Any:
    try:
        read = json.loads(value, parse_constant=str)
    except (ValueError, RecursionError):
        return value
    if isinstance(read, int) and not isinstance(read, bool) and abs(read) > LONG_MAX:
        return value
    return read if isinstance(read, bool | int | float) else value


def for_official_client(values: dict[str, Any]) -> dict[str | bytes, Any]:
    """Whole numbers with their width: the official client encodes those without as 32 bits, and fails for more."""
    return {name: _sized(value) for name, value in values.items()}


def _sized(value: Any) -> Any:
    is_long = isinstance(value, int) and not isinstance(value, bool) and not -INT_MAX - 1 <= value <= INT_MAX
    return {"TYPE": "LONG", "VALUE": value} if is_long or isinstance(value, Long) else value


def _whole(limit: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        number = int(value)
        if not -limit - 1 <= number <= limit:
            raise ValueError(value)
        return number

    return read


def _truth(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower() == "true"


def _moment(value: str) -> datetime:
    moment = datetime.fromisoformat(value)
    return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _bytes(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as wrong:
        raise ValueError(value) from wrong


TYPES: dict[str, Callable[[str], Any]] = {
    "string": str,
    "int": _whole(INT_MAX),
    "long": lambda value: Long(_whole(LONG_MAX)(value)),
    "double": float,
    "bool": _truth,
    "uuid": UUID,
    "datetime": _moment,
    "binary": _bytes,
}
TYPE_NAMES = ", ".join(TYPES)
