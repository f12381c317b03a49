"""AMQP composite types: described lists in, dataclasses out, and back (AMQP 1.0 part 1, section 1.4).

A composite is a dataclass whose fields are annotated with their wire type, in wire order; one without a default is
mandatory. Reading is lenient where the meaning is clear (a missing or null field has its default, any integer in
range is an integer, a string can be a symbol and vice versa) and raises a DecodeError where it is not. Writing always
uses the exact type, the `smallulong` descriptor and all fields, trailing nulls included, as the service does: the Python
SDK recognizes a performative by its third byte alone, and before 7.15 it indexes fields without checking how many came.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from itertools import zip_longest
from reprlib import repr as shortened  # what a peer sent can be as long as a frame
from typing import Any, ClassVar, NamedTuple, TypeVar, get_type_hints

from twinbus.amqp.codec.encode import encode_descriptor, encode_value
from twinbus.amqp.codec.types import Array, Described, Symbol, UInt, ULong, UShort, Value
from twinbus.amqp.errors import DecodeError


class FieldType(NamedTuple):
    name: str
    read: Callable[[Value], Any]
    """From a decoded value that is not null; DecodeError or ValueError if it is of another type."""
    write: Callable[[Any], Value]


class _Slot(NamedTuple):
    name: str
    field_type: FieldType
    default: Any
    is_mandatory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """Base of every composite: the two forms of its descriptor."""

    CODE: ClassVar[int]
    NAME: ClassVar[str]


C = TypeVar("C", bound=Composite)

_SLOTS: dict[type[Composite], tuple[_Slot, ...]] = {}


def encode_composite(composite: Composite) -> bytes:
    return encode_descriptor(composite.CODE) + encode_value(_field_values(composite))


def to_described(composite: Composite) -> Described:
    """The composite as a value, to be nested in other values."""
    return Described(ULong(composite.CODE), _field_values(composite))


def _field_values(composite: Composite) -> list[Value]:
    return [
        None if (value := getattr(composite, name)) is None else field_type.write(value)
        for name, field_type, _, _ in _slots(type(composite))
    ]


def read_composite(cls: type[C], value: Value) -> C:
    """The composite `cls` from its list; DecodeError names the field that is wrong."""
    if not isinstance(value, list):
        raise DecodeError(f"{cls.NAME} is a {type(value).__name__}; it has to be a list")
    slots = _slots(cls)
    if len(value) > len(slots):
        raise DecodeError(f"{cls.NAME} has {len(value)} fields; it takes at most {len(slots)}")
    found: dict[str, Any] = {}
    # In one loop and not with a function for each field: a receiver that takes messages one by one sends a flow for each.
    for (name, field_type, default, is_mandatory), field in zip_longest(slots, value):
        if field is None:
            if is_mandatory:
                raise DecodeError(f"{cls.NAME} has no {name}, which is mandatory")
            found[name] = default
            continue
        try:
            found[name] = field_type.read(field)
        except ValueError:
            raise DecodeError(f"{name} of {cls.NAME} is {shortened(field)}; it has to be {field_type.name}") from None
    return cls(**found)


def one_of(name: str, *classes: type[Composite]) -> FieldType:
    """A field that holds one of these composites, recognized by either form of its descriptor."""
    by_descriptor: dict[Value, type[Composite]] = {key: cls for cls in classes for key in (cls.CODE, cls.NAME)}

    def read(value: Value) -> Composite:
        # A descriptor can be any value, so also one that no dictionary can look up.
        if isinstance(value, Described) and isinstance(value.descriptor, int | str):
            cls = by_descriptor.get(value.descriptor)
            if cls is not None:
                return read_composite(cls, value.value)
        raise DecodeError(f"{shortened(value)} is not {name}")

    return FieldType(name, read, to_described)


def _slots(cls: type[Composite]) -> tuple[_Slot, ...]:
    found = _SLOTS.get(cls)
    if found is None:
        hints = get_type_hints(cls, include_extras=True)
        found = _SLOTS[cls] = tuple(
            _Slot(
                field.name,
                hints[field.name].__metadata__[0],
                None if field.default is MISSING else field.default,
                field.default is MISSING,
            )
            for field in fields(cls)
        )
    return found


def _integer(name: str, bits: int, wire_type: Callable[[int], Value]) -> FieldType:
    def read(value: Value) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << bits:
            raise ValueError
        return int(value)

    return FieldType(name, read, wire_type)


def _instance(name: str, cls: type, write: Callable[[Any], Value]) -> FieldType:
    def read(value: Value) -> Any:
        if not isinstance(value, cls):
            raise ValueError
        return value

    return FieldType(name, read, write)


def _as_is(value: Value) -> Value:
    return value


def _read_symbols(value: Value) -> tuple[str, ...]:
    """A field of the kind `multiple` (section 1.4): one value as itself, or any number of them in an array."""
    elements = value.values if isinstance(value, Array) else value if isinstance(value, list) else [value]
    if not all(isinstance(element, str) for element in elements):
        raise ValueError
    return tuple(elements)


def _write_symbols(value: tuple[str, ...]) -> Value:
    return Array([Symbol(element) for element in value], 0xA3)


USHORT = _integer("a ushort", 16, UShort)
UINT = _integer("a uint", 32, UInt)
ULONG = _integer("a ulong", 64, ULong)
BOOLEAN = _instance("a boolean", bool, _as_is)
STRING = _instance("a string", str, str)
SYMBOL = _instance("a symbol", str, Symbol)
BINARY = _instance("a binary", bytes, _as_is)
MAP = _instance("a map", dict, _as_is)
SYMBOLS = FieldType("one or more symbols", _read_symbols, _write_symbols)
ANY = FieldType("any value", _as_is, _as_is)


def enumeration(name: str, enum: Callable[[int], Any], wire_type: Callable[[int], Value]) -> FieldType:
    """A field with a few possible values; any other value is refused."""
    return FieldType(name, enum, wire_type)
