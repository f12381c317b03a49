import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.types import (
    Array,
    Byte,
    Char,
    Decimal128,
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
from twinbus.pipeline.property_values import property_text, property_value


def _integers(kind: type[int], bits: int, *, signed: bool) -> st.SearchStrategy[Value]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high).map(kind)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.text(),
    st.binary(),
    st.uuids(),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(Float),
    _integers(UByte, 8, signed=False),
    _integers(UShort, 16, signed=False),
    _integers(UInt, 32, signed=False),
    _integers(ULong, 64, signed=False),
    _integers(Byte, 8, signed=True),
    _integers(Short, 16, signed=True),
    _integers(Int, 32, signed=True),
    _integers(Long, 64, signed=True),
    _integers(Timestamp, 64, signed=True),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.text(st.characters(max_codepoint=127)).map(Symbol),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    st.lists(st.integers(0, 9).map(Long), max_size=3),
)


@given(VALUES)
def test_every_value_comes_back_with_its_type(value: Value) -> None:
    text = property_text(value)
    json.loads(text)
    assert encode_value(property_value(text)) == encode_value(value)


def test_not_a_number_comes_back() -> None:
    assert encode_value(property_value(property_text(float("nan")))) == encode_value(float("nan"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("blue", '"blue"'),
        ("5", '"5"'),
        (True, "true"),
        (None, "null"),
        (Int(5), "5"),
        (5.0, "5.0"),
        (Long(5), '{"long": 5}'),
        (Long(2**40), "1099511627776"),
        (Timestamp(1), '{"timestamp": "1970-01-01T00:00:00.001Z"}'),
        (UUID(int=1), '{"uuid": "00000000-0000-0000-0000-000000000001"}'),
        (b"\x00", '{"binary": "AA=="}'),
    ],
)
def test_the_usual_types_read_well(value: Value, text: str) -> None:
    assert property_text(value) == text


def test_an_array_is_its_encoding() -> None:
    value = Array([Long(1), Long(2)])
    assert encode_value(property_value(property_text(value))) == encode_value(value)


@pytest.mark.parametrize(
    "text",
    [
        "blue",
        "",
        "007",
        "a b",
        '{"colour": "blue"}',
        '{"long": 5, "int": 6}',
        '{"long": "5"}',
        '{"long": true}',
        '{"ubyte": 256}',
        '{"char": "ab"}',
        '{"uuid": "no"}',
        '{"uuid": 5}',
        '{"timestamp": "2026-01-01T00:00:00"}',
        '{"binary": "!"}',
        '{"decimal32": "AA=="}',
        '{"amqp": "QEA="}',
        "[1, 2]",
        "NaN",
        "Infinity",
        str(2**63),
        "[" * 100_000,
    ],
)
def test_what_nobody_encoded_is_a_string_as_it_stands(text: str) -> None:
    assert property_value(text) == text
