"""AMQP values for property tests, and a comparison that tells the types apart."""

import math
from uuid import UUID

from hypothesis import strategies as st

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

_INTEGERS: dict[type[int], tuple[int, int]] = {
    UByte: (0, 2**8 - 1),
    UShort: (0, 2**16 - 1),
    UInt: (0, 2**32 - 1),
    ULong: (0, 2**64 - 1),
    Byte: (-(2**7), 2**7 - 1),
    Short: (-(2**15), 2**15 - 1),
    Int: (-(2**31), 2**31 - 1),
    Long: (-(2**63), 2**63 - 1),
    Timestamp: (-(2**63), 2**63 - 1),
}

_texts = st.text(st.characters(codec="utf-8"), max_size=300)

scalars_of_one_type: list[st.SearchStrategy[Value]] = [
    *(st.integers(low, high).map(kind) for kind, (low, high) in _INTEGERS.items()),
    st.booleans(),
    st.floats(),
    st.floats(width=32).map(Float),
    st.characters(codec="utf-8").map(Char),
    st.uuids(),
    st.binary(max_size=300),
    _texts,
    st.text(st.characters(codec="ascii"), max_size=300).map(Symbol),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
]

scalars: st.SearchStrategy[Value] = st.none() | st.one_of(scalars_of_one_type)
descriptors = st.integers(0, 2**64 - 1).map(ULong) | _texts.map(Symbol)
keys = _texts | _texts.map(Symbol) | st.integers(0, 255).map(UInt) | st.uuids()


def _arrays(elements: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    lists = st.lists(elements, max_size=4)
    one_type: st.SearchStrategy[list[Value]] = st.one_of(
        *(st.lists(kind, max_size=4) for kind in scalars_of_one_type),
        st.lists(lists, max_size=3),
        st.lists(st.dictionaries(keys, elements, max_size=2), max_size=3),
        st.lists(st.lists(st.uuids(), max_size=2).map(Array), max_size=3),
    )
    described = st.builds(
        lambda descriptor, values: [Described(descriptor, value) for value in values], descriptors, one_type
    )
    return (one_type | described).map(Array)


values: st.SearchStrategy[Value] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(keys, inner, max_size=4)
        | st.builds(Described, descriptors, inner)
        | _arrays(inner)
    ),
    max_leaves=12,
)


def same(left: Value, right: Value) -> bool:
    """Equal, and of the same AMQP types all the way down. The constructor chosen for an array does not matter."""
    if type(left) is not type(right):
        return False
    match left:
        case float():
            return (math.isnan(left) and math.isnan(right)) or (left == right and _sign(left) == _sign(right))
        case Array():
            return same(left.values, right.values)
        case Described():
            return same(left.descriptor, right.descriptor) and same(left.value, right.value)
        case list():
            return len(left) == len(right) and all(map(same, left, right))
        case dict():
            return same(list(left), list(right)) and same(list(left.values()), list(right.values()))
        case UUID():
            return bool(left.bytes == right.bytes)
        case _:
            return bool(left == right)


def _sign(number: float) -> float:
    return math.copysign(1, number)
