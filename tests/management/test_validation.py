from dataclasses import replace
from typing import Any

import pytest

from twinbus.clock import NEVER
from twinbus.errors import ArgumentError
from twinbus.management.validation import check_description, check_rule, check_update, requested_size_mb, shown_size_mb
from twinbus.model.descriptions import (
    DAY,
    MINUTE,
    SECOND,
    AuthorizationRule,
    CorrelationFilter,
    QueueDescription,
    Right,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)

QUEUE = QueueDescription("q")
ACCESS = AuthorizationRule("rule", "key", "other", frozenset({Right.SEND}))


@pytest.mark.rule("A1")
@pytest.mark.parametrize(
    ("field", "low", "high", "step"),
    [
        ("lock_duration", 5 * SECOND, 5 * MINUTE, 1),
        ("duplicate_detection_window", 20 * SECOND, 7 * DAY, 1),
        ("default_time_to_live", SECOND, NEVER, 1),
        ("auto_delete_on_idle", 5 * MINUTE, NEVER, 1),
        ("max_delivery_count", 1, 2_147_483_647, 1),
        ("max_size_mb", 1024, 5120, 1),
    ],
)
def test_a_value_is_taken_up_to_its_limits_and_not_beyond(field: str, low: int, high: int, step: int) -> None:
    for value in (low, high):
        check_description(replace(QUEUE, **{field: value}))  # type: ignore[arg-type]
    for value in (low - step, high + step):
        with pytest.raises(ArgumentError, match="Use "):
            check_description(replace(QUEUE, **{field: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a", "txt/.-_123", "a" * 260, "contoso/x-servicebus-transfer/0", "1"])
def test_names_of_letters_digits_and_four_marks_are_taken(name: str) -> None:
    check_description(QueueDescription(name))
    check_description(TopicDescription(name))


@pytest.mark.parametrize("name", ["", "a" * 261, "a b", "a//b", "/a", "a/", "$a", "ä", "a\n", ".", "a?b", "a#b"])
def test_other_names_are_refused(name: str) -> None:
    for description in (QueueDescription(name), TopicDescription(name), SubscriptionDescription(name, "s")):
        with pytest.raises(ArgumentError):
            check_description(description)


@pytest.mark.parametrize("name", ["", "a" * 51, "a/b", "a b", "$other"])
def test_names_of_subscriptions_and_rules_are_short_and_without_slash(name: str) -> None:
    with pytest.raises(ArgumentError):
        check_description(SubscriptionDescription("t", name))
    with pytest.raises(ArgumentError):
        check_rule(RuleDescription(name))
    check_description(SubscriptionDescription("t", "a" * 50))


@pytest.mark.parametrize("name", ["$Default", "$default", "$DEFAULT"])
def test_one_name_of_a_rule_has_a_dollar_in_any_case(name: str) -> None:
    check_rule(RuleDescription(name))


@pytest.mark.rule("A1.6")
@pytest.mark.parametrize("field", ["requires_session", "requires_duplicate_detection", "enable_partitioning"])
def test_what_is_chosen_at_creation_cannot_be_changed(field: str) -> None:
    with pytest.raises(ArgumentError, match="cannot be changed"):
        check_update(QUEUE, replace(QUEUE, **{field: True}))  # type: ignore[arg-type]
    check_update(QUEUE, replace(QUEUE, lock_duration=2 * MINUTE))


@pytest.mark.rule("A17.3")
@pytest.mark.parametrize(
    "rules",
    [
        tuple(replace(ACCESS, name=f"rule{number}") for number in range(13)),
        (ACCESS, ACCESS),
        (replace(ACCESS, rights=frozenset()),),
        (replace(ACCESS, rights=frozenset({Right.MANAGE, Right.SEND})),),
        (replace(ACCESS, name=""),),
        (replace(ACCESS, name="a b"),),
        (replace(ACCESS, primary_key="k" * 257),),
    ],
)
def test_access_rules_outside_of_their_limits_are_refused(rules: tuple[AuthorizationRule, ...]) -> None:
    with pytest.raises(ArgumentError):
        check_description(replace(QUEUE, authorization_rules=rules))


@pytest.mark.rule("A17.3")
def test_twelve_access_rules_are_taken() -> None:
    rules = tuple(replace(ACCESS, name=f"rule{number}") for number in range(12))
    check_description(replace(QUEUE, authorization_rules=rules))


@pytest.mark.rule("A6.8", "A1")
def test_a_partitioned_entity_shows_sixteen_times_the_size_and_takes_that_back() -> None:
    queue = replace(QUEUE, enable_partitioning=True, max_size_mb=5120)
    assert shown_size_mb(queue) == 81920
    assert requested_size_mb(81920, is_partitioned=True) == 5120
    assert requested_size_mb(3072, is_partitioned=True) == 3072
    assert requested_size_mb(81920, is_partitioned=False) == 81920


@pytest.mark.parametrize(
    "rule",
    [
        RuleDescription("r", SqlFilter("a = ")),
        RuleDescription("r", SqlFilter("a = '" + "x" * 1024 + "'")),
        RuleDescription("r", SqlFilter("a = 1", tuple((f"@p{number}", 1) for number in range(65)))),
        RuleDescription("r", CorrelationFilter()),
        RuleDescription("r", CorrelationFilter(label="x" * 1025)),
        RuleDescription("r", CorrelationFilter(properties=(("", 1),))),
        RuleDescription("r", CorrelationFilter(properties=(("x" * 1025, 1),))),
        RuleDescription("r", CorrelationFilter(properties=(("a", "x" * 1025),))),
        RuleDescription("r", action=SqlAction("SET")),
        RuleDescription("r", SqlFilter("sys.Nothing = 1")),
        RuleDescription("r", SqlFilter("a = @missing")),
        RuleDescription("r", SqlFilter("a LIKE 'b' ESCAPE 'cc'")),
        RuleDescription("r", CorrelationFilter(properties=(("a", None),))),
        RuleDescription("r", action=SqlAction("SET sys.EnqueuedTimeUtc = 1")),
        RuleDescription("r", action=SqlAction("REMOVE sys.MessageId")),
        RuleDescription("r", action=SqlAction("SET a = @missing")),
        RuleDescription("r", action=SqlAction("; ".join("SET a = 1" for _ in range(33)))),
    ],
)
def test_rules_that_cannot_work_are_refused_when_they_are_made(rule: RuleDescription) -> None:
    with pytest.raises(ArgumentError):
        check_rule(rule)


def test_rules_that_work_are_taken() -> None:
    wanted: list[Any] = [SqlFilter("a = @x AND sys.Label LIKE 'b%'", (("@x", 1),)), CorrelationFilter(label="l")]
    for chosen in wanted:
        check_rule(RuleDescription("r", chosen, SqlAction("SET a = 1; REMOVE b")))


def test_a_property_of_a_correlation_filter_may_have_a_name_as_long_as_its_value() -> None:
    check_rule(RuleDescription("r", CorrelationFilter(properties=(("n" * 1024, "v" * 1024),))))


@pytest.mark.rule("A11")
def test_an_entity_with_message_sessions_may_forward() -> None:
    # The service takes such a description, and the official SDK's own tests create one.
    for sessions in (
        QueueDescription("q", requires_session=True),
        SubscriptionDescription("t", "s", requires_session=True),
    ):
        check_description(replace(sessions, forward_to="other", forward_dead_letters_to="other"))
