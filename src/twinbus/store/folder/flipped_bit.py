"""Which single bit of some bytes is wrong, from their CRC-32 alone: the difference of two checksums in, a place out.

The checksum is linear: flipping one bit changes it by a value that depends only on how many bits follow. That value is T^k(P)
for k following bits, where T is one step of the checksum's shift register and P its polynomial. All of them differ up to
2^32 - 1 bits, so the place is found, or it is certain that no single bit explains the difference.
"""

from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

POLYNOMIAL: Final = 0xEDB88320
STRIDE_BITS: Final = 12
STRIDE: Final = 1 << STRIDE_BITS


class BitPlace(NamedTuple):
    byte: int
    bit: int  # 0 is the lowest


def flipped_bit(difference: int, size: int) -> BitPlace | None:
    """The bit of `size` bytes that changes their CRC-32 by `difference`; None if there is none.

    k = i * STRIDE + j: values of all j are in a table, and steps of STRIDE lead back from the difference until one is met.
    """
    followers, back = _first_followers(), _stride_back()
    for i in range((8 * size + STRIDE - 1) // STRIDE):
        j_found = followers.get(difference)
        if j_found is not None:
            following = i * STRIDE + j_found
            if following >= 8 * size:
                return None
            return BitPlace(size - 1 - following // 8, 7 - following % 8)
        difference = back(difference)
    return None


@cache
def _first_followers() -> dict[int, int]:
    """How many bits follow the flipped one, by the change of the checksum, if fewer than STRIDE do."""
    followers: dict[int, int] = {}
    value = POLYNOMIAL
    for j in range(STRIDE):
        followers[value] = j
        value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
    return followers


@cache
def _stride_back() -> Callable[[int], int]:
    """T^-STRIDE, as sums of the images of single bits, looked up by byte."""
    images = [_step_back(1 << bit) for bit in range(32)]
    for _ in range(STRIDE_BITS):
        images = [_sum(images, image) for image in images]
    low, second, third, high = ([_sum(images, byte << shift) for byte in range(256)] for shift in (0, 8, 16, 24))
    return lambda value: (
        low[value & 255] ^ second[value >> 8 & 255] ^ third[value >> 16 & 255] ^ high[value >> 24 & 255]
    )


def _step_back(value: int) -> int:
    return ((value ^ POLYNOMIAL) << 1 | 1) if value & 0x80000000 else value << 1


def _sum(images: list[int], value: int) -> int:
    total = 0
    for bit in range(32):
        if value >> bit & 1:
            total ^= images[bit]
    return total
