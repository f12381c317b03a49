"""How many values there are in bytes that are not decoded."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.amqp.codec.values import values
from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.layout import has_more_values
from twinbus.amqp.codec.types import Array, Byte, Described, ULong, Value


def count(value: Value) -> int:
    """With all that are in it, and every descriptor; the one that the elements of an array share is in each of them."""
    match value:
        case list() | dict():
            inner = value if isinstance(value, list) else [each for entry in value.items() for each in entry]
            return 1 + sum(map(count, inner))
        case Array():
            return 1 + sum(map(count, value.values))
        case Described():
            return 1 + count(value.descriptor) + count(value.value)
    return 1


@given(st.lists(values, max_size=3))
@example([Array([Described(Byte(0), Byte(0))] * 3)])
@example([[None, "a" * 300, b"b" * 300, [1, {2: 3}], Array([1, 2]), Array(["c"] * 300)]])
def test_no_value_is_missed(several: list[Value]) -> None:
    encoded = b"".join(map(encode_value, several))
    assert not several or has_more_values(encoded, sum(map(count, several)) - 1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, 1),
        ("a" * 300, 1),
        ([], 1),
        ([1, "a" * 300, b"b"], 4),
        ([[1] * 300, {"a": [2], "b": {}}], 308),
        (Described(ULong(1), [ULong(2)]), 4),
        (Array([1, 2, 3]), 4),
        (Array(["a"] * 300), 301),
        ([Array([b"a", b"b"]), Array([]), 1], 6),
    ],
)
def test_values_are_counted_once_each(value: Value, expected: int) -> None:
    encoded = encode_value(value)
    assert not has_more_values(encoded, expected)
    assert has_more_values(encoded, expected - 1)


def test_what_lies_behind_the_limit_is_not_looked_at() -> None:
    unknown = b"\x01"
    assert has_more_values(encode_value(None) * 6 + unknown, 5)
    assert not has_more_values(encode_value(None) * 5 + unknown, 5)


@given(st.binary(max_size=60), st.integers(0, 60))
def test_bytes_of_any_kind_are_counted_without_an_error(data: bytes, count_max: int) -> None:
    has_more_values(data, count_max)
