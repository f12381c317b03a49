"""AMQP values: Python values in, bytes out, each in its shortest encoding (AMQP 1.0 part 1, section 1.6).

The value's class determines the writer. `ENCODED_NULL` and the functions for lists and maps of parts that are
already encoded are for callers that build frames and sections by hand.
"""

from collections.abc import Callable, Sequence
from struct import Struct, error
from typing import TypeAlias
from uuid import UUID

from twinbus.amqp.codec import types
from twinbus.amqp.codec.arrays import encode_array
from twinbus.amqp.codec.types import Array, Described, Value
from twinbus.amqp.errors import EncodeError

ENCODED_NULL = b"\x40"
EMPTY_LIST = b"\x45"

Writer: TypeAlias = Callable[[Value], bytes]

_CODE = Struct(">B").pack
_CODE_U8 = Struct(">BB").pack
_CODE_I8 = Struct(">Bb").pack
_CODE_U16 = Struct(">BH").pack
_CODE_I16 = Struct(">Bh").pack
_CODE_U32 = Struct(">BI").pack
_CODE_I32 = Struct(">Bi").pack
_CODE_U64 = Struct(">BQ").pack
_CODE_I64 = Struct(">Bq").pack
_CODE_F32 = Struct(">Bf").pack
_CODE_F64 = Struct(">Bd").pack
_CODE_U8_U8 = Struct(">BBB").pack
_CODE_U32_U32 = Struct(">BII").pack

INT_MIN, INT_MAX = -(2**31), 2**31 - 1


def encode_value(value: Value) -> bytes:
    """The value in its shortest form; EncodeError if no AMQP type can hold it."""
    try:
        return _encode(value)
    except error:
        raise EncodeError(f"{value!r} is out of range for the AMQP type of {type(value).__name__}") from None
    except UnicodeEncodeError as fault:
        raise EncodeError(f"a text cannot be encoded as UTF-8: {fault.reason}") from None
    except RecursionError:
        raise EncodeError("values are nested too deeply to be encoded") from None


def encode_list(parts: Sequence[bytes]) -> bytes:
    """A list of elements that are already encoded."""
    if not parts:
        return EMPTY_LIST
    return _compound(0xC0, 0xD0, b"".join(parts), len(parts))


def encode_map(parts: Sequence[bytes]) -> bytes:
    """A map of keys and values, in turn, that are already encoded."""
    return _compound(0xC1, 0xD1, b"".join(parts), len(parts))


def encode_joined_map(elements: bytes, count: int) -> bytes:
    """The same, of so many that are joined already."""
    return _compound(0xC1, 0xD1, elements, count)


def encode_descriptor(code: int) -> bytes:
    """The start of a described value whose descriptor is a `smallulong`, as those of the specification are."""
    return bytes((0x00, 0x53, code))


def encode_binary(data: bytes) -> bytes:
    size = len(data)
    return (_CODE_U8(0xA0, size) if size < 256 else _CODE_U32(0xB0, size)) + data


def encode_string(text: str) -> bytes:
    data = text.encode()
    size = len(data)
    return (_CODE_U8(0xA1, size) if size < 256 else _CODE_U32(0xB1, size)) + data


def encode_symbol(text: str) -> bytes:
    data = text.encode()
    size = len(data)
    return (_CODE_U8(0xA3, size) if size < 256 else _CODE_U32(0xB3, size)) + data


def _encode(value: Value) -> bytes:
    writer = _WRITERS.get(type(value))
    return _writer_of_base(value)(value) if writer is None else writer(value)


def _writer_of_base(value: Value) -> Writer:
    """The writer of the nearest base class, so that enumerations of ints and strs can be encoded."""
    for base in type(value).__mro__:
        if base in _WRITERS:
            return _WRITERS[base]
    raise EncodeError(f"no AMQP type for a value of {type(value).__name__}")


def _compound(code8: int, code32: int, body: bytes, count: int) -> bytes:
    # The size covers everything after it, so the count as well (section 1.6.22).
    if len(body) < 255 and count < 256:
        return _CODE_U8_U8(code8, len(body) + 1, count) + body
    return _CODE_U32_U32(code32, len(body) + 4, count) + body


def _null(value: Value) -> bytes:
    return ENCODED_NULL


def _boolean(value: Value) -> bytes:
    return b"\x41" if value else b"\x42"


def _uint(value: Value) -> bytes:
    if value == 0:
        return b"\x43"
    return _CODE_U8(0x52, value) if value < 256 else _CODE_U32(0x70, value)


def _ulong(value: Value) -> bytes:
    if value == 0:
        return b"\x44"
    return _CODE_U8(0x53, value) if value < 256 else _CODE_U64(0x80, value)


def _int(value: Value) -> bytes:
    return _CODE_I8(0x54, value) if -128 <= value < 128 else _CODE_I32(0x71, value)


def _long(value: Value) -> bytes:
    return _CODE_I8(0x55, value) if -128 <= value < 128 else _CODE_I64(0x81, value)


def _bare_int(value: Value) -> bytes:
    return _int(value) if INT_MIN <= value <= INT_MAX else _long(value)


def _float(value: Value) -> bytes:
    try:
        return _CODE_F32(0x72, value)
    except OverflowError:
        raise EncodeError(f"{value!r} is out of range for a float of 4 bytes") from None


def _prefixed(pack: Callable[[int, Value], bytes], code: int) -> Writer:
    def write(value: Value) -> bytes:
        return pack(code, value)

    return write


def _decimal(code: int, width: int) -> Writer:
    def write(value: Value) -> bytes:
        if len(value) != width:
            raise EncodeError(f"a decimal has {len(value)} bytes; it has to have {width}")
        return _CODE(code) + bytes(value)

    return write


def _char(value: Value) -> bytes:
    if len(value) != 1 or "\ud800" <= value <= "\udfff":
        raise EncodeError(f"{value!r} is not one Unicode character")
    return _CODE_U32(0x73, ord(value))


def _uuid(value: Value) -> bytes:
    return b"\x98" + bytes(value.bytes)


def _list(value: Value) -> bytes:
    return encode_list([_encode(element) for element in value])


def _map(value: Value) -> bytes:
    parts: list[bytes] = []
    for key, element in value.items():
        parts += (_encode(key), _encode(element))
    return encode_map(parts)


def _described(value: Value) -> bytes:
    return b"\x00" + _encode(value.descriptor) + _encode(value.value)


def _array(value: Value) -> bytes:
    return encode_array(value, _encode)


_WRITERS: dict[type, Writer] = {
    type(None): _null,
    bool: _boolean,
    int: _bare_int,
    types.UByte: _prefixed(_CODE_U8, 0x50),
    types.UShort: _prefixed(_CODE_U16, 0x60),
    types.UInt: _uint,
    types.ULong: _ulong,
    types.Byte: _prefixed(_CODE_I8, 0x51),
    types.Short: _prefixed(_CODE_I16, 0x61),
    types.Int: _int,
    types.Long: _long,
    float: _prefixed(_CODE_F64, 0x82),
    types.Float: _float,
    types.Timestamp: _prefixed(_CODE_I64, 0x83),
    types.Decimal32: _decimal(0x74, 4),
    types.Decimal64: _decimal(0x84, 8),
    types.Decimal128: _decimal(0x94, 16),
    types.Char: _char,
    UUID: _uuid,
    types.Encoded: bytes,
    bytes: encode_binary,
    bytearray: encode_binary,
    str: encode_string,
    types.Symbol: encode_symbol,
    list: _list,
    tuple: _list,
    dict: _map,
    Described: _described,
    Array: _array,
}
