from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.rules.printer import print_action, print_filter
from tests.model.rules.strategies import printable_actions, printable_filters
from twinbus.errors import ArgumentError
from twinbus.model.rules.nodes import (
    And,
    Arithmetic,
    Comparison,
    Exists,
    In,
    IsNull,
    Like,
    Literal,
    NewId,
    Not,
    Or,
    Parameter,
    Predicate,
    Property,
    PropertyNamed,
    Remove,
    Scope,
    Set,
    Sign,
    Statement,
)
from twinbus.model.rules.parser import NESTING_MAX, STATEMENT_COUNT_MAX, TEXT_LENGTH_MAX, parse_action, parse_filter

A, B, C = Property("a"), Property("b"), Property("c")
ONE, TWO, THREE = Literal(1), Literal(2), Literal(3)


def test_a_mistake_is_reported_with_its_position_and_what_stands_there() -> None:
    good = "colour = 'red' AND "
    with pytest.raises(ArgumentError, match=f"at position {len(good) + 1}, before '= 1'"):
        parse_filter(f"{good}= 1")
    with pytest.raises(ArgumentError, match=f"at position {len(good) + 1}, at the end"):
        parse_filter(good)


@given(printable_filters)
@settings(max_examples=200)
def test_a_printed_filter_parses_to_the_same_nodes(predicate: Predicate) -> None:
    text = print_filter(predicate)
    if len(text) <= TEXT_LENGTH_MAX:
        assert parse_filter(text) == predicate


@given(printable_actions)
@settings(max_examples=100)
def test_a_printed_action_parses_to_the_same_nodes(statements: tuple[Statement, ...]) -> None:
    text = print_action(statements)
    if len(text) <= TEXT_LENGTH_MAX:
        assert parse_action(text) == statements


@pytest.mark.rule("A16.4")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", Comparison("=", A, ONE)),
        ("a != 1", Comparison("<>", A, ONE)),
        ("a>=1", Comparison(">=", A, ONE)),
        ("a = 'it''s'", Comparison("=", A, Literal("it's"))),
        ("a = 1.5", Comparison("=", A, Literal(1.5))),
        ("a = 1e5", Comparison("=", A, Literal(100_000.0))),
        ("a = .5", Comparison("=", A, Literal(0.5))),
        ("a = -9223372036854775808", Comparison("=", A, Literal(-(2**63)))),
        ("a = TRUE or a = false", Or((Comparison("=", A, Literal(True)), Comparison("=", A, Literal(False))))),
        ("a = NULL", Comparison("=", A, Literal(None))),
        ("user.a = sys.Label", Comparison("=", A, Property("Label", Scope.SYSTEM))),
        ("USER.a = SYS.Label", Comparison("=", A, Property("Label", Scope.SYSTEM))),
        ("[a b]]c] = 1", Comparison("=", Property("a b]c"), ONE)),
        ('"a ""b""" = 1', Comparison("=", Property('a "b"'), ONE)),
        ("sys.[Label] = 1", Comparison("=", Property("Label", Scope.SYSTEM), ONE)),
        ("größe = 1", Comparison("=", Property("größe"), ONE)),
        ("a = @p1", Comparison("=", A, Parameter("p1"))),
        ("a = newid()", Comparison("=", A, NewId())),
        ("property('x') = P(a)", Comparison("=", PropertyNamed(Literal("x")), PropertyNamed(A))),
        ("property = 1", Comparison("=", Property("property"), ONE)),
        ("a is null", IsNull(A)),
        ("a IS NOT NULL", IsNull(A, negated=True)),
        ("a IN (1, 2)", In(A, (ONE, TWO))),
        ("a NOT IN(1)", In(A, (ONE,), negated=True)),
        ("a LIKE 'x%'", Like(A, Literal("x%"))),
        ("a NOT LIKE b ESCAPE '\\'", Like(A, B, Literal("\\"), negated=True)),
        ("EXISTS(a)", Exists(A)),
        ("exists ( sys.To )", Exists(Property("To", Scope.SYSTEM))),
        ("-a = +b", Comparison("=", Sign("-", A), Sign("+", B))),
    ],
)
def test_each_form_of_the_grammar_is_read(text: str, expected: Predicate) -> None:
    assert parse_filter(text) == expected


def test_and_binds_tighter_than_or_and_not_tighter_than_and() -> None:
    a, b, c = (Comparison("=", operand, ONE) for operand in (A, B, C))
    assert parse_filter("a=1 OR NOT b=1 AND c=1") == Or((a, And((Not(b), c))))
    assert parse_filter("(a=1 OR b=1) AND c=1") == And((Or((a, b)), c))


def test_products_bind_tighter_than_sums_and_chains_are_read_from_the_left() -> None:
    assert parse_filter("a - 1 - 2 * 3 = b").left == Arithmetic(  # type: ignore[union-attr]
        A, (("-", ONE), ("-", Arithmetic(TWO, (("*", THREE),))))
    )
    assert parse_filter("(a - 1) * 3 = b").left == Arithmetic(  # type: ignore[union-attr]
        Arithmetic(A, (("-", ONE),)), (("*", THREE),)
    )


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 1, "expected a value"),
        ("color = = 'red'", 9, "expected a value"),
        ("color = 'red", 9, "expected a closing '"),
        ("[color = 1", 1, "expected a closing ]"),
        ('"color = 1', 1, 'expected a closing "'),
        ("a = @", 5, "name of a parameter"),
        ("a ^ 1", 3, "cannot start"),
        ("_a = 1", 1, "cannot start"),
        ("a = 1 b = 2", 7, "expected AND, OR or the end"),
        ("a = 1 AND", 10, "expected a value"),
        ("a = 1 AND b", 11, "expected a condition"),
        ("NOT a", 5, "expected a condition"),
        ("a", 1, "expected a condition"),
        ("(a = 1) + 2 = 3", 1, "expected a value, found a condition"),
        ("1 + (a = 1) = 3", 5, "expected a value, found a condition"),
        ("(a = 1", 7, "expected ')'"),
        ("a IN (1, 2", 11, "expected ',' or ')'"),
        ("a IN ()", 7, "expected a value"),
        ("a IS 1", 6, "expected 'NULL'"),
        ("a NOT 1", 7, "expected IN or LIKE"),
        ("EXISTS(1)", 8, "expected the name of a property"),
        ("EXISTS(and)", 8, "a reserved word needs [ ]"),
        ("order.id = 1", 1, "expected sys or user"),
        ("sys.1 = 1", 4, "expected"),
        ("upper(a) = 'A'", 1, "no function upper"),
        ("a = 9223372036854775808", 5, "64 bits"),
        ("a = 1e999", 5, "too large"),
        ("SET a = 1", 1, "expected a value"),
    ],
)
def test_an_error_says_where_it_is_and_what_was_expected(text: str, position: int, problem: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        parse_filter(text)
    assert f"position {position}," in str(raised.value)
    assert problem in str(raised.value)


SCRAPS = """a sys. 'x' ' [b] [ " @p @ 1 1.5 = <> AND NOT IS NULL IN ( ) , LIKE ESCAPE EXISTS newid() p( + - % SET REMOVE ; é ٣"""
scraps = st.sampled_from([*SCRAPS.split(), " ", "\n", "\x00"])


@given(st.lists(scraps, max_size=12).map(" ".join) | st.lists(scraps, max_size=12).map("".join) | st.text(max_size=20))
@settings(max_examples=300)
def test_any_text_is_read_or_refused_as_an_argument_error(text: str) -> None:
    for parse in (parse_filter, parse_action):
        with suppress(ArgumentError):
            parse(text)


@pytest.mark.rule("A16.10")
def test_a_filter_may_have_1024_characters_and_not_one_more() -> None:
    text = "a = '" + "x" * (TEXT_LENGTH_MAX - 6) + "'"
    assert len(text) == TEXT_LENGTH_MAX
    parse_filter(text)
    with pytest.raises(ArgumentError, match="1025 characters, and 1024 is the limit"):
        parse_filter(text + " ")


@pytest.mark.parametrize(
    ("opening", "closing", "levels"),
    [("(", ")", NESTING_MAX), ("NOT ", "", NESTING_MAX), ("NOT (", ")", NESTING_MAX // 2)],
)
def test_nesting_is_bounded(opening: str, closing: str, levels: int) -> None:
    parse_filter(opening * levels + "a=1" + closing * levels)
    with pytest.raises(ArgumentError, match="nested more than 32 deep"):
        parse_filter(opening * (levels + 1) + "a=1" + closing * (levels + 1))


def test_signs_nest_no_deeper_than_parentheses() -> None:
    parse_filter("+" * NESTING_MAX + "a = 1")
    with pytest.raises(ArgumentError, match="nested more than 32 deep"):
        parse_filter("+" * (NESTING_MAX + 1) + "a = 1")


def test_a_long_chain_is_not_nested() -> None:
    parse_filter("a = " + "+".join(["1"] * 500))
    parse_filter(" OR ".join(["a=1"] * 140))


def test_statements_are_separated_by_semicolons_or_nothing() -> None:
    expected = (Set(A, ONE), Remove(Property("Label", Scope.SYSTEM)), Set(B, Arithmetic(C, (("+", TWO),))))
    assert parse_action("SET a = 1; REMOVE sys.Label; SET b = c + 2;") == expected
    assert parse_action("set a = 1 remove sys.Label set b = c + 2") == expected


@pytest.mark.rule("A16.10")
def test_an_action_has_at_most_32_statements() -> None:
    text = "REMOVE a;" * STATEMENT_COUNT_MAX
    assert len(parse_action(text)) == 32
    with pytest.raises(ArgumentError, match="at most 32 statements"):
        parse_action(text + "REMOVE b")


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 1, "expected SET or REMOVE"),
        ("a = 1", 1, "expected SET or REMOVE"),
        ("SET a 1", 7, "expected '='"),
        ("SET 1 = 1", 5, "expected the name of a property"),
        ("SET a = b = 1", 11, "expected ';', SET, REMOVE or the end"),
        ("SET a = (b = 1)", 9, "expected a value, found a condition"),
        ("REMOVE a b", 10, "expected ';', SET, REMOVE or the end"),
    ],
)
def test_an_error_in_an_action_says_where_it_is(text: str, position: int, problem: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        parse_action(text)
    assert f"position {position}," in str(raised.value)
    assert problem in str(raised.value)
