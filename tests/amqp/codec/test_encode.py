"""Each type is written in the shortest form the specification has for it."""

from enum import IntEnum
from uuid import UUID

import pytest
from hypothesis import given

from tests.amqp.codec.values import same, values
from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.encode import encode_list, encode_map, encode_value
from twinbus.amqp.codec.layout import skip_value
from twinbus.amqp.codec.types import (
    Array,
    Byte,
    Char,
    Decimal128,
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
from twinbus.amqp.errors import EncodeError

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (None, "40"),
        (True, "41"),
        (False, "42"),
        (UByte(255), "50 ff"),
        (UShort(258), "60 0102"),
        (UInt(0), "43"),
        (UInt(1), "52 01"),
        (UInt(255), "52 ff"),
        (UInt(256), "70 00000100"),
        (ULong(0), "44"),
        (ULong(1), "53 01"),
        (ULong(255), "53 ff"),
        (ULong(256), "80 0000000000000100"),
        (Byte(-1), "51 ff"),
        (Short(-2), "61 fffe"),
        (Int(-128), "54 80"),
        (Int(127), "54 7f"),
        (Int(128), "71 00000080"),
        (Int(-129), "71 ffffff7f"),
        (Long(-128), "55 80"),
        (Long(127), "55 7f"),
        (Long(128), "81 0000000000000080"),
        (Long(-129), "81 ffffffffffffff7f"),
        (5, "54 05"),
        (2**31 - 1, "71 7fffffff"),
        (2**31, "81 0000000080000000"),
        (-(2**31), "71 80000000"),
        (-(2**31) - 1, "81 ffffffff7fffffff"),
        (1.5, "82 3ff8000000000000"),
        (Float(1.5), "72 3fc00000"),
        (Char("A"), "73 00000041"),
        (Timestamp(1), "83 0000000000000001"),
        (ID, "98 00112233445566778899aabbccddeeff"),
        (Decimal128(b"\x01" * 16), "94" + "01" * 16),
        (b"ab", "a0 02 6162"),
        ("é", "a1 02 c3a9"),
        (Symbol("ab"), "a3 02 6162"),
        ([], "45"),
        ([UInt(0), None], "c0 03 02 43 40"),
        ({}, "c1 01 00"),
        ({Symbol("a"): True}, "c1 05 02 a3 01 61 41"),
        (Described(ULong(0x24), []), "00 53 24 45"),
        (Array([Symbol("a"), Symbol("b")], 0xA3), "e0 06 02 a3 01 61 01 62"),
        (Array([Long(1)]), "e0 0a 01 81 0000000000000001"),
        (Array([]), "e0 02 00 40"),
        (Array([Described(ULong(1), UInt(7))], 0x52), "e0 06 01 00 53 01 52 07"),
    ],
)
def test_a_value_has_its_shortest_encoding(value: Value, encoded: str) -> None:
    assert encode_value(value).hex() == encoded.replace(" ", "")


@pytest.mark.parametrize(("value", "code"), [("x", 0xA1), (Symbol("x"), 0xA3), ("é", 0xA1)])
def test_texts_of_256_bytes_take_the_form_with_the_long_size(value: str, code: int) -> None:
    width = len(value.encode())
    for count in range(250 // width, 260 // width):
        text = type(value)(value * count)
        encoded = encode_value(text)
        assert encoded[0] == (code if count * width < 256 else code + 0x10)
        assert decode_value(encoded, 0) == (text, len(encoded))


@pytest.mark.parametrize(("size", "code"), [(255, 0xA0), (256, 0xB0)])
def test_a_binary_of_256_bytes_takes_the_form_with_the_long_size(size: int, code: int) -> None:
    encoded = encode_value(b"x" * size)
    assert encoded[0] == code
    assert decode_value(encoded, 0) == (b"x" * size, len(encoded))


@pytest.mark.parametrize("count", [253, 254, 255, 256, 300])
def test_lists_maps_and_arrays_change_to_the_long_form_where_the_short_one_ends(count: int) -> None:
    for value in ([True] * count, {UByte(n): None for n in range(min(count, 256))}, Array([UByte(1)] * count, 0x50)):
        encoded = encode_value(value)
        assert decode_value(encoded, 0) == (value, len(encoded))


def test_parts_that_are_encoded_already_make_the_same_list_and_map() -> None:
    parts = [encode_value(part) for part in (Symbol("a"), 1)]
    assert encode_list(parts) == encode_value([Symbol("a"), 1])
    assert encode_map(parts) == encode_value({Symbol("a"): 1})


def test_an_enumeration_of_integers_is_written_as_its_number() -> None:
    class Colour(IntEnum):
        RED = 3

    assert encode_value(Colour.RED) == encode_value(3)


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        UByte(256),
        UInt(-1),
        ULong(2**64),
        Short(2**15),
        Float(1e300),
        Char("ab"),
        Char("\ud800"),
        Char(chr(0xDFFF)),
        "\ud800",
        object(),
        Decimal128(b"short"),
        Array([1, "a"]),
        Array([Described(ULong(1), 1), Described(ULong(2), 1)]),
        Array([Described(ULong(1), 1), 1]),
        Array([1], 0x99),
        Array([b"x" * 256], 0xA0),
        Array([object()]),
    ],
)
def test_a_value_that_no_type_can_hold_is_refused(value: Value) -> None:
    with pytest.raises(EncodeError):
        encode_value(value)


def test_a_list_that_holds_itself_is_refused() -> None:
    loop: list[Value] = []
    loop.append(loop)
    with pytest.raises(EncodeError):
        encode_value(loop)


@given(values)
def test_what_is_decoded_is_what_was_encoded(value: Value) -> None:
    encoded = encode_value(value)
    decoded, end = decode_value(b"\xff" + encoded + b"\xff", 1)
    assert end == len(encoded) + 1
    assert same(decoded, value)


@given(values)
def test_skipping_a_value_ends_where_decoding_it_does(value: Value) -> None:
    encoded = encode_value(value)
    assert skip_value(encoded + b"\xff", 0) == len(encoded)


@given(values)
def test_encoding_what_was_decoded_means_the_same(value: Value) -> None:
    decoded, _ = decode_value(encode_value(value), 0)
    assert same(decode_value(encode_value(decoded), 0)[0], value)


@pytest.mark.parametrize(("size", "code"), [(251, 0xC0), (252, 0xC0), (253, 0xD0), (254, 0xD0)])
def test_a_list_whose_size_fits_into_a_byte_is_short(size: int, code: int) -> None:
    """The size counts the byte with the number of elements too."""
    value: Value = [bytes(size)]
    encoded = encode_value(value)
    assert encoded[0] == code
    assert decode_value(encoded, 0)[0] == value
