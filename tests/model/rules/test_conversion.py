"""A value that an action sets keeps the type that the property had, where that loses nothing; and values as texts."""

from uuid import UUID

import pytest

from tests.model.rules.views import view_of
from twinbus.amqp.codec.types import Byte, Float, Int, Long, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from twinbus.model.rules.compiler import Compiler
from twinbus.model.rules.conversion import converted_like
from twinbus.model.rules.parser import parse_filter
from twinbus.model.rules.values import text_of

RANGES: list[tuple[type, int, int]] = [
    (UByte, 0, 2**8 - 1),
    (UShort, 0, 2**16 - 1),
    (UInt, 0, 2**32 - 1),
    (ULong, 0, 2**64 - 1),
    (Byte, -(2**7), 2**7 - 1),
    (Short, -(2**15), 2**15 - 1),
    (Int, -(2**31), 2**31 - 1),
    (int, -(2**31), 2**31 - 1),
    (Long, -(2**63), 2**63 - 1),
]


@pytest.mark.parametrize(("kind", "lowest", "highest"), RANGES)
def test_a_number_keeps_the_type_of_the_former_within_its_range(kind: type, lowest: int, highest: int) -> None:
    former = kind(1)
    fitting = [
        (lowest, lowest),
        (highest, highest),
        (str(lowest), lowest),
        (str(highest), highest),
        (5.0, 5),
        ("5.0", 5),
    ]
    for value, expected in fitting:
        found = converted_like(former, value)
        assert (found, type(found)) == (expected, kind)
    for other in (lowest - 1, highest + 1, 5.5, "5.5", "five", str(lowest - 1), str(highest + 1), True, b"5"):
        assert converted_like(former, other) is other


@pytest.mark.parametrize(
    ("former", "value", "expected"),
    [
        (1.5, 2, 2.0),
        (1.5, "2.25", 2.25),
        (Float(1.5), 2, Float(2.0)),
        (Float(1.5), 3.4e38, Float(3.4e38)),
        (Float(1.5), float("-inf"), Float("-inf")),
        (Float(1.5), -3.5e38, -3.5e38),
        (Float(1.5), "1e300", "1e300"),
        (1.5, 3.5e38, 3.5e38),
        (1.5, "two", "two"),
        (True, "FALSE", False),
        (False, "true", True),
        (True, "yes", "yes"),
        (True, 1, 1),
        (UUID(int=1), str(UUID(int=2)), UUID(int=2)),
        (UUID(int=1), "no id", "no id"),
        (Timestamp(5), 7, Timestamp(7)),
        (Timestamp(5), "7", "7"),
        (Timestamp(5), True, True),
        ("text", 7, "7"),
        (Symbol("text"), 7, "7"),
        (Symbol("text"), Symbol("other"), Symbol("other")),
        ("text", True, "True"),
        ("text", [7], [7]),
        ([7], "7", "7"),
        ("text", None, None),
        (None, 7, 7),
        (7, None, None),
    ],
)
def test_a_value_becomes_what_the_former_was_or_stays_what_it_is(
    former: object, value: object, expected: object
) -> None:
    found = converted_like(former, value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (7, "7"),
        (1.5, "1.5"),
        (Float(1.5), "1.5"),
        (b"\x01\xff", "01ff"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Timestamp(0), "1970-01-01T00:00:00Z"),
        (Timestamp(1_500), "1970-01-01T00:00:01.500000Z"),
        (Timestamp(2**62), str(2**62)),
    ],
)
def test_a_value_as_a_text(value: object, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"a": "abc", "p": "a%"}, True),
        ({"a": "abc", "p": "b%"}, False),
        ({"a": "abc"}, None),
        ({"p": "a%"}, None),
        ({"a": 7, "p": "7"}, None),
    ],
)
def test_a_pattern_that_comes_with_the_message_is_unknown_where_it_or_the_text_is_missing(
    user: dict[str, object], expected: bool | None
) -> None:
    for text in ("a LIKE p", "a LIKE p ESCAPE '!'"):
        test = Compiler(text, {}, lambda: UUID(int=0)).predicate(parse_filter(text))
        assert test(view_of(user)) is expected
    escaped = "a LIKE p ESCAPE e"
    test = Compiler(escaped, {}, lambda: UUID(int=0)).predicate(parse_filter(escaped))
    assert test(view_of(user)) is None
    assert test(view_of(user | {"e": "!"})) is expected
