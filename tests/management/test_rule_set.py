"""The rules of a subscription as a value: like a list of them, and without a look at the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.management import rule_set
from twinbus.management.rule_set import RuleSet
from twinbus.model.descriptions import CorrelationFilter, RuleDescription
from twinbus.model.paths import path_key

NAMES = ["a", "A", "b", "B", "c", "ss", "ß", "d"]
MANY = 35_000


def rule(name: str, *, is_correlation: bool = False) -> RuleDescription:
    return RuleDescription(name, CorrelationFilter(label=name)) if is_correlation else RuleDescription(name)


def named(rules: list[RuleDescription], name: str) -> RuleDescription | None:
    return next((each for each in rules if path_key(each.name) == path_key(name)), None)


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["set", "set correlation", "remove"])), max_size=30))
def test_it_is_what_a_list_of_rules_would_be(changes: list[tuple[str, str]]) -> None:
    rules, expected = RuleSet(), list[RuleDescription]()
    for name, change in changes:
        before, kept, place = rules, list(expected), named(expected, name)
        if change != "remove":
            added = rule(name, is_correlation=change == "set correlation")
            rules = rules.with_rule(added)
            expected = [added if each is place else each for each in expected] + ([added] if place is None else [])
        elif place is not None:
            rules = rules.without(name)
            expected = [each for each in expected if each is not place]
        assert list(before) == kept
        assert list(rules) == expected
        assert rules == RuleSet(expected)
        assert hash(rules) == hash(RuleSet(expected))
        by_name = sorted(expected, key=lambda each: path_key(each.name))
        assert [rules.page(skip, 2) for skip in range(4)] == [by_name[skip : skip + 2] for skip in range(4)]
        assert len(rules) == len(expected)
        assert rules.correlation_count == sum(isinstance(each.filter, CorrelationFilter) for each in expected)
        assert [rules.find(each) for each in NAMES] == [named(expected, each) for each in NAMES]


def test_what_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(KeyError):
        RuleSet([rule("a")]).without("b")


def test_nothing_is_done_for_each_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = RuleSet([rule(f"r{number}") for number in range(MANY)])
    keys = list[str]()

    def counted(name: str) -> str:
        keys.append(name)
        return path_key(name)

    monkeypatch.setattr(rule_set, "path_key", counted)
    rules = rules.with_rule(rule("new")).with_rule(rule("new", is_correlation=True))
    assert rules.find("R7") is not None
    assert len(rules.page(20_000, 100)) == 100
    assert len(rules.without("new")) == MANY
    assert len(keys) < 10
