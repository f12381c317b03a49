"""The checksum of journals and tables is that of zlib, whatever computes it: a store is opened with and without ISA-L."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from twinbus.store.crc32 import crc32


@given(st.binary(max_size=3_000), st.binary(max_size=3_000))
def test_it_is_that_of_zlib_also_of_views_and_of_what_comes_in_pieces(first: bytes, second: bytes) -> None:
    assert crc32(first) == zlib.crc32(first)
    assert crc32(memoryview(second), crc32(first)) == zlib.crc32(first + second)
