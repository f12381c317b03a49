from uuid import UUID

import pytest

from tests.model.rules.views import content_of
from twinbus.amqp.codec.types import Byte, Float, Int, Long, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort
from twinbus.errors import ArgumentError, FilterError
from twinbus.model.content import application_properties, properties
from twinbus.model.delivery import encode_delivery
from twinbus.model.descriptions import RuleDescription, SqlAction
from twinbus.model.rules.compiled import compile_rule
from twinbus.model.rules.conversion import converted_like
from twinbus.model.rules.view import FilterView

SOME_ID = UUID(int=5)


def applied(text: str, content: bytes) -> bytes:
    rule = compile_rule(RuleDescription("r", action=SqlAction(text)), lambda: SOME_ID)
    assert rule.action is not None
    return rule.action.apply(FilterView(content))


def user_after(text: str, **user: object) -> dict[str, object]:
    after = application_properties(applied(text, content_of(user)))
    assert after.pop("RuleName") == "r"
    return after


@pytest.mark.rule("A16.7")
def test_set_makes_and_changes_properties_and_remove_takes_them_away() -> None:
    assert user_after("SET a = 'new'; REMOVE b; SET c = 'made'", a="old", b=1) == {"a": "new", "c": "made"}


def test_a_copy_made_by_an_action_names_its_rule() -> None:
    content = applied("SET a = 1", content_of())
    assert application_properties(content)["RuleName"] == "r"


def test_a_statement_sees_what_the_ones_before_it_did() -> None:
    assert user_after("SET a = a + 1; SET b = a * 2; REMOVE a", a=1) == {"b": 4}
    assert user_after("REMOVE a; SET a = 1", a="text") == {"a": 1}
    assert user_after("SET a = 1; REMOVE A") == {}


def test_a_property_keeps_the_spelling_of_its_name() -> None:
    assert user_after("SET COLOR = 'red'", Color="blue") == {"Color": "red"}
    assert user_after("REMOVE COLOR", Color="blue") == {}


def test_an_action_sets_the_texts_of_the_properties_section() -> None:
    text = (
        "SET sys.Label = 'l'; SET sys.To = 't'; SET sys.ReplyTo = 'r'; SET sys.CorrelationId = 5; "
        "SET sys.MessageId = newid(); SET sys.SessionId = 's'; SET sys.ReplyToSessionId = 'q'; SET sys.ContentType = 'c'"
    )
    after = properties(applied(text, content_of(message_id="m")))
    assert (after.subject, after.to, after.reply_to, after.correlation_id) == ("l", "t", "r", "5")
    assert (after.message_id, after.group_id, after.reply_to_group_id) == (str(SOME_ID), "s", "q")
    assert after.content_type == "c"
    assert type(after.content_type) is Symbol
    assert {type(each) for each in (after.subject, after.to, after.reply_to, after.group_id)} == {str}


def test_an_action_removes_system_properties() -> None:
    after = properties(applied("REMOVE sys.Subject; SET sys.To = missing", content_of(subject="x", to="y")))
    assert (after.subject, after.to) == (None, None)


def test_statements_see_changed_system_properties() -> None:
    assert user_after("SET sys.Label = 'x'; SET a = sys.Label + sys.Subject") == {"a": "xx"}


def test_actions_of_two_rules_do_not_see_each_other() -> None:
    view = FilterView(content_of({"a": 1}, subject="x"))
    for name in ("one", "two"):
        action = compile_rule(
            RuleDescription(name, action=SqlAction("SET a = a + 1; SET sys.Label = sys.Label + 'y'"))
        ).action
        assert action is not None
        content = action.apply(view)
        assert application_properties(content) == {"a": 2, "RuleName": name}
        assert properties(content).subject == "xy"


def test_body_and_message_stay_as_they_are() -> None:
    content = content_of({"a": 1}, subject="x")
    before = bytes(content)
    changed = applied("SET a = 2; SET sys.Label = 'y'", content)
    assert content == before
    assert encode_delivery(changed, sequence_number=1, enqueued_at=0, delivery_count=0).endswith(b"body")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SET sys.Color = 1", r"position 5.*no system property Color"),
        ("SET a = 1; SET sys.TimeToLive = 1", r"position 16.*cannot change TimeToLive; expected .*ContentType"),
        ("REMOVE sys.SequenceNumber", r"position 8.*cannot change SequenceNumber"),
        ("REMOVE sys.MessageId", r"position 8.*without MessageId"),
        ("SET a = @p", r"position 9.*no parameter @p"),
    ],
)
def test_an_action_that_can_never_work_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ArgumentError, match=problem):
        applied(text, content_of())


@pytest.mark.parametrize(
    "text", ["SET a = 1 / 0", "SET sys.MessageId = missing", "SET sys.SessionId = long", "SET a = late - early"]
)
def test_an_action_that_fails_on_a_message_is_a_filter_error(text: str) -> None:
    far_apart = {"early": Timestamp(0), "late": Timestamp(5 * 10**16)}
    with pytest.raises(FilterError):
        applied(text, content_of({"long": "x" * 129, **far_apart}))


def test_an_id_may_be_set_to_128_characters() -> None:
    assert properties(applied("SET sys.SessionId = long", content_of({"long": "x" * 128}))).group_id == "x" * 128


@pytest.mark.parametrize(
    ("former", "value", "expected"),
    [
        (Int(10), 5, Int(5)),
        (UInt(10), 5, UInt(5)),
        (Short(1), 70_000, 70_000),
        (UInt(1), -1, -1),
        (Int(10), 2.5, 2.5),
        (Int(10), 2.0, Int(2)),
        (Long(1), "12", Long(12)),
        (Long(1), "twelve", "twelve"),
        (Float(1.0), 2, Float(2.0)),
        (1.5, "2.5", 2.5),
        ("x", 5, "5"),
        ("x", True, "True"),
        (True, "false", False),
        (False, "True", True),
        (True, 5, 5),
        (SOME_ID, str(UUID(int=7)), UUID(int=7)),
        (SOME_ID, "no id", "no id"),
        (Timestamp(1), 2, Timestamp(2)),
        (Int(1), None, None),
        (None, "x", "x"),
        (Int(1), float("inf"), float("inf")),
        (Int(1), float("1e300"), 1e300),
    ],
)
def test_a_value_takes_the_type_that_the_property_had_if_it_fits(
    former: object, value: object, expected: object
) -> None:
    converted = converted_like(former, value)
    assert converted == expected
    assert type(converted) is type(expected)


def test_halving_an_int_leaves_an_int_on_the_wire() -> None:
    after = user_after("SET quantity = quantity / 2", quantity=UInt(9))
    assert after == {"quantity": 4}
    assert type(after["quantity"]) is UInt


def test_a_number_that_a_single_float_cannot_hold_becomes_a_double_on_the_wire() -> None:
    assert user_after("SET quantity = quantity * 1e300", quantity=Float(2.0)) == {"quantity": 2e300}


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [
        (UByte, 0, 255),
        (UShort, 0, 65_535),
        (UInt, 0, 4_294_967_295),
        (ULong, 0, 18_446_744_073_709_551_615),
        (Byte, -128, 127),
        (Short, -32_768, 32_767),
        (Int, -2_147_483_648, 2_147_483_647),
        (Long, -9_223_372_036_854_775_808, 9_223_372_036_854_775_807),
    ],
)
def test_a_number_takes_an_integer_type_up_to_its_limits(kind: type[int], lowest: int, highest: int) -> None:
    for number in (lowest, highest):
        assert type(converted_like(kind(1), str(number))) is kind
        assert converted_like(kind(1), str(number)) == number
    for number in (lowest - 1, highest + 1):
        assert converted_like(kind(1), str(number)) == str(number)
