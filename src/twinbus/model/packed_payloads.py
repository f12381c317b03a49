"""Pieces of bytes by the thousand as two values: all of them without a gap, and where each ends. A page of messages then costs
a few calls and not a few for each, on both sides of a line, and is a column of Arrow as it stands.

    joined   the bytes of the first, then those of the second, ...
    ends     4 bytes for each, big-endian: how many bytes of `joined` lie before its end
"""

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

assert array("I").itemsize == 4

_IS_SWAPPED = sys.byteorder == "little"


def pack_numbers(numbers: Iterable[int]) -> bytes:
    packed = array("I", numbers)
    if _IS_SWAPPED:
        packed.byteswap()
    return packed.tobytes()


def unpack_numbers(packed: bytes) -> "array[int]":
    numbers = array("I", packed)
    if _IS_SWAPPED:
        numbers.byteswap()
    return numbers


def pack(pieces: Sequence[bytes | memoryview]) -> tuple[bytes, bytes]:
    return b"".join(pieces), pack_numbers(accumulate(map(len, pieces)))


def unpack(joined: bytes, ends: bytes) -> list[bytes]:
    return [joined[start:end] for start, end in pairwise([0, *unpack_numbers(ends)])]
