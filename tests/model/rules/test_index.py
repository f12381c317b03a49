from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.rules.printer import print_filter
from tests.model.rules.strategies import NAMES, evaluable_filters, messages
from tests.model.rules.views import content_of, view_of
from twinbus.errors import ArgumentError, EntityAlreadyExists, EntityNotFound, FilterError, QuotaExceeded
from twinbus.model.content import application_properties
from twinbus.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from twinbus.model.rules import index as index_module
from twinbus.model.rules.compiler import Compiler
from twinbus.model.rules.evaluation import Test
from twinbus.model.rules.index import RuleIndex
from twinbus.model.rules.lookup import ConditionLookup
from twinbus.model.rules.nodes import Scope
from twinbus.model.rules.parser import parse_filter
from twinbus.model.rules.values import equal, equality_key
from twinbus.model.rules.view import FilterView
from twinbus.testing.messages import make_message

MARK = SqlAction("SET marked = 1")


def index_of(*rules: tuple[str, RuleDescription]) -> RuleIndex[str]:
    index: RuleIndex[str] = RuleIndex()
    for subscription, rule in rules:
        index.add_rule(subscription, rule)
    return index


def copied(index: RuleIndex[str], view: FilterView) -> list[tuple[str, bool]]:
    return sorted((copy.subscription, copy.action is not None) for copy in index.match(view).copies)


correlation_values = st.one_of(st.sampled_from(["red", "Red", ""]), st.sampled_from([0, 1, 1.0, 2]), st.booleans())
correlation_filters = st.builds(
    CorrelationFilter,
    label=st.sampled_from([None, "red", "blue"]),
    to=st.sampled_from([None, "x"]),
    properties=st.lists(
        st.tuples(st.sampled_from(NAMES), correlation_values), max_size=3, unique_by=lambda pair: pair[0].lower()
    ).map(tuple),
).filter(lambda found: bool(found.label or found.to or found.properties))
sql_filters = evaluable_filters.map(print_filter).filter(lambda text: len(text) <= 1_024).map(SqlFilter)
filters = st.one_of(
    correlation_filters, correlation_filters, sql_filters, st.builds(TrueFilter), st.builds(FalseFilter)
)
rule_sets = st.lists(st.tuples(st.sampled_from("stu"), filters, st.sampled_from([None, MARK])), max_size=8)


def naive_outcome(described: FilterDescription, view: FilterView) -> bool | None:
    """Without conditions: every field compared, every SQL filter evaluated whole."""
    match described:
        case TrueFilter() | FalseFilter():
            return isinstance(described, TrueFilter)
        case SqlFilter(text):
            return whole_test(text)(view)
        case CorrelationFilter(label=label, to=to, properties=properties):
            pairs = [(label, view.properties.subject), (to, view.properties.to)]
            pairs += [(value, view.user.get(name.lower())) for name, value in properties]  # type: ignore[misc]
            return all(wanted is None or equal(wanted, found) for wanted, found in pairs)


def whole_test(text: str) -> Test:
    return Compiler(text, {}, lambda: UUID(int=0)).predicate(parse_filter(text))


def scan(rules: list[tuple[str, RuleDescription]], view: FilterView) -> tuple[list[tuple[str, bool]], set[str]]:
    plain: set[str] = set()
    copies: list[tuple[str, bool]] = []
    failed: set[str] = set()
    for subscription, rule in rules:
        try:
            if not naive_outcome(rule.filter, view):
                continue
        except FilterError:
            failed.add(subscription)
            continue
        if rule.action:
            copies.append((subscription, True))
        else:
            plain.add(subscription)
    return sorted(copies + [(subscription, False) for subscription in plain]), failed


@pytest.mark.rule("A16")
@given(rule_sets, messages, st.sampled_from([None, "red"]), st.sampled_from([None, "x"]), st.sets(st.integers(0, 7)))
@settings(max_examples=200)
def test_the_index_finds_what_a_scan_of_all_rules_finds(
    drawn: list[tuple[str, FilterDescription, SqlAction | None]],
    user: dict[str, object],
    label: str | None,
    to: str | None,
    removed: set[int],
) -> None:
    rules = [
        (subscription, RuleDescription(f"r{n}", found, action)) for n, (subscription, found, action) in enumerate(drawn)
    ]
    index = index_of(*rules)
    view = view_of(user, subject=label, to=to)
    matches = index.match(view)
    assert (copied(index, view), {failure.subscription for failure in matches.failures}) == scan(rules, view)

    for number in removed & set(range(len(rules))):
        index.remove_rule(rules[number][0], f"R{number}")
    rest = [rule for number, rule in enumerate(rules) if number not in removed]
    assert (copied(index, view), {failure.subscription for failure in index.match(view).failures}) == scan(rest, view)

    list(index.remove_subscription("s"))
    rest = [rule for rule in rest if rule[0] != "s"]
    assert copied(index, view) == scan(rest, view)[0]


@pytest.mark.rule("A16.2")
def test_rules_without_action_give_one_copy_and_each_with_an_action_one_more() -> None:
    index = index_of(
        ("s", RuleDescription("one")),
        ("s", RuleDescription("two", SqlFilter("a = 1"))),
        ("s", RuleDescription("three", CorrelationFilter(properties=(("a", 1),)))),
        ("s", RuleDescription("four", SqlFilter("a > 0"), MARK)),
        ("s", RuleDescription("five", TrueFilter(), MARK)),
    )
    assert copied(index, view_of({"a": 1})) == [("s", False), ("s", True), ("s", True)]


def test_the_action_of_a_copy_makes_its_content() -> None:
    index = index_of(("s", RuleDescription("mark", SqlFilter("a = 1"), MARK)))
    view = FilterView(content_of({"a": 1}))
    (copy,) = index.match(view).copies
    assert copy.action is not None
    assert application_properties(copy.action.apply(view)) == {"a": 1, "marked": 1, "RuleName": "mark"}


def test_true_filters_do_not_decode_the_message() -> None:
    index = index_of(("s", RuleDescription("$Default")), ("t", RuleDescription("r", SqlFilter("1=1"))))
    assert copied(index, FilterView(b"no content at all")) == [("s", False), ("t", False)]


@pytest.mark.rule("A16")
@pytest.mark.parametrize("removed", ["both", "b", "b and c"])
def test_a_rule_that_is_removed_leaves_those_that_are_found_by_the_same_property(removed: str) -> None:
    """Three kinds of filters, all found by the property b, because a has one of its own."""
    wanted = {"a": ("a",), "both": ("a", "b"), "b": ("b",), "b and c": ("b", "c")}
    index = index_of(
        *[
            (name, RuleDescription("r", CorrelationFilter(properties=tuple((field, 1) for field in fields))))
            for name, fields in wanted.items()
        ]
    )
    view = view_of({"a": 1, "b": 1, "c": 1})
    assert {name for name, _ in copied(index, view)} == set(wanted)
    index.remove_rule(removed, "r")
    assert {name for name, _ in copied(index, view)} == set(wanted) - {removed}
    for name in wanted.keys() - {removed}:
        index.remove_rule(name, "r")
    assert copied(index, view) == []


@pytest.mark.parametrize(
    ("expression", "colour", "size", "is_found"),
    [
        ("colour = 'red' AND size > 3", "red", 4, True),
        ("colour = 'red' AND size > 3", "red", 3, False),
        ("colour = 'red' AND size > 3", "blue", 4, False),
        ("colour = 'red' AND 4 = size", "red", 4, True),
        ("size = 3 AND size = 4", "red", 3, False),
        ("size = 4 AND size = 3", "red", 3, False),
    ],
)
@pytest.mark.parametrize("action", [None, MARK])
def test_a_filter_that_needs_an_equality_and_more_has_to_hold_whole(
    expression: str, colour: str, size: int, is_found: bool, action: SqlAction | None
) -> None:
    index = index_of(("s", RuleDescription("r", SqlFilter(expression), action)))
    found = copied(index, view_of({"colour": colour, "size": size}))
    assert found == ([("s", action is not None)] if is_found else [])


def test_a_subscription_without_rules_gets_nothing() -> None:
    index = index_of(("s", RuleDescription("$Default")))
    index.remove_rule("s", "$default")
    assert index.match(view_of()).copies == []


def test_a_filter_error_is_reported_once_for_each_subscription_and_hides_no_copy() -> None:
    failing = SqlFilter("1 / a = 1")
    index = index_of(
        ("s", RuleDescription("one", failing)),
        ("s", RuleDescription("two", failing)),
        ("s", RuleDescription("three")),
        ("t", RuleDescription("one", failing)),
    )
    copies, failures = index.match(view_of({"a": 0}))
    assert [copy.subscription for copy in copies] == ["s"]
    assert [(failure.subscription, failure.rule_name) for failure in failures] == [("s", "one"), ("t", "one")]
    assert "zero" in str(failures[0].error)


def test_a_correlation_filter_compares_text_with_case_and_numbers_by_value() -> None:
    index = index_of(
        ("text", RuleDescription("r", CorrelationFilter(properties=(("a", "2"),)))),
        ("number", RuleDescription("r", CorrelationFilter(properties=(("A", 2),)))),
        ("boolean", RuleDescription("r", CorrelationFilter(properties=(("a", True),)))),
        ("label", RuleDescription("r", CorrelationFilter(label="Red"))),
    )
    assert copied(index, view_of({"a": 2.0}, subject="red")) == [("number", False)]
    assert copied(index, view_of({"a": "2"}, subject="Red")) == [("label", False), ("text", False)]
    assert copied(index, view_of({"a": 1})) == []
    assert copied(index, view_of({"a": True})) == [("boolean", False)]


@pytest.mark.rule("A16.8")
def test_all_fields_of_a_correlation_filter_have_to_match() -> None:
    every = CorrelationFilter("c", "m", "t", "r", "l", "s", "q", "text", (("a", 1),))
    index = index_of(("s", RuleDescription("r", every)))
    properties: dict[str, object] = {
        "correlation_id": "c",
        "message_id": "m",
        "to": "t",
        "reply_to": "r",
        "subject": "l",
        "group_id": "s",
        "reply_to_group_id": "q",
        "content_type": "text",
    }
    assert copied(index, view_of({"a": 1}, **properties)) == [("s", False)]
    for field in properties:
        assert copied(index, view_of({"a": 1}, **{**properties, field: "other"})) == []
    assert copied(index, view_of({}, **properties)) == []


def test_equal_parameters_of_different_types_make_different_filters() -> None:
    index = index_of(
        ("number", RuleDescription("r", SqlFilter("a <> @p", (("p", 1),)))),
        ("boolean", RuleDescription("r", SqlFilter("a <> @p", (("p", True),)))),
    )
    assert copied(index, view_of({"a": 2})) == [("number", False)]


@pytest.mark.parametrize("action", [None, MARK])
def test_a_rule_outlives_another_with_the_same_filter(action: SqlAction | None) -> None:
    same = SqlFilter("a > 0")
    index = index_of(("s", RuleDescription("one", same, action)), ("s", RuleDescription("two", same, action)))
    index.remove_rule("s", "one")
    assert copied(index, view_of({"a": 1})) == [("s", action is not None)]
    index.remove_rule("s", "two")
    assert copied(index, view_of({"a": 1})) == []


def test_a_second_rule_of_the_same_name_is_refused() -> None:
    index = index_of(("s", RuleDescription("r")))
    with pytest.raises(EntityAlreadyExists):
        index.add_rule("s", RuleDescription("R", FalseFilter()))
    index.add_rule("t", RuleDescription("r"))
    assert index.rules("s") == [RuleDescription("r")]


def test_a_rule_that_exists_is_restored_and_one_that_does_not_compile_any_more_matches_nothing() -> None:
    index: RuleIndex[str] = RuleIndex()
    fine, faulty = RuleDescription("fine", SqlFilter("a = 1")), RuleDescription("faulty", SqlFilter("a ="))
    assert index.restore_rule("s", fine) is None
    assert isinstance(index.restore_rule("t", faulty), ArgumentError)
    assert (index.rules("s"), index.rules("t")) == ([fine], [faulty])
    assert copied(index, view_of({"a": 1})) == [("s", False)]


def test_a_rule_that_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(EntityNotFound):
        index_of(("s", RuleDescription("r"))).remove_rule("s", "other")


def test_rules_are_listed_in_the_order_of_adding() -> None:
    index = index_of(("s", RuleDescription("$Default")), ("s", RuleDescription("b")), ("s", RuleDescription("a")))
    assert [rule.name for rule in index.rules("s")] == ["$Default", "b", "a"]
    assert index.rules("unknown") == []


@pytest.mark.rule("A16.10")
@pytest.mark.parametrize(
    ("limit", "found"),
    [("SQL_FILTER_COUNT_MAX", SqlFilter("a > 1")), ("CORRELATION_FILTER_COUNT_MAX", CorrelationFilter(label="x"))],
)
def test_a_topic_has_limits_for_its_filters(
    limit: str, found: FilterDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (index_module.SQL_FILTER_COUNT_MAX, index_module.CORRELATION_FILTER_COUNT_MAX) == (2_000, 100_000)
    monkeypatch.setattr(index_module, limit, 2)
    index = index_of(
        ("s", RuleDescription("a", found)), ("s", RuleDescription("b", found)), ("s", RuleDescription("c"))
    )
    with pytest.raises(QuotaExceeded, match="limit"):
        index.add_rule("t", RuleDescription("d", found))
    assert index.rules("t") == []
    index.remove_rule("s", "a")
    index.add_rule("t", RuleDescription("d", found))
    with pytest.raises(QuotaExceeded, match="limit"):
        index.add_rule("t", RuleDescription("e", found))
    # They count no longer even before they are taken out of all tables.
    index.remove_subscription("s")
    index.remove_subscription("t")
    for name in ("f", "g"):
        index.add_rule("u", RuleDescription(name, found))
    with pytest.raises(QuotaExceeded, match="limit"):
        index.add_rule("u", RuleDescription("h", found))


class CountingReads(dict[str, object]):
    """User properties that count how often one is asked for."""

    count = 0

    def get(self, key: str, default: object = None) -> object:
        self.count += 1
        return super().get(key, default)


def counted_view(user: CountingReads) -> FilterView:
    view = view_of()
    view.user = user
    return view


def test_a_message_costs_nothing_for_rules_about_properties_that_it_does_not_have() -> None:
    """Goal: shapes cannot be used to make every message slow. Each of these rules has a shape of its own."""
    index: RuleIndex[str] = RuleIndex()
    for number in range(500):
        pairs = (("kind", "order"), (f"p{number}", 1))
        index.add_rule("s", RuleDescription(f"r{number}", CorrelationFilter(properties=pairs)))
    user = CountingReads(kind="order", p7=1)
    assert copied(index, counted_view(user)) == [("s", False)]
    assert user.count == 4  # two fields of the rule that matches, and of the one that is anchored at `kind`


def test_a_rule_that_was_removed_costs_nothing() -> None:
    index = index_of(
        ("s", RuleDescription("gone", CorrelationFilter(properties=(("a", 1),)))),
        ("s", RuleDescription("stays", CorrelationFilter(properties=(("a", 1), ("b", 1))))),
    )
    index.remove_rule("s", "gone")
    user = CountingReads(a=1)
    assert copied(index, counted_view(user)) == []
    assert user.count == 0


def test_rules_of_a_kind_are_found_again_after_the_last_one_of_it_was_removed() -> None:
    lookup, view = (
        ConditionLookup[str](),
        FilterView(make_message("m", application_properties={"colour": "red"}).content),
    )
    conditions = (((Scope.USER, "colour"), equality_key("red")),)
    lookup.add(conditions, "first")
    lookup.remove(conditions, "first")
    assert not lookup
    lookup.add(conditions, "second")
    assert list(lookup.found(view)) == ["second"]
