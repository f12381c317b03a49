from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings

from tests.model.rules import naive
from tests.model.rules.strategies import evaluable_filters, messages
from tests.model.rules.views import view_of
from twinbus.amqp.codec.types import Described, Float, Int, Long, Short, Symbol, Timestamp, UInt, ULong
from twinbus.errors import ArgumentError, FilterError
from twinbus.model.rules.arithmetic import OPERATIONS
from twinbus.model.rules.compiler import Compiler
from twinbus.model.rules.nodes import Predicate
from twinbus.model.rules.parser import parse_filter
from twinbus.model.rules.values import DATETIME_OFFSET, TIMESPAN, URI, understood
from twinbus.model.rules.view import FilterView

SOME_ID = UUID(int=5)


def compiler(text: str, **parameters: object) -> Compiler:
    return Compiler(text, {name: understood(value) for name, value in parameters.items()}, lambda: SOME_ID)


def outcome(text: str, view: FilterView | None = None, /, **parameters: object) -> bool | None:
    return compiler(text, **parameters).predicate(parse_filter(text))(view or view_of())


def outcome_of_user(text: str, **user: object) -> bool | None:
    return outcome(text, view_of(user))


@given(evaluable_filters, messages)
@settings(max_examples=300)
def test_a_compiled_filter_has_the_outcome_of_the_naive_evaluator(
    predicate: Predicate, user: dict[str, object]
) -> None:
    test = compiler("").predicate(predicate)
    try:
        expected = naive.evaluate(predicate, user)
    except naive.Failed:
        with pytest.raises(FilterError):
            test(view_of(user))
    else:
        assert test(view_of(user)) is expected


TRUTHS = {"T": "1=1", "F": "1=0", "U": "missing=1"}
NAMED = {"T": True, "F": False, "U": None}


@pytest.mark.rule("A16.5")
@pytest.mark.parametrize("row", ["TTT", "TFF", "TUU", "FTF", "FFF", "FUF", "UTU", "UFF", "UUU"])
def test_and_follows_three_valued_logic(row: str) -> None:
    assert outcome(f"{TRUTHS[row[0]]} AND {TRUTHS[row[1]]}") is NAMED[row[2]]


@pytest.mark.parametrize("row", ["TTT", "TFT", "TUT", "FTT", "FFF", "FUU", "UTT", "UFU", "UUU"])
def test_or_follows_three_valued_logic(row: str) -> None:
    assert outcome(f"{TRUTHS[row[0]]} OR {TRUTHS[row[1]]}") is NAMED[row[2]]


@pytest.mark.parametrize(
    ("operator", "rows"),
    [
        ("AND", ["TTTT", "FTTF", "TFTF", "TTFF", "UTTU", "TUTU", "TTUU", "UFTF", "TUFF", "UUUU"]),
        ("OR", ["FFFF", "TFFT", "FTFT", "FFTT", "UFFU", "FUFU", "FFUU", "UTFT", "FUTT", "UUUU"]),
    ],
)
def test_logic_of_three_terms_is_three_valued_too(operator: str, rows: list[str]) -> None:
    for first, second, third, expected in map(tuple, rows):
        text = f" {operator} ".join([TRUTHS[first], TRUTHS[second], TRUTHS[third]])
        assert outcome(text) is NAMED[expected]


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"a": 1, "b": 2, "c": 1}, True),
        ({"a": 1, "b": 1, "c": 2}, True),
        ({"a": 1, "b": 2, "c": 3}, False),
        ({"a": 1, "c": 1}, True),
        ({"a": 1, "b": 1}, True),
        ({"a": 1, "c": 2}, None),
        ({"a": 1, "b": "1", "c": 2}, None),
        ({"b": 1, "c": 2}, None),
    ],
)
def test_a_value_is_among_others_of_the_message_if_it_equals_one(
    user: dict[str, object], expected: bool | None
) -> None:
    assert outcome("a IN (b, c)", view_of(user)) is expected
    assert outcome("a NOT IN (b, c)", view_of(user)) is (None if expected is None else not expected)


@pytest.mark.parametrize("row", ["TF", "FT", "UU"])
def test_not_follows_three_valued_logic(row: str) -> None:
    assert outcome(f"NOT {TRUTHS[row[0]]}") is NAMED[row[1]]


@pytest.mark.parametrize("number", [Int(5), UInt(5), Long(5), ULong(5), Short(5), 5, 5.0, Float(5.0)])
def test_numbers_compare_by_value_whatever_their_type(number: object) -> None:
    assert outcome_of_user("a = 5", a=number)
    assert outcome_of_user("a = 5.0 AND 4 < a AND a < 5.5", a=number)
    assert outcome_of_user("a IN (4, 5)", a=number)


def test_large_integers_are_not_rounded_to_doubles() -> None:
    assert outcome_of_user("a = 9007199254740993", a=Long(9007199254740992)) is False
    assert outcome_of_user("a > 9223372036854775807", a=ULong(2**63)) is True


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a = 5", "5"),
        ("a <> 5", "5"),
        ("a < 5", "4"),
        ("a = '5'", 5),
        ("a = 1", True),
        ("a = TRUE", 1),
        ("a < TRUE", False),
        ("a = NULL", None),
        ("a = 5", Timestamp(5)),
        ("a LIKE '5%'", 5),
        ("a IN ('5', '6')", 5),
        ("a NOT IN (4, NULL)", 5),
        ("a = 'x'", ["x"]),
    ],
)
def test_values_of_different_kinds_compare_as_unknown(text: str, value: object) -> None:
    assert outcome_of_user(text, a=value) is None


def test_values_that_amqp_has_no_type_for_have_the_descriptors_of_the_dotnet_client() -> None:
    assert TIMESPAN == "com.microsoft:timespan"
    assert DATETIME_OFFSET == "com.microsoft:datetime-offset"
    assert URI == "com.microsoft:uri"


def test_text_compares_by_code_points_with_case() -> None:
    assert outcome_of_user("a = 'Red'", a="red") is False
    assert outcome_of_user("a = 'red'", a=Symbol("red")) is True
    assert outcome_of_user("a < 'b' AND a > 'Z'", a="a") is True


def test_names_of_properties_are_case_insensitive() -> None:
    assert outcome_of_user("COLOR = 'red' AND EXISTS([cOlOr]) AND property('coLor') = 'red'", Color="red")


def test_is_null_holds_for_a_missing_property_and_for_null() -> None:
    assert outcome_of_user("a IS NULL") is True
    assert outcome_of_user("a IS NULL", a=None) is True
    assert outcome_of_user("a IS NOT NULL", a=0) is True


def test_exists_asks_for_the_property_and_not_for_its_value() -> None:
    assert outcome_of_user("EXISTS(a)", a=None) is True
    assert outcome_of_user("EXISTS(a)") is False
    assert outcome("EXISTS(sys.Label)", view_of(subject="x")) is True
    assert outcome("EXISTS(sys.Label)") is False


@pytest.mark.rule("A16.6")
@pytest.mark.parametrize(
    "text",
    [
        "7 / 2 = 3",
        "-7 / 2 = -3",
        "7 % 3 = 1",
        "-7 % 3 = -1",
        "7 % 2.5 = 2",
        "7 / 2.0 = 3.5",
        "7.5 % 2 = 1.5",
        "2 + 3 * 4 = 14",
        "10 - 3 - 2 = 5",
        "'a' + 'b' = 'ab'",
        "'a' + 1 = 'a1'",
        "-(2) = -2",
        "-9223372036854775807 - 1 = -9223372036854775808",
        "9223372036854775806 + 1 = 9223372036854775807",
        "1 / 2 IS NOT NULL",
        "missing + 1 IS NULL",
    ],
)
def test_arithmetic_is_that_of_64_bit_integers_and_doubles(text: str) -> None:
    assert outcome(text) is True


def test_the_remainder_of_a_double_has_its_sign_also_if_it_is_zero() -> None:
    for zero in (0.0, -0.0):
        assert str(OPERATIONS["%"](zero, 2)) == str(zero)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("9223372036854775807 + 1 > 0", "64 bits"),
        ("-9223372036854775807 - 2 < 0", "64 bits"),
        ("9223372036854775807 * 2 > 0", "64 bits"),
        ("-9223372036854775808 / -1 > 0", "64 bits"),
        ("-(-9223372036854775808) > 0", "64 bits"),
        ("1 / 0 = 1", "zero"),
        ("1 % 0 = 1", "zero"),
        ("1.5 / 0 = 1", "zero"),
        ("TRUE + 1 = 2", "boolean"),
        ("'a' * 2 = 'aa'", "text"),
        ("-'a' = 'a'", "text"),
        ("property(1) = 2", "number"),
        ("'a' LIKE 1 + 1", "LIKE"),
        ("'a' LIKE 'a' + '!' ESCAPE '!'", "escape"),
    ],
)
def test_what_has_no_result_is_a_filter_error(text: str, problem: str) -> None:
    with pytest.raises(FilterError, match=problem):
        outcome(text)


def test_a_condition_before_it_guards_a_calculation() -> None:
    assert outcome_of_user("a <> 0 AND 10 / a > 2", a=0) is False
    assert outcome_of_user("a = 0 OR 10 / a > 2", a=0) is True


def test_joined_text_is_bounded() -> None:
    long = "x" * 20_000
    with pytest.raises(FilterError, match="longer than 32768"):
        outcome_of_user("a + a = 'x'", a=long)
    assert outcome_of_user("a + b = c", a=long, b="y" * 12_768, c=long + "y" * 12_768) is True
    with pytest.raises(FilterError, match="longer than 32768"):
        outcome_of_user("a + b = c", a=long, b="y" * 12_769, c="")


def test_times_differ_by_durations() -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    user: dict[str, object] = {"sent": understood(noon), "due": understood(noon + timedelta(hours=2))}
    assert outcome("due - sent <= @limit", view_of(user), limit=timedelta(hours=2))
    assert outcome("sent + @limit > due", view_of(user), limit=timedelta(hours=3))
    assert outcome("sent < @noon", view_of(user), noon=noon + timedelta(milliseconds=1))
    assert outcome("sent + @limit = due AND @limit + sent = due", view_of(user), limit=timedelta(hours=2))
    assert outcome("due - @limit = sent", view_of(user), limit=timedelta(hours=2))
    hours = {"one": timedelta(hours=1), "three": timedelta(hours=3), "two": timedelta(hours=2)}
    assert outcome("@one + @two = @three AND @three - @two = @one AND -@one + @two = @one", view_of(user), **hours)
    assert outcome("sent = @noon", view_of(user), noon=noon.replace(tzinfo=None))


def test_a_time_out_of_range_is_a_filter_error() -> None:
    user: dict[str, object] = {"a": Timestamp(2**63 - 1), "b": Timestamp(-(2**63))}
    with pytest.raises(FilterError):
        outcome("a - b = @limit", view_of(user), limit=timedelta(hours=2))


def test_the_dotnet_clients_timespans_are_durations() -> None:
    user = {"a": understood(Described(TIMESPAN, Long(10_000_000)))}
    assert outcome("a = @second", view_of(user), second=timedelta(seconds=1))


def test_the_dotnet_clients_times_with_an_offset_are_times() -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    ticks = (noon - datetime(1, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 10
    user = {"a": understood(Described(DATETIME_OFFSET, Long(ticks)))}
    assert outcome("a = @noon", view_of(user), noon=noon)


def test_system_properties_are_read_by_any_spelling_and_their_newer_names() -> None:
    view = view_of(subject="x", to="y", group_id="s", message_id=UUID(int=1), content_type=Symbol("text/plain"))
    assert outcome("sys.LABEL = 'x' AND sys.subject = 'x' AND sys.To = 'y' AND sys.sessionId = 's'", view)
    assert outcome("sys.MessageId = '00000000-0000-0000-0000-000000000001'", view)
    assert outcome("sys.ContentType LIKE 'text/%' AND sys.SequenceNumber = 7", view)
    assert outcome("sys.ReplyTo IS NULL", view)


def test_a_new_id_comes_from_the_source_of_ids() -> None:
    assert outcome("a = newid()", view_of({"a": SOME_ID}))


def test_an_unknown_system_property_is_refused_with_its_position() -> None:
    with pytest.raises(ArgumentError, match=r"position 11.*no system property Color.*expected .*CorrelationId"):
        outcome("a = 1 AND sys.Color = 'red'")


def test_a_missing_parameter_is_refused_with_its_position() -> None:
    with pytest.raises(ArgumentError, match=r"position 5.*no parameter @p"):
        outcome("a = @p")


def test_a_bad_constant_pattern_is_refused_with_its_position() -> None:
    with pytest.raises(ArgumentError, match=r"position 8.*LIKE needs a text"):
        outcome("a LIKE 5")
    with pytest.raises(ArgumentError, match=r"position 8.*ends with its escape"):
        outcome("a LIKE 'x!' ESCAPE '!'")


@pytest.mark.parametrize(
    "value",
    [
        Described(Symbol("acme:name"), "http://b/"),
        Described(Symbol("acme:span"), Long(1)),
        Described(URI, Long(1)),
        Described(TIMESPAN, "http://b/"),
        Described(DATETIME_OFFSET, "http://b/"),
    ],
)
def test_what_is_described_in_another_way_is_no_text_time_or_duration(value: Described) -> None:
    assert understood(value) == value
    view = view_of({"a": understood(value)})
    second, noon = timedelta(microseconds=1), datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert outcome("a = 'http://b/' OR a = 1 OR a = @second OR a < @noon", view, second=second, noon=noon) is None


def test_the_dotnet_clients_addresses_are_texts() -> None:
    assert outcome("a = 'http://b/'", view_of({"a": understood(Described(URI, "http://b/"))})) is True


@pytest.mark.parametrize(("escape", "expected"), [("!", True), ("?", False), (None, None)])
def test_an_escape_that_comes_with_the_message_counts_for_constants_too(
    escape: str | None, expected: bool | None
) -> None:
    assert outcome_of_user("'50%' LIKE '50!%' ESCAPE e", **({} if escape is None else {"e": escape})) is expected


OF_EACH_KIND: list[tuple[object, object]] = [
    (1, 2),
    ("a", "b"),
    (True, False),
    (datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 2, tzinfo=UTC)),
    (timedelta(hours=1), timedelta(hours=2)),
    (UUID(int=1), UUID(int=2)),
    (b"a", b"b"),
]


@pytest.mark.parametrize("place", range(len(OF_EACH_KIND)))
def test_whether_a_value_is_among_others_is_unknown_if_they_are_of_another_kind(place: int) -> None:
    user = {"a": understood(OF_EACH_KIND[place][0])}
    for other, (value, another) in enumerate(OF_EACH_KIND):
        found = outcome("a IN (@value, @another)", view_of(user), value=value, another=another)
        assert found is (True if other == place else None)
        assert outcome("a IN (@another)", view_of(user), another=another) is (False if other == place else None)


@pytest.mark.parametrize("text", ["'a' LIKE @nothing", "'a' LIKE 'a' ESCAPE @nothing", "'a' LIKE @nothing ESCAPE '!'"])
def test_a_pattern_or_escape_that_is_null_is_unknown(text: str) -> None:
    assert outcome(text, nothing=None) is None
