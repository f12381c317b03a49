"""AMQP values: bytes in, Python values out (AMQP 1.0 part 1, section 1.6).

A table has the reader for each constructor, the first byte of every value (`twinbus.amqp.codec.layout` draws what
follows it). For malformed bytes of any kind a DecodeError is raised and nothing else, and no more memory is used
than a fixed multiple of the input.
"""

from collections.abc import Callable
from struct import Struct, error
from typing import TypeAlias, TypeVar
from uuid import UUID

from twinbus.amqp.codec import types
from twinbus.amqp.codec.layout import ARRAY_DESCRIPTORS_MAX, WIDTHS
from twinbus.amqp.codec.types import Array, Described, Symbol, Value
from twinbus.amqp.errors import DecodeError

DEPTH_MAX = 64
"""Readers call each other for nested values: this keeps hostile nesting far from Python's recursion limit."""
ELEMENTS_MAX = 65_536
"""A frame of the size that a connection announces by default cannot hold more, with a byte or more each."""
EMPTY_ELEMENTS_MAX = 8
"""Elements of an array that take no bytes. Such an array takes three bytes, and a frame of 64 KB holds twenty thousand of them."""
EQUAL_HASHES_MAX = 16
"""Keys of a map that have the hash of an earlier key. Hashes of uuids are not salted as those of texts are, so a peer can choose
them: a few thousand keys with the same hash, in a single frame, would keep a dictionary busy for a second."""

Reader: TypeAlias = Callable[[bytes, int, int], tuple[Value, int]]
"""(data, position after the constructor, depth) to (value, position after the value)."""

T = TypeVar("T")

_U16 = Struct(">H").unpack_from
_U32 = Struct(">I").unpack_from
_U64 = Struct(">Q").unpack_from
_I16 = Struct(">h").unpack_from
_I32 = Struct(">i").unpack_from
_I64 = Struct(">q").unpack_from
_F32 = Struct(">f").unpack_from
_F64 = Struct(">d").unpack_from
_U32_U32 = Struct(">II").unpack_from


def decode_value(data: bytes, pos: int) -> tuple[Value, int]:
    """The value that starts at `pos` and the position after it."""
    try:
        return _READERS[data[pos]](data, pos + 1, 0)
    except (IndexError, error):
        raise DecodeError(f"the value at byte {pos} extends beyond the end of the data ({len(data)} bytes)") from None
    except UnicodeDecodeError as fault:
        raise DecodeError(f"the value at byte {pos} holds text that is not UTF-8: {fault.reason}") from None


def _unknown(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
    raise DecodeError(f"byte {pos - 1} is 0x{data[pos - 1]:02x}, which is not the start of an AMQP value")


def _constant(make: Callable[[], Value]) -> Reader:
    def read(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
        return make(), pos

    return read


def _one_byte(values: list[Value]) -> Reader:
    def read(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
        return values[data[pos]], pos + 1

    return read


def _fixed(make: Callable[[T], Value], unpack: Callable[[bytes, int], tuple[T]], width: int) -> Reader:
    def read(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
        return make(unpack(data, pos)[0]), pos + width

    return read


def _whole(make: Callable[[bytes], Value], width: int) -> Reader:
    def read(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
        end = pos + width
        if end > len(data):
            raise IndexError
        return make(data[pos:end]), end

    return read


def _sized8(make: Callable[[bytes], Value]) -> Reader:
    def read(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
        end = pos + 1 + data[pos]
        if end > len(data):
            raise IndexError
        return make(data[pos + 1 : end]), end

    return read


def _sized32(make: Callable[[bytes], Value]) -> Reader:
    def read(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
        end = pos + 4 + _U32(data, pos)[0]
        if end > len(data):
            raise IndexError
        return make(data[pos + 4 : end]), end

    return read


def _boolean(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
    if data[pos] > 1:
        raise DecodeError(f"byte {pos} is 0x{data[pos]:02x}, but a boolean is 0 or 1")
    return data[pos] == 1, pos + 1


def _char(code_point: int) -> types.Char:
    if code_point > 0x10FFFF or 0xD800 <= code_point <= 0xDFFF:
        raise DecodeError(f"0x{code_point:x} is not a Unicode character")
    return types.Char(chr(code_point))


def _symbol(data: bytes) -> Symbol:
    # Section 1.6.21 allows ASCII only, but SDKs write the annotation names that users choose in UTF-8.
    return Symbol(data.decode())


def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


def _described(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
    if depth >= DEPTH_MAX:
        raise _too_much(depth, 0)
    depth += 1
    descriptor, pos = _READERS[data[pos]](data, pos + 1, depth)
    value, pos = _READERS[data[pos]](data, pos + 1, depth)
    return Described(descriptor, value), pos


def _list8(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
    return _elements(data, pos + 2, pos + 1 + data[pos], data[pos + 1], depth)


def _list32(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
    size, count = _U32_U32(data, pos)
    return _elements(data, pos + 8, pos + 4 + size, count, depth)


def _map8(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
    return _map(*_elements(data, pos + 2, pos + 1 + data[pos], data[pos + 1], depth))


def _map32(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
    size, count = _U32_U32(data, pos)
    return _map(*_elements(data, pos + 8, pos + 4 + size, count, depth))


def _array8(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
    return _array(data, pos + 2, pos + 1 + data[pos], data[pos + 1], depth)


def _array32(data: bytes, pos: int, depth: int) -> tuple[Value, int]:
    size, count = _U32_U32(data, pos)
    return _array(data, pos + 8, pos + 4 + size, count, depth)


def _elements(data: bytes, pos: int, end: int, count: int, depth: int) -> tuple[list[Value], int]:
    if end > len(data):
        raise IndexError
    if depth >= DEPTH_MAX or count > ELEMENTS_MAX:
        raise _too_much(depth, count)
    depth += 1
    readers = _READERS
    values = []
    for _ in range(count):
        value, pos = readers[data[pos]](data, pos + 1, depth)
        values.append(value)
    if pos != end:
        raise _wrong_end(pos, end)
    return values, pos


def _map(elements: list[Value], end: int) -> tuple[Value, int]:
    keys = elements[::2]
    if len(elements) % 2:
        raise DecodeError(f"the map that ends at byte {end} has a key without a value")
    try:
        if len(keys) > EQUAL_HASHES_MAX and len(keys) - len(set(map(hash, keys))) > EQUAL_HASHES_MAX:
            raise DecodeError(f"the map that ends at byte {end} has many keys with the same hash, or duplicate keys")
        mapping = dict(zip(keys, elements[1::2], strict=True))
    except TypeError:
        raise DecodeError(f"the map that ends at byte {end} has a list, map or array as a key") from None
    if len(mapping) != len(keys):
        raise DecodeError(f"the map that ends at byte {end} has a duplicate key")
    return mapping, end


def _array(data: bytes, pos: int, end: int, count: int, depth: int) -> tuple[Value, int]:
    if end > len(data):
        raise IndexError
    if depth >= DEPTH_MAX or count > ELEMENTS_MAX:
        raise _too_much(depth, count)
    depth += 1
    descriptors: list[Value] = []
    code = data[pos]
    while code == 0:
        # Each descriptor wraps the elements once more, so it counts as a level.
        depth += 1
        if depth > DEPTH_MAX:
            raise _too_much(depth, count)
        if len(descriptors) == ARRAY_DESCRIPTORS_MAX:
            raise DecodeError(f"the elements of an array have more than {ARRAY_DESCRIPTORS_MAX} descriptors")
        descriptor, pos = _READERS[data[pos + 1]](data, pos + 2, depth)
        descriptors.append(descriptor)
        code = data[pos]
    pos += 1
    # Refused even if no element follows it.
    if code not in _KNOWN:
        _unknown(data, pos, depth)
    if WIDTHS[code] == 0 and count > EMPTY_ELEMENTS_MAX:
        raise DecodeError(f"an array has {count} elements without bytes; the limit is {EMPTY_ELEMENTS_MAX}")
    read = _READERS[code]
    values = []
    for _ in range(count):
        value, pos = read(data, pos, depth)
        values.append(value)
    if pos != end:
        raise _wrong_end(pos, end)
    for descriptor in reversed(descriptors):
        values = [Described(descriptor, value) for value in values]
    return Array(values, code), pos


def _too_much(depth: int, count: int) -> DecodeError:
    if depth >= DEPTH_MAX:
        return DecodeError(f"values are nested deeper than {DEPTH_MAX}")
    return DecodeError(f"a list, map or array has {count} elements; the limit is {ELEMENTS_MAX}")


def _wrong_end(pos: int, end: int) -> DecodeError:
    return DecodeError(f"elements end at byte {pos}, but their size says {end}")


def _nothing() -> None:
    return None


def _yes() -> bool:
    return True


def _no() -> bool:
    return False


def _signed(values: range, make: Callable[[int], Value]) -> list[Value]:
    return [make(value if value < 128 else value - 256) for value in values]


_BYTES = range(256)

_KNOWN: dict[int, Reader] = {
    0x00: _described,
    0x40: _constant(_nothing),
    0x41: _constant(_yes),
    0x42: _constant(_no),
    0x43: _constant(types.UInt),
    0x44: _constant(types.ULong),
    0x45: _constant(list),
    0x50: _one_byte([types.UByte(value) for value in _BYTES]),
    0x51: _one_byte(_signed(_BYTES, types.Byte)),
    0x52: _one_byte([types.UInt(value) for value in _BYTES]),
    0x53: _one_byte([types.ULong(value) for value in _BYTES]),
    0x54: _one_byte(_signed(_BYTES, types.Int)),
    0x55: _one_byte(_signed(_BYTES, types.Long)),
    0x56: _boolean,
    0x60: _fixed(types.UShort, _U16, 2),
    0x61: _fixed(types.Short, _I16, 2),
    0x70: _fixed(types.UInt, _U32, 4),
    0x71: _fixed(types.Int, _I32, 4),
    0x72: _fixed(types.Float, _F32, 4),
    0x73: _fixed(_char, _U32, 4),
    0x74: _whole(types.Decimal32, 4),
    0x80: _fixed(types.ULong, _U64, 8),
    0x81: _fixed(types.Long, _I64, 8),
    0x82: _fixed(float, _F64, 8),
    0x83: _fixed(types.Timestamp, _I64, 8),
    0x84: _whole(types.Decimal64, 8),
    0x94: _whole(types.Decimal128, 16),
    0x98: _whole(_uuid, 16),
    0xA0: _sized8(bytes),
    0xA1: _sized8(bytes.decode),
    0xA3: _sized8(_symbol),
    0xB0: _sized32(bytes),
    0xB1: _sized32(bytes.decode),
    0xB3: _sized32(_symbol),
    0xC0: _list8,
    0xC1: _map8,
    0xD0: _list32,
    0xD1: _map32,
    0xE0: _array8,
    0xF0: _array32,
}

_READERS: list[Reader] = [_KNOWN.get(code, _unknown) for code in _BYTES]
