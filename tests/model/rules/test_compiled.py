import pytest

from twinbus.errors import ArgumentError
from twinbus.model.descriptions import CorrelationFilter, FalseFilter, RuleDescription, SqlAction, SqlFilter
from twinbus.model.rules.compiled import CompiledRule, Reach, compile_rule
from twinbus.model.rules.nodes import Scope


def compiled(text: str, **parameters: object) -> CompiledRule:
    return compile_rule(RuleDescription("r", SqlFilter(text, tuple(parameters.items()))))


@pytest.mark.parametrize("name", ["", "x" * 51])
def test_a_rule_name_has_1_to_50_characters(name: str) -> None:
    with pytest.raises(ArgumentError, match="1 to 50 characters"):
        compile_rule(RuleDescription(name))
    compile_rule(RuleDescription("x" * 50))


@pytest.mark.parametrize(
    "rule",
    [
        RuleDescription("r", SqlFilter("a =")),
        RuleDescription("r", SqlFilter("a = @p")),
        RuleDescription("r", SqlFilter("a = 1" + " " * 1_024)),
        RuleDescription("r", action=SqlAction("SET")),
        RuleDescription("r", FalseFilter(), SqlAction("SET a")),
        RuleDescription("r", CorrelationFilter()),
        RuleDescription("r", CorrelationFilter(properties=(("a", None),))),
        RuleDescription("r", CorrelationFilter(properties=(("a", [1]),))),
    ],
)
def test_a_rule_that_cannot_be_compiled_is_refused(rule: RuleDescription) -> None:
    with pytest.raises(ArgumentError):
        compile_rule(rule)


@pytest.mark.parametrize("name", ["p", "@p", "@P"])
def test_a_parameter_is_given_with_or_without_its_sign(name: str) -> None:
    compiled("a = @p", **{name: 5})


@pytest.mark.parametrize(
    ("text", "reach"),
    [
        ("1=1", Reach.ALL),
        ("NOT 1 = 0", Reach.ALL),
        ("1=0", Reach.NONE),
        ("NULL = 1", Reach.NONE),
        ("a = NULL", Reach.NONE),
        ("a = 1", Reach.SOME),
        ("1/0 = 1", Reach.SOME),
        ("newid() IS NULL", Reach.SOME),
    ],
)
def test_a_filter_that_is_the_same_for_all_messages_looks_at_none(text: str, reach: Reach) -> None:
    assert compiled(text).reach is reach


def test_equalities_that_a_filter_needs_become_conditions() -> None:
    rule = compiled("b = 'x' AND (5 = A AND sys.Subject = @p)", p="l")
    assert rule.conditions == (((Scope.SYSTEM, "label"), "l"), ((Scope.USER, "a"), 5), ((Scope.USER, "b"), "x"))
    assert rule.test is None


def test_a_filter_that_says_more_is_tested_after_its_conditions() -> None:
    rule = compiled("a = 1 AND b > 2")
    assert rule.conditions == (((Scope.USER, "a"), 1),)
    assert rule.test is not None
    assert compiled("a = 1 AND a = 2").test is not None


@pytest.mark.parametrize("pattern", ["'x%'", "@p", "'x!%' ESCAPE '!'", "@p ESCAPE @q"])
def test_a_condition_beside_a_pattern_that_is_given_is_one(pattern: str) -> None:
    assert compiled(f"a LIKE {pattern} AND b = 1", p="x", q="!").conditions == (((Scope.USER, "b"), 1),)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1 OR b = 2",
        "NOT a = 1",
        "a = b",
        "a > 1",
        "a = 1 AND 1/b > 0",
        "a LIKE b AND b = 1",
        "a LIKE 'x' ESCAPE c AND b = 1",
    ],
)
def test_what_a_filter_does_not_need_or_could_hide_its_error_is_no_condition(text: str) -> None:
    rule = compiled(text)
    assert rule.conditions == ()
    assert rule.test is not None
