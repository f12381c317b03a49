from datetime import timedelta

import pytest

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.types import Described, Int, Timestamp, ULong, Value
from twinbus.errors import ArgumentError
from twinbus.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
)
from twinbus.model.rules.wire import CORRELATION_FIELDS, read_rule, write_rule


def test_a_sql_filter_with_an_action_is_read() -> None:
    description = {"sql-filter": {"expression": "a = 1"}, "sql-rule-action": {"expression": "SET a = 2"}}
    expected = RuleDescription("r", SqlFilter("a = 1"), SqlAction("SET a = 2"), created_at=5)
    assert read_rule("r", description, created_at=5) == expected


def test_a_correlation_filter_is_read_and_nulls_are_fields_not_set() -> None:
    fields = {"correlation-id": "c", "message-id": None, "label": "l", "properties": {"a": Int(1)}}
    expected = CorrelationFilter(correlation_id="c", label="l", properties=(("a", 1),))
    assert read_rule("r", {"correlation-filter": fields}) == RuleDescription("r", expected)
    assert read_rule("r", {"correlation-filter": {"to": "t", "properties": None}}).filter == CorrelationFilter(to="t")


@pytest.mark.parametrize("attribute", CORRELATION_FIELDS)
def test_every_field_of_a_correlation_filter_has_its_key(attribute: str) -> None:
    read = read_rule("r", {"correlation-filter": {attribute.replace("_", "-"): "x"}}).filter
    expected: dict[str, Value] = {attribute: "x"}
    assert read == CorrelationFilter(**expected)


@pytest.mark.parametrize("action", [None, {"expression": None}, {"expression": ""}])
def test_an_empty_action_is_no_action(action: Value) -> None:
    assert read_rule("r", {"sql-filter": {"expression": "1=1"}, "sql-rule-action": action}).action is None


@pytest.mark.parametrize(
    ("name", "description"),
    [
        (None, {"sql-filter": {"expression": "1=1"}}),
        ("r", None),
        ("r", []),
        ("r", {}),
        ("r", {"sql-filter": "1=1"}),
        ("r", {"sql-filter": {}}),
        ("r", {"sql-filter": {"expression": 5}}),
        ("r", {"correlation-filter": {"label": 5}}),
        ("r", {"correlation-filter": {"properties": [1]}}),
        ("r", {"correlation-filter": {"properties": {5: 1}}}),
        ("r", {"sql-filter": {"expression": "1=1"}, "sql-rule-action": {"expression": 5}}),
    ],
)
def test_a_request_of_the_wrong_shape_is_an_argument_error(name: Value, description: Value) -> None:
    with pytest.raises(ArgumentError):
        read_rule(name, description)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Timestamp(2**63 - 1), "of property 'p' is beyond the calendar"),
        (None, "cannot compare property 'p' with this NoneType"),
        (b"x", "cannot compare property 'p' with this bytes"),
        (ULong(2**63), "cannot compare property 'p' with this ULong"),
    ],
)
def test_what_a_correlation_filter_cannot_compare_with_is_named(value: Value, problem: str) -> None:
    with pytest.raises(ArgumentError, match=problem):
        read_rule("r", {"correlation-filter": {"properties": {"p": value}}})


@pytest.mark.parametrize(
    ("rule", "descriptor", "fields"),
    [
        (RuleDescription("r"), 0x1370000007, []),
        (RuleDescription("r", FalseFilter()), 0x1370000008, []),
        (RuleDescription("r", SqlFilter("a = 1")), 0x1370000006, ["a = 1"]),
        (
            RuleDescription("r", CorrelationFilter("c", "m", "t", "y", "l", "s", "q", "p", (("a", 1),))),
            0x1370000009,
            ["c", "m", "t", "y", "l", "s", "q", "p", {"a": 1}],
        ),
        (RuleDescription("r", CorrelationFilter(to="t")), 0x1370000009, [None, None, "t", *[None] * 5, {}]),
    ],
)
def test_a_rule_is_written_as_described_lists(rule: RuleDescription, descriptor: int, fields: list[Value]) -> None:
    written = write_rule(rule)
    assert written.descriptor == 0x13700000004
    assert type(written.descriptor) is ULong
    described, action, name = written.value
    assert (described.descriptor, described.value) == (descriptor, fields)
    assert (action, name) == (Described(ULong(0x13700000005), []), "r")


def test_an_action_is_written_with_its_expression() -> None:
    written = write_rule(RuleDescription("r", action=SqlAction("SET a = 1")))
    assert written.value[1] == Described(ULong(0x13700000006), ["SET a = 1"])


@pytest.mark.parametrize("found", [SqlFilter("1=1"), CorrelationFilter(properties=(("a", timedelta(seconds=1)),))])
def test_what_is_written_can_be_encoded(found: FilterDescription) -> None:
    written = write_rule(RuleDescription("r", found, SqlAction("REMOVE a")))
    assert decode_value(encode_value(written), 0)[0] == written
