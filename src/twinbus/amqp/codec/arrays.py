"""AMQP arrays: values that share a constructor in, bytes out (AMQP 1.0 part 1, section 1.6.24).

The constructor comes once, in front, and the elements follow without it. So the constructor's code decides how an
element is written, and not its class, as for all other values (`twinbus.amqp.codec.encode`).
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TypeAlias
from uuid import UUID

from twinbus.amqp.codec import types
from twinbus.amqp.codec.types import Array, Described, Value
from twinbus.amqp.errors import EncodeError

Encode: TypeAlias = Callable[[Value], bytes]

_U8, _U32 = Struct(">B"), Struct(">I")
_U8_U8, _U32_U32 = Struct(">BB"), Struct(">II")
_INT = range(-(2**31), 2**31)


def encode_array(array: Array, encode: Encode) -> bytes:
    """The array with its constructor; `encode` writes whatever is nested in the elements."""
    body, count = _body(array, encode)
    if len(body) < 255 and count < 256:
        return b"\xe0" + _U8_U8.pack(len(body) + 1, count) + body
    return b"\xf0" + _U32_U32.pack(len(body) + 4, count) + body


def _body(array: Array, encode: Encode) -> tuple[bytes, int]:
    elements = array.values
    constructor = b""
    while elements and isinstance(elements[0], Described):
        constructor += b"\x00" + encode(elements[0].descriptor)
        elements = _undescribed(elements)
    code = _code_of(elements) if array.code is None else array.code
    write = _PLAIN.get(code)
    parts = [write(element) for element in elements] if write else _nested(elements, code, encode)
    return constructor + _U8.pack(code) + b"".join(parts), len(elements)


def _undescribed(elements: Sequence[Value]) -> list[Value]:
    descriptor = elements[0].descriptor
    # The very same one is enough: what was read has a single one, which need not be equal to itself.
    if not all(
        isinstance(element, Described) and (element.descriptor is descriptor or element.descriptor == descriptor)
        for element in elements
    ):
        raise EncodeError("the elements of an array have different descriptors; use a list")
    return [element.value for element in elements]


def _code_of(elements: Sequence[Value]) -> int:
    """The widest constructor of the elements' class, so that each of them fits."""
    if not elements:
        return 0x40
    classes = {type(element) for element in elements}
    if len(classes) > 1:
        raise EncodeError("the elements of an array have different types; use a list")
    element_class = classes.pop()
    if element_class is int:
        return 0x71 if all(element in _INT for element in elements) else 0x81
    if element_class not in _WIDEST:
        raise EncodeError(f"no AMQP array holds values of {element_class.__name__}")
    return _WIDEST[element_class]


def _nested(elements: Sequence[Value], code: int, encode: Encode) -> list[bytes]:
    """Lists, maps and arrays as elements, in the width of size and count that the code asks for."""
    if code not in _COMPOUND:
        raise EncodeError(f"0x{code:02x} is not a constructor that an array can have")
    size = _U8 if code < 0xD0 or code == 0xE0 else _U32
    parts = []
    for element in elements:
        if isinstance(element, Array):
            body, count = _body(element, encode)
        else:
            inner = element if isinstance(element, list) else [part for pair in element.items() for part in pair]
            body, count = b"".join([encode(part) for part in inner]), len(inner)
        parts.append(size.pack(size.size + len(body)) + size.pack(count) + body)
    return parts


def _nothing(value: Value) -> bytes:
    return b""


def _boolean(value: Value) -> bytes:
    return b"\x01" if value else b"\x00"


def _float(value: Value) -> bytes:
    try:
        return Struct(">f").pack(value)
    except OverflowError:
        raise EncodeError(f"{value!r} is out of range for a float of 4 bytes") from None


def _char(value: Value) -> bytes:
    if len(value) != 1 or "\ud800" <= value <= "\udfff":
        raise EncodeError(f"{value!r} is not one Unicode character")
    return _U32.pack(ord(value))


def _uuid(value: Value) -> bytes:
    return bytes(value.bytes)


def _whole(width: int) -> Encode:
    def write(value: Value) -> bytes:
        if len(value) != width:
            raise EncodeError(f"an element has {len(value)} bytes; it has to have {width}")
        return bytes(value)

    return write


def _sized(size: Struct, data_of: Encode) -> Encode:
    def write(value: Value) -> bytes:
        data = data_of(value)
        return size.pack(len(data)) + data

    return write


_COMPOUND = frozenset((0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0))

_PLAIN: dict[int, Encode] = {
    **dict.fromkeys((0x40, 0x41, 0x42, 0x43, 0x44, 0x45), _nothing),
    **dict.fromkeys((0x50, 0x52, 0x53), _U8.pack),
    **dict.fromkeys((0x51, 0x54, 0x55), Struct(">b").pack),
    0x56: _boolean,
    0x60: Struct(">H").pack,
    0x61: Struct(">h").pack,
    0x70: _U32.pack,
    0x71: Struct(">i").pack,
    0x72: _float,
    0x73: _char,
    0x74: _whole(4),
    0x80: Struct(">Q").pack,
    0x81: Struct(">q").pack,
    0x82: Struct(">d").pack,
    0x83: Struct(">q").pack,
    0x84: _whole(8),
    0x94: _whole(16),
    0x98: _uuid,
    0xA0: _sized(_U8, bytes),
    0xA1: _sized(_U8, str.encode),
    0xA3: _sized(_U8, str.encode),
    0xB0: _sized(_U32, bytes),
    0xB1: _sized(_U32, str.encode),
    0xB3: _sized(_U32, str.encode),
}

_WIDEST: dict[type, int] = {
    type(None): 0x40,
    bool: 0x56,
    types.UByte: 0x50,
    types.UShort: 0x60,
    types.UInt: 0x70,
    types.ULong: 0x80,
    types.Byte: 0x51,
    types.Short: 0x61,
    types.Int: 0x71,
    types.Long: 0x81,
    float: 0x82,
    types.Float: 0x72,
    types.Timestamp: 0x83,
    types.Decimal32: 0x74,
    types.Decimal64: 0x84,
    types.Decimal128: 0x94,
    types.Char: 0x73,
    UUID: 0x98,
    bytes: 0xB0,
    str: 0xB1,
    types.Symbol: 0xB3,
    list: 0xD0,
    dict: 0xD1,
    Array: 0xF0,
}
