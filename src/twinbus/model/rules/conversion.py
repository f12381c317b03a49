"""Fitting a new value of a property to the type that the property had.

A receiver that reads an `int` goes on reading one. Where the value does not fit in the old type,
the property takes the type of the value: an action never fails for that.
"""

from collections.abc import Callable
from struct import Struct
from uuid import UUID

from twinbus.amqp.codec.types import Byte, Float, Int, Long, Short, Timestamp, UByte, UInt, ULong, UShort
from twinbus.model.rules.values import KINDS, TEXT_TYPES, Kind, text_of

_INTEGER_RANGES: dict[type[int], tuple[int, int]] = {
    UByte: (0, 2**8 - 1),
    UShort: (0, 2**16 - 1),
    UInt: (0, 2**32 - 1),
    ULong: (0, 2**64 - 1),
    Byte: (-(2**7), 2**7 - 1),
    Short: (-(2**15), 2**15 - 1),
    Int: (-(2**31), 2**31 - 1),
    int: (-(2**31), 2**31 - 1),
    Long: (-(2**63), 2**63 - 1),
}
_pack_float = Struct(">f").pack
_BOOLEANS = {"true": True, "false": False}


def converted_like(former: object, value: object) -> object:
    """`value` in the type of `former` if it can be had in it without loss, else as it is."""
    if type(former) is type(value):
        return value
    if type(former) in TEXT_TYPES:
        return text_of(value) if type(value) in KINDS else value
    try:
        return _READERS[KINDS[type(former)]](type(former), value)
    except (KeyError, ValueError, OverflowError):
        return value


def _number_like(kind: type, value: object) -> object:
    """A fraction is kept and not cut off; then the property becomes a double."""
    number = _parsed(value) if isinstance(value, str) else value
    if KINDS.get(type(number)) is not Kind.NUMBER:
        raise ValueError
    assert isinstance(number, int | float)
    if kind is Float:
        _pack_float(number)  # OverflowError beyond its range
    if kind in (float, Float):
        return kind(number)
    lowest, highest = _INTEGER_RANGES[kind]
    if number != int(number) or not lowest <= number <= highest:
        raise ValueError
    return kind(number)


def _parsed(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _boolean_like(kind: type, value: object) -> object:
    return _BOOLEANS[str(value).lower()]


def _id_like(kind: type, value: object) -> object:
    return UUID(str(value))


def _time_like(kind: type, value: object) -> object:
    if type(value) is not int:
        raise ValueError
    return Timestamp(value)


_READERS: dict[Kind, Callable[[type, object], object]] = {
    Kind.NUMBER: _number_like,
    Kind.BOOLEAN: _boolean_like,
    Kind.ID: _id_like,
    Kind.TIME: _time_like,
}
