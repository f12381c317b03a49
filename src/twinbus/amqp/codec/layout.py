"""How many bytes a value takes, by its constructor: data and position in, position after the value out (AMQP 1.0 part 1, section 1.2).

The first byte of a value is its constructor, and its high half gives the layout of the rest:

4x  no bytes        7x  4 bytes    Ax  1-byte size, bytes     Dx  4-byte size, 4-byte count, elements
5x  1 byte          8x  8 bytes    Bx  4-byte size, bytes     Ex  1-byte size, 1-byte count, constructor, elements
6x  2 bytes         9x  16 bytes   Cx  1-byte size, 1-byte    Fx  4-byte size, 4-byte count, constructor, elements
00  descriptor, value                  count, elements
"""

from struct import Struct, error

from twinbus.amqp.errors import DecodeError

# In WIDTHS, for constructors whose value has no fixed width.
UNKNOWN, DESCRIBED, SIZE8, SIZE32 = -1, -2, -3, -4

_BY_HIGH_HALF = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16, 0xA: SIZE8, 0xB: SIZE32}
_BY_HIGH_HALF |= {0xC: SIZE8, 0xD: SIZE32, 0xE: SIZE8, 0xF: SIZE32}

# The constructors that the specification assigns to a type.
_ASSIGNED = frozenset(
    bytes.fromhex("404142434445 50515253545556 6061 7071727374 8081828384 9498 a0a1a3 b0b1b3 c0c1 d0d1 e0 f0")
)


def _width(code: int) -> int:
    if code == 0:
        return DESCRIBED
    return _BY_HIGH_HALF[code >> 4] if code in _ASSIGNED else UNKNOWN


WIDTHS: tuple[int, ...] = tuple(_width(code) for code in range(256))
"""By constructor: how many bytes follow it, or one of the negative marks."""

ARRAY_DESCRIPTORS_MAX = 2
"""Descriptors of the elements of an array. Each takes two bytes, and wraps every element once more."""

_U32 = Struct(">I").unpack_from

_LISTS_AND_MAPS = {0xC0: 3, 0xC1: 3, 0xD0: 9, 0xD1: 9}
"""Bytes before the first element."""
_ARRAYS = {0xE0: (2, Struct(">BB").unpack_from), 0xF0: (8, Struct(">II").unpack_from)}
"""Bytes of size and count, which is included in the size."""


def skip_value(data: bytes, pos: int) -> int:
    """The position after the value at `pos`. Only sizes are checked: what is inside may still be malformed."""
    start = pos
    pending = 1  # a descriptor adds one: descriptor and described value together are one value
    try:
        while pending:
            width = WIDTHS[data[pos]]
            if width >= 0:
                pos += 1 + width
            elif width == SIZE8:
                pos += 2 + data[pos + 1]
            elif width == SIZE32:
                pos += 5 + _U32(data, pos + 1)[0]
            elif width == DESCRIBED:
                pos += 1
                pending += 1
                continue
            else:
                raise DecodeError(f"byte {pos} is 0x{data[pos]:02x}, which is not the start of an AMQP value")
            pending -= 1
    except (IndexError, error):
        pos = len(data) + 1
    if pos > len(data):
        raise DecodeError(f"the value at byte {start} extends beyond the end of the data ({len(data)} bytes)")
    return pos


def has_more_values(data: bytes, count_max: int) -> bool:
    """Whether the values that follow one another in the data, with all that are in them, are more than this.

    Descriptors count too. An array of lists, maps, arrays or described values counts as one for each of its bytes, and as two for
    each descriptor that an element can have, which it cannot exceed. Only sizes are followed: what is malformed may be counted as anything.
    """
    pos = count = 0
    try:
        while pos < len(data) and count <= count_max:
            count += 1
            code = data[pos]
            width = WIDTHS[code]
            if width >= 0:
                pos += 1 + width
            elif code in _LISTS_AND_MAPS:
                pos += _LISTS_AND_MAPS[code]
            elif code in _ARRAYS:
                head_size, read_size_and_count = _ARRAYS[code]
                size, element_count = read_size_and_count(data, pos + 1)
                pos += 1 + head_size
                is_flat = WIDTHS[data[pos]] >= 0 or data[pos] >> 4 in (0xA, 0xB)
                count += element_count if is_flat else size + 2 * ARRAY_DESCRIPTORS_MAX * element_count
                pos += size - head_size // 2
            elif width == DESCRIBED:
                pos += 1
            elif width == UNKNOWN:
                return False
            else:
                pos += 2 + data[pos + 1] if width == SIZE8 else 5 + _U32(data, pos + 1)[0]
    except (IndexError, error):
        return False
    return count > count_max
