"""The values filters see: their kinds, and what comparing them means.

Two values compare only within one kind. Numbers compare by value, whatever their width, sign or
precision; text compares by code points, with case. Anything else (a missing property, null, a
number against text) makes the comparison *unknown*, which is None here and matches no filter.
A message that some other publisher typed differently is thus skipped, and not dead-lettered.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import TypeAlias
from uuid import UUID

from twinbus.amqp.codec.types import (
    Byte,
    Char,
    Described,
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
)

Truth: TypeAlias = bool | None
"""True, False, or None for unknown."""

Comparing: TypeAlias = Callable[[object, object], Truth]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
TICKS_PER_MICROSECOND = 10
# How the .NET client writes what AMQP has no type for.
TIMESPAN = Symbol("com.microsoft:timespan")
DATETIME_OFFSET = Symbol("com.microsoft:datetime-offset")
URI = Symbol("com.microsoft:uri")
DATETIME_OFFSET_EPOCH_TICKS = 621_355_968_000_000_000  # from the year 1 to 1970


class Kind(IntEnum):
    NUMBER = 1
    TEXT = 2
    BOOLEAN = 3
    TIME = 4
    DURATION = 5
    ID = 6
    BINARY = 7


NUMBER_TYPES = frozenset({int, float, UByte, UShort, UInt, ULong, Byte, Short, Int, Long, Float})
TEXT_TYPES = frozenset({str, Symbol, Char})
KINDS: dict[type, Kind] = {
    **dict.fromkeys(NUMBER_TYPES, Kind.NUMBER),
    **dict.fromkeys(TEXT_TYPES, Kind.TEXT),
    bool: Kind.BOOLEAN,
    Timestamp: Kind.TIME,
    timedelta: Kind.DURATION,
    UUID: Kind.ID,
    bytes: Kind.BINARY,
}
"""What is not here (None, lists, maps, AMQP decimals) has no kind and compares with nothing."""

ORDERED_KINDS = frozenset({Kind.NUMBER, Kind.TEXT, Kind.TIME, Kind.DURATION})


def kind_name(value: object) -> str:
    kind = KINDS.get(type(value))
    return type(value).__name__ if kind is None else kind.name.lower()


def equal(left: object, right: object) -> Truth:
    kind = KINDS.get(type(left))
    if kind is None or KINDS.get(type(right)) is not kind:
        return None
    return left == right


def unequal(left: object, right: object) -> Truth:
    same = equal(left, right)
    return None if same is None else not same


def _ordering(holds: Callable[[object, object], bool]) -> Comparing:
    def compare(left: object, right: object) -> Truth:
        kind = KINDS.get(type(left))
        if kind not in ORDERED_KINDS or KINDS.get(type(right)) is not kind:
            return None
        return holds(left, right)

    return compare


COMPARISONS: dict[str, Comparing] = {
    "=": equal,
    "<>": unequal,
    "<": _ordering(lambda left, right: left < right),  # type: ignore[operator]
    "<=": _ordering(lambda left, right: left <= right),  # type: ignore[operator]
    ">": _ordering(lambda left, right: left > right),  # type: ignore[operator]
    ">=": _ordering(lambda left, right: left >= right),  # type: ignore[operator]
}


def equality_key(value: object) -> object:
    """Two values have the same key exactly if `equal` holds; None for a value that equals nothing."""
    kind = KINDS.get(type(value))
    if kind is Kind.TEXT or kind is Kind.NUMBER:
        # No number equals a text, so these two need no mark. The others do: TRUE is 1 for Python.
        return value
    return None if kind is None else (kind, value)


def understood(value: object) -> object:
    """A value from a parameter or property in the form that filters compute with."""
    if isinstance(value, datetime):
        # The SDKs send times without a zone and mean UTC.
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return Timestamp((moment - EPOCH) // MILLISECOND)
    if isinstance(value, timedelta):
        return timedelta(value.days, value.seconds, value.microseconds)  # of the very type that has a kind
    if not isinstance(value, Described):
        return value
    if value.descriptor == URI and isinstance(value.value, str):
        return value.value
    if value.descriptor == TIMESPAN and isinstance(value.value, int):
        return timedelta(microseconds=value.value // TICKS_PER_MICROSECOND)
    if value.descriptor == DATETIME_OFFSET and isinstance(value.value, int):
        return Timestamp((value.value - DATETIME_OFFSET_EPOCH_TICKS) // (1_000 * TICKS_PER_MICROSECOND))
    return value


def encodable(value: object) -> object:
    """The inverse of `understood` for values that an action puts into a message."""
    if isinstance(value, timedelta):
        return Described(TIMESPAN, Long(value // timedelta(microseconds=1) * TICKS_PER_MICROSECOND))
    return value


def text_of(value: object) -> str:
    """What a value is where text is wanted: joined to a text, or set into a system property."""
    if isinstance(value, Timestamp):
        return _time_text(value)
    if isinstance(value, float):
        return repr(float(value))
    return value.hex() if isinstance(value, bytes) else str(value)


def _time_text(moment: Timestamp) -> str:
    try:
        return (EPOCH + moment * MILLISECOND).isoformat().replace("+00:00", "Z")
    except OverflowError:  # AMQP times reach further than calendars do
        return str(int(moment))
