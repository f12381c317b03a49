"""AMQP values as Python values (AMQP 1.0 part 1, section 1.6).

Where Python has the type, it is used: None, bool, float (double), str, bytes, UUID, list, dict.
Types that Python does not distinguish are subclasses: `UInt(5)` is 5 for every reader and `uint` for the
encoder. A bare int is written as `int`, or as `long` if it does not fit.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = Any
"""Any of the types named above or defined below, nested as AMQP nests them."""


class UByte(int):
    __slots__ = ()


class UShort(int):
    __slots__ = ()


class UInt(int):
    __slots__ = ()


class ULong(int):
    __slots__ = ()


class Byte(int):
    __slots__ = ()


class Short(int):
    __slots__ = ()


class Int(int):
    __slots__ = ()


class Long(int):
    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970-01-01 UTC."""

    __slots__ = ()


class Encoded(bytes):
    """A value in its encoding, which is written as it is: for what an encoder of its own writes faster. Never read."""

    __slots__ = ()


class Float(float):
    """Single precision; a bare float is a double."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A name from a constrained domain. Equal to the str of the same text, so that maps can be looked up by text."""

    __slots__ = ()


class Decimal32(bytes):
    """IEEE 754-2008 decimal in its wire layout; nothing here calculates with it."""

    __slots__ = ()


class Decimal64(bytes):
    __slots__ = ()


class Decimal128(bytes):
    __slots__ = ()


# Hashed as a value but not frozen: a frozen one takes twice as long to create, and every performative is one.
@dataclass(slots=True, unsafe_hash=True)
class Described:
    """A value with a descriptor (ulong or symbol) that gives it a meaning. Treated as immutable."""

    descriptor: Value
    value: Value


@dataclass(slots=True)
class Array:
    """Values that share one constructor.

    `code` is the constructor's byte; None lets the encoder choose the widest of the first
    element's type. Elements of an array of described values are `Described`, all with the same
    descriptor; an empty one forgets its descriptor.
    """

    values: list[Value]
    code: int | None = None
