"""The place of a wrong bit is known from the checksum alone."""

import zlib
from random import Random

from twinbus.store.folder.flipped_bit import BitPlace, flipped_bit


def flipped(data: bytes, place: BitPlace) -> bytes:
    changed = bytearray(data)
    changed[place.byte] ^= 1 << place.bit
    return bytes(changed)


def test_every_bit_of_a_few_bytes_is_found() -> None:
    data = b"order 42"
    for place in [BitPlace(byte, bit) for byte in range(len(data)) for bit in range(8)]:
        difference = zlib.crc32(data) ^ zlib.crc32(flipped(data, place))
        assert flipped_bit(difference, len(data)) == place


def test_a_bit_of_megabytes_is_found() -> None:
    random = Random(1)
    data = random.randbytes(3_000_000)
    for place in [BitPlace(0, 0), BitPlace(2_999_999, 7), BitPlace(1_234_567, 3)]:
        assert flipped_bit(zlib.crc32(data) ^ zlib.crc32(flipped(data, place)), len(data)) == place


def test_two_wrong_bits_are_not_taken_for_one() -> None:
    random = Random(2)
    data = random.randbytes(500)
    for _ in range(200):
        first, second = (BitPlace(random.randrange(500), random.randrange(8)) for _ in range(2))
        if first != second:
            damaged = flipped(flipped(data, first), second)
            assert flipped_bit(zlib.crc32(data) ^ zlib.crc32(damaged), len(data)) is None


def test_a_bit_before_the_first_one_is_none_of_them() -> None:
    for size in (1, 2, 100):
        longer = bytes(size + 1)
        difference = zlib.crc32(longer) ^ zlib.crc32(flipped(longer, BitPlace(0, 7)))
        assert flipped_bit(difference, size + 1) == BitPlace(0, 7)
        assert flipped_bit(difference, size) is None


def test_without_a_difference_no_bit_is_wrong() -> None:
    assert flipped_bit(0, 100) is None
    assert flipped_bit(12345, 0) is None
