"""Every encoding is read, and bytes that are none raise DecodeError and nothing else."""

import contextlib
import math
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.amqp.codec.values import same, values
from twinbus.amqp.codec.decode import DEPTH_MAX, ELEMENTS_MAX, EMPTY_ELEMENTS_MAX, EQUAL_HASHES_MAX, decode_value
from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.layout import skip_value
from twinbus.amqp.codec.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)
from twinbus.amqp.errors import DecodeError


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("40", None),
        ("41", True),
        ("42", False),
        ("56 01", True),
        ("56 00", False),
        ("43", UInt(0)),
        ("44", ULong(0)),
        ("45", []),
        ("50 80", UByte(128)),
        ("51 80", Byte(-128)),
        ("52 80", UInt(128)),
        ("53 80", ULong(128)),
        ("54 80", Int(-128)),
        ("55 80", Long(-128)),
        ("60 8000", UShort(2**15)),
        ("61 8000", Short(-(2**15))),
        ("70 80000000", UInt(2**31)),
        ("71 80000000", Int(-(2**31))),
        ("72 3fc00000", Float(1.5)),
        ("73 0001f600", Char("\U0001f600")),
        ("74 01020304", Decimal32(b"\x01\x02\x03\x04")),
        ("80 8000000000000000", ULong(2**63)),
        ("81 8000000000000000", Long(-(2**63))),
        ("82 3ff8000000000000", 1.5),
        ("83 ffffffffffffffff", Timestamp(-1)),
        ("84 0102030405060708", Decimal64(b"\x01\x02\x03\x04\x05\x06\x07\x08")),
        ("98 00112233445566778899aabbccddeeff", UUID("00112233-4455-6677-8899-aabbccddeeff")),
        ("a0 02 6162", b"ab"),
        ("b0 00000002 6162", b"ab"),
        ("a1 02 c3a9", "é"),
        ("b1 00000002 c3a9", "é"),
        ("a3 02 6162", Symbol("ab")),
        ("b3 00000002 6162", Symbol("ab")),
        ("c0 03 02 43 40", [UInt(0), None]),
        ("d0 00000006 00000002 43 40", [UInt(0), None]),
        ("c1 05 02 a3 01 61 41", {Symbol("a"): True}),
        ("d1 00000008 00000002 a3 01 61 41", {Symbol("a"): True}),
        ("e0 04 02 50 01 02", Array([UByte(1), UByte(2)], 0x50)),
        ("f0 00000007 00000002 50 01 02", Array([UByte(1), UByte(2)], 0x50)),
        ("e0 02 03 41", Array([True] * 3, 0x41)),
        ("00 53 24 45", Described(ULong(0x24), [])),
        ("00 a3 01 61 00 53 01 40", Described(Symbol("a"), Described(ULong(1), None))),
        (
            "e0 0a 02 00 53 01 00 53 02 52 07 08",
            Array([Described(ULong(1), Described(ULong(2), UInt(number))) for number in (7, 8)], 0x52),
        ),
    ],
)
def test_every_constructor_is_read(encoded: str, value: Value) -> None:
    data = bytes.fromhex(encoded.replace(" ", ""))
    decoded, end = decode_value(data, 0)
    assert end == len(data) == skip_value(data, 0)
    assert same(decoded, value)


def test_not_a_number_is_read() -> None:
    assert math.isnan(decode_value(bytes.fromhex("727fc00000"), 0)[0])


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        ("", "beyond the end"),
        ("7000", "beyond the end"),
        ("98 0011", "beyond the end"),
        ("a1 05 61", "beyond the end"),
        ("b0 ffffffff 61", "beyond the end"),
        ("c0", "beyond the end"),
        ("c0 ff 01 40", "beyond the end"),
        ("d0 ffffffff 00000001 40", "beyond the end"),
        ("00", "beyond the end"),
        ("00 53 01", "beyond the end"),
        ("46", "not the start of an AMQP value"),
        ("c0 03 01 ff 40", "not the start of an AMQP value"),
        ("e0 02 00 57", "not the start of an AMQP value"),
        ("56 02", "a boolean is 0 or 1"),
        ("73 00110000", "not a Unicode character"),
        ("73 0000d800", "not a Unicode character"),
        ("73 0000dfff", "not a Unicode character"),
        ("a1 01 ff", "not UTF-8"),
        ("a3 01 ff", "not UTF-8"),
        ("c1 03 01 54 01", "key without a value"),
        ("c1 05 02 c0 01 00 40", "as a key"),
        ("c1 05 04 41 40 41 40", "duplicate key"),
        ("c0 04 02 40 40 40", "their size says"),
        ("c0 02 02 40 40", "their size says"),
        ("e0 04 01 50 01 02", "their size says"),
        ("d0 00000004 00010001", "65537 elements"),
        ("e0 02 09 40", "9 elements without bytes"),
        ("e0 08 01 00 40 00 40 00 40 40", "more than 2 descriptors"),
    ],
)
def test_malformed_bytes_are_refused_with_the_reason(encoded: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_value(bytes.fromhex(encoded.replace(" ", "")), 0)


def test_the_limits_themselves_are_still_read() -> None:
    assert len(decode_value(encode_value([None] * ELEMENTS_MAX), 0)[0]) == ELEMENTS_MAX
    assert len(decode_value(encode_value(Array([None] * EMPTY_ELEMENTS_MAX, 0x40)), 0)[0].values) == EMPTY_ELEMENTS_MAX
    assert decode_value(_nested_lists(DEPTH_MAX), 0)[0] != []


def test_lists_nested_deeper_than_the_limit_are_refused() -> None:
    with pytest.raises(DecodeError, match="nested deeper"):
        decode_value(_nested_lists(DEPTH_MAX + 1), 0)


@pytest.mark.parametrize("code", [b"\x00", b"\x00\x53\x01", b"\xe0\x81\x01"])
def test_endless_nesting_of_descriptors_and_arrays_is_refused(code: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_value(code * 5000, 0)


def test_skipping_a_long_chain_of_descriptors_needs_no_recursion() -> None:
    data = b"\x00\x53\x01" * 5000 + b"\x40"
    assert skip_value(data, 0) == len(data)
    with pytest.raises(DecodeError):
        skip_value(data[:-1], 0)


@given(st.binary(max_size=200))
@example(bytes.fromhex("c1050400400040"))
@example(bytes.fromhex("f0000000090000010000d000000000"))
@settings(max_examples=300)
def test_hostile_bytes_raise_nothing_but_a_decode_error(data: bytes) -> None:
    for read in (decode_value, skip_value):
        with contextlib.suppress(DecodeError):
            read(data, 0)


@given(values, st.data())
@settings(max_examples=300)
def test_a_value_with_some_bytes_changed_raises_nothing_but_a_decode_error(value: Value, data: st.DataObject) -> None:
    encoded = bytearray(encode_value(value))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(encoded[: data.draw(st.integers(0, len(encoded)))])
    for read in (decode_value, skip_value):
        with contextlib.suppress(DecodeError):
            read(cut, 0)


@given(values)
def test_a_value_that_is_cut_short_anywhere_is_refused(value: Value) -> None:
    encoded = encode_value(value)
    for size in range(max(0, len(encoded) - 20), len(encoded)):
        with pytest.raises(DecodeError):
            decode_value(encoded[:size], 0)
        with pytest.raises(DecodeError):
            skip_value(encoded[:size], 0)


def _nested_lists(depth: int) -> bytes:
    value: list[Value] = [None]
    for _ in range(depth - 1):
        value = [value]
    return encode_value(value)


def _with_equal_hashes(count: int) -> list[UUID]:
    keys = [UUID(int=number * (2**61 - 1)) for number in range(count)]
    assert len({hash(key) for key in keys}) == 1
    return keys


def test_a_map_with_many_keys_of_the_same_hash_is_refused_however_many_others_it_has() -> None:
    others = [UUID(int=(1 << 100) + number) for number in range(1_000)]
    for more in ([], others):
        allowed = [*_with_equal_hashes(EQUAL_HASHES_MAX + 1), *more]
        assert list(decode_value(encode_value(dict.fromkeys(allowed)), 0)[0]) == allowed
        with pytest.raises(DecodeError, match="with the same hash"):
            decode_value(encode_value(dict.fromkeys([*_with_equal_hashes(EQUAL_HASHES_MAX + 2), *more])), 0)


def test_a_map_in_which_many_hashes_occur_twice_is_refused() -> None:
    prime = 2**61 - 1
    keys = [UUID(int=number + times * prime) for number in range(EQUAL_HASHES_MAX + 1) for times in (0, 1)]
    with pytest.raises(DecodeError, match="with the same hash"):
        decode_value(encode_value(dict.fromkeys(keys)), 0)


def test_descriptors_nested_deeper_than_the_limit_are_refused() -> None:
    described = b"\x00\x53\x01"
    assert decode_value(described * DEPTH_MAX + b"\x40", 0)[1] == 3 * DEPTH_MAX + 1
    with pytest.raises(DecodeError, match="nested deeper"):
        decode_value(described * (DEPTH_MAX + 1) + b"\x40", 0)


def _array_of(content: bytes, count: int = 1) -> bytes:
    """`content`: the constructor of its elements, and their bytes."""
    return b"\xf0" + (4 + len(content)).to_bytes(4, "big") + count.to_bytes(4, "big") + content


def _nested_arrays(levels: int, content: bytes = b"\x40") -> bytes:
    for _ in range(levels - 1):
        content = _array_of(content)
    return _array_of(content)


def test_arrays_are_nested_as_deep_as_the_limit_and_a_descriptor_in_one_is_a_level() -> None:
    described = b"\x00\x53\x01\x40"
    for read, refused in (
        (_nested_arrays(DEPTH_MAX), _nested_arrays(DEPTH_MAX + 1)),
        (_nested_arrays(DEPTH_MAX - 1, described), _nested_arrays(DEPTH_MAX, described)),
    ):
        assert decode_value(read, 0)[1] == len(read)
        with pytest.raises(DecodeError, match="nested deeper"):
            decode_value(refused, 0)


def test_an_array_has_as_many_elements_as_the_limit() -> None:
    full, over = (_array_of(b"\x50" + bytes(count), count) for count in (ELEMENTS_MAX, ELEMENTS_MAX + 1))
    assert len(decode_value(full, 0)[0].values) == ELEMENTS_MAX
    with pytest.raises(DecodeError, match="the limit is"):
        decode_value(over, 0)


def test_a_large_map_may_have_two_keys_for_each_hash() -> None:
    """As that of 1 and of 2**61, which is 1 in the field of hashes."""
    pairs = {number + twin: None for number in range(EQUAL_HASHES_MAX) for twin in (0, 2**61 - 1)}
    assert decode_value(encode_value(pairs), 0)[0] == pairs
