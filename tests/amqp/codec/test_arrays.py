"""Arrays of every constructor that AMQP has, written and read again."""

from uuid import UUID

import pytest

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
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

CASES: list[tuple[int, Value, str]] = [
    (0x40, None, ""),
    (0x41, True, ""),
    (0x42, False, ""),
    (0x43, UInt(0), ""),
    (0x44, ULong(0), ""),
    (0x45, [], ""),
    (0x50, UByte(200), "c8"),
    (0x51, Byte(-2), "fe"),
    (0x52, UInt(200), "c8"),
    (0x53, ULong(200), "c8"),
    (0x54, Int(-2), "fe"),
    (0x55, Long(-2), "fe"),
    (0x56, True, "01"),
    (0x56, False, "00"),
    (0x60, UShort(258), "0102"),
    (0x61, Short(-2), "fffe"),
    (0x70, UInt(258), "00000102"),
    (0x71, Int(-2), "fffffffe"),
    (0x72, Float(1.5), "3fc00000"),
    (0x73, Char("é"), "000000e9"),
    (0x74, Decimal32(b"abcd"), "61626364"),
    (0x80, ULong(258), "0000000000000102"),
    (0x81, Long(-2), "fffffffffffffffe"),
    (0x82, 1.5, "3ff8000000000000"),
    (0x83, Timestamp(-2), "fffffffffffffffe"),
    (0x84, Decimal64(b"abcdefgh"), "6162636465666768"),
    (0x94, Decimal128(b"abcdefghijklmnop"), "6162636465666768696a6b6c6d6e6f70"),
    (0x98, UUID(int=258), "00000000000000000000000000000102"),
    (0xA0, b"ab", "02 6162"),
    (0xA1, "é", "02 c3a9"),
    (0xA3, Symbol("ab"), "02 6162"),
    (0xB0, b"ab", "00000002 6162"),
    (0xB1, "é", "00000002 c3a9"),
    (0xB3, Symbol("ab"), "00000002 6162"),
    (0xC0, [True, None], "03 02 4140"),
    (0xC1, {"k": True}, "05 02 a1016b 41"),
    (0xD0, [True, None], "00000006 00000002 4140"),
    (0xD1, {"k": True}, "00000008 00000002 a1016b 41"),
    (0xE0, Array([UByte(7)], 0x50), "03 01 50 07"),
    (0xF0, Array([UByte(7)], 0x50), "00000006 00000001 50 07"),
]


@pytest.mark.parametrize(("code", "value", "element"), CASES)
def test_the_elements_of_an_array_follow_its_constructor(code: int, value: Value, element: str) -> None:
    elements = bytes((code,)) + 2 * bytes.fromhex(element)
    encoded = encode_value(Array([value, value], code))
    assert encoded == bytes((0xE0, len(elements) + 1, 2)) + elements
    decoded, end = decode_value(encoded, 0)
    assert (decoded, end) == (Array([value, value], code), len(encoded))
    assert {type(each) for each in decoded.values} == {type(value)}


WIDEST = (0x40, 0x50, 0x51, 0x56, 0x60, 0x61, 0x70, 0x71, 0x72, 0x73, 0x74, 0x80, 0x81, 0x82, 0x83, 0x84, 0x94, 0x98)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        *((value, code) for code, value, _ in CASES if code in (*WIDEST, 0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0)),
        (7, 0x71),
        (2**31 - 1, 0x71),
        (-(2**31), 0x71),
        (2**31, 0x81),
        (-(2**31) - 1, 0x81),
    ],
)
def test_an_array_without_a_constructor_gets_the_widest_of_its_elements(value: Value, code: int) -> None:
    assert encode_value(Array([value]))[3] == code


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (0x72, Float(1e39)),
        (0x73, Char("ab")),
        (0x73, Char("")),
        (0x73, Char("\ud800")),
        (0x73, Char(chr(0xDFFF))),
        (0x74, Decimal32(b"abc")),
        (0x84, Decimal64(b"abcdefghi")),
        (0x94, Decimal128(b"")),
        (0x46, 1),
        (0x50, UByte(256)),
        (0xC0, ["x" * 256]),
    ],
)
def test_what_does_not_fit_its_constructor_is_refused(code: int, value: Value) -> None:
    with pytest.raises(EncodeError):
        encode_value(Array([value], code))


def test_an_array_is_short_as_long_as_its_size_and_count_fit_one_byte() -> None:
    for count, code in ((253, 0xE0), (254, 0xF0)):  # and the constructor
        assert encode_value(Array([UByte(1)] * count, 0x50))[0] == code
    for count, code in ((255, 0xE0), (256, 0xF0)):
        assert encode_value(Array([None] * count, 0x40))[0] == code


def test_an_array_can_be_written_again_whose_descriptor_is_not_equal_to_itself() -> None:
    not_a_number = b"\x82\x7f\xf8" + bytes(6)
    encoded = b"\xe0\x0e\x02\x00" + not_a_number + b"\x50\x01\x02"
    assert encode_value(decode_value(encoded, 0)[0]) == encoded


def test_elements_with_equal_descriptors_make_an_array() -> None:
    array = Array([Described([7], UByte(1)), Described([7], UByte(2))])
    assert decode_value(encode_value(array), 0)[0].values == array.values
