"""Rules ready for use: a description in, checked against every limit; a compiled rule out.

Each filter is reduced to what has to be equal (`conditions`, which the index looks up by hash) and
a test for the rest. A true filter has neither; a correlation filter has conditions alone; a SQL
filter has the equalities that it cannot be true without, if looking at them first makes no
difference to its outcome, and its own test after them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn, TypeAlias
from uuid import uuid4

from twinbus.errors import ArgumentError, FilterError
from twinbus.model.descriptions import CorrelationFilter, FalseFilter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from twinbus.model.paths import SUBSCRIPTION_NAME_LENGTH_MAX
from twinbus.model.rules.actions import CompiledAction, compile_action
from twinbus.model.rules.analysis import cannot_fail, is_constant, required_equalities
from twinbus.model.rules.compiler import Compiler, NewIdSource
from twinbus.model.rules.evaluation import Test
from twinbus.model.rules.nodes import And, Predicate, Scope
from twinbus.model.rules.parser import parse_action, parse_filter
from twinbus.model.rules.values import KINDS, equality_key, understood
from twinbus.model.rules.view import SYSTEM_PROPERTIES, FilterView

Field: TypeAlias = tuple[Scope, str]
"""A property by scope and name in lower case; of names that mean one system property, the first."""

Conditions: TypeAlias = tuple[tuple[Field, object], ...]
"""Fields with the equality keys that they must have, in the order of the fields."""

_CORRELATION_FIELDS = (
    ("correlation_id", "correlationid"),
    ("message_id", "messageid"),
    ("to", "to"),
    ("reply_to", "replyto"),
    ("label", "label"),
    ("session_id", "sessionid"),
    ("reply_to_session_id", "replytosessionid"),
    ("content_type", "contenttype"),
)
_NO_MESSAGE = FilterView(b"")


class Reach(Enum):
    """Which messages a filter has to look at."""

    NONE = "none: it is never true"
    ALL = "none: it is always true"
    SOME = "those that meet its conditions"


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    description: RuleDescription
    reach: Reach
    conditions: Conditions
    test: Test | None  # None where the conditions say it all
    action: CompiledAction | None
    fault: str = ""  # why the description cannot be compiled; its test then fails on every message

    @property
    def name(self) -> str:
        return self.description.name


def compile_rule(rule: RuleDescription, new_id: NewIdSource = uuid4) -> CompiledRule:
    """ArgumentError if the rule breaks a limit or its texts are not valid; the text says where and what was expected."""
    if not 1 <= len(rule.name) <= SUBSCRIPTION_NAME_LENGTH_MAX:
        raise ArgumentError(
            f"The rule name has {len(rule.name)} characters; give it one of 1 to {SUBSCRIPTION_NAME_LENGTH_MAX} characters."
        )
    action = None if rule.action is None else _compiled_action(rule.name, rule.action, new_id)
    match rule.filter:
        case TrueFilter():
            return CompiledRule(rule, Reach.ALL, (), None, action)
        case FalseFilter():
            return CompiledRule(rule, Reach.NONE, (), None, action)
        case CorrelationFilter() as correlation:
            return CompiledRule(rule, Reach.SOME, _correlation_conditions(correlation), None, action)
        case SqlFilter() as sql:
            reach, conditions, test = _compiled_filter(sql, new_id)
            return CompiledRule(rule, reach, conditions, test, action)


def compile_test(sql: SqlFilter, new_id: NewIdSource = uuid4) -> Test:
    """A filter by itself. ArgumentError as `compile_rule`."""
    return Compiler(sql.expression, _parameters(sql.parameters), new_id).predicate(parse_filter(sql.expression))


def compile_lone_action(action: SqlAction, new_id: NewIdSource = uuid4) -> CompiledAction:
    """An action by itself, whose outcome names no rule. ArgumentError as `compile_rule`."""
    return _compiled_action(None, action, new_id)


def faulty_rule(rule: RuleDescription, reason: str) -> CompiledRule:
    """For a rule that exists and cannot be compiled: it matches nothing, and says so of every message."""

    def fail(_: FilterView) -> NoReturn:
        raise FilterError(f"The rule '{rule.name}' cannot be used. Delete it, or create it again. {reason}")

    return CompiledRule(rule, Reach.SOME, (), fail, None, reason)


def _compiled_action(rule_name: str | None, action: SqlAction, new_id: NewIdSource) -> CompiledAction:
    compiler = Compiler(action.expression, _parameters(action.parameters), new_id)
    return compile_action(rule_name, parse_action(action.expression), compiler)


def _parameters(parameters: Iterable[tuple[str, object]]) -> dict[str, object]:
    """By name in lower case and without its sign; the SDKs send the sign, and not everyone does."""
    return {name.removeprefix("@").lower(): understood(value) for name, value in parameters}


def _compiled_filter(sql: SqlFilter, new_id: NewIdSource) -> tuple[Reach, Conditions, Test | None]:
    predicate = parse_filter(sql.expression)
    compiler = Compiler(sql.expression, _parameters(sql.parameters), new_id)
    test = compiler.predicate(predicate)
    # A condition that is not met hides whatever the test would have raised.
    if not cannot_fail(predicate):
        return Reach.SOME, (), test
    if is_constant(predicate):
        return (Reach.ALL if test(_NO_MESSAGE) else Reach.NONE), (), None
    conditions: dict[Field, object] = {}
    for target, value in required_equalities(predicate):
        key = equality_key(compiler.given(value))
        if key is None:  # compared with NULL: unknown on every message
            return Reach.NONE, (), None
        if target.scope is Scope.SYSTEM:
            conditions.setdefault(system_field(target.name), key)
        else:
            conditions.setdefault((Scope.USER, target.name.lower()), key)
    is_said_by_conditions = len(conditions) == _term_count(predicate)
    return Reach.SOME, _ordered(conditions), None if is_said_by_conditions else test


def _term_count(predicate: Predicate) -> int:
    if isinstance(predicate, And):
        return sum(map(_term_count, predicate.terms))
    return 1


def system_field(name: str) -> Field:
    return Scope.SYSTEM, SYSTEM_PROPERTIES[name.lower()].name.lower()


def _ordered(conditions: dict[Field, object]) -> Conditions:
    return tuple(sorted(conditions.items(), key=lambda item: (item[0][0].value, item[0][1])))


def _correlation_conditions(correlation: CorrelationFilter) -> Conditions:
    conditions: dict[Field, object] = {}
    for attribute, name in _CORRELATION_FIELDS:
        value = getattr(correlation, attribute)
        if value is not None:
            conditions[system_field(name)] = value
    for name, value in correlation.properties:
        plain = understood(value)
        if KINDS.get(type(plain)) is None:
            raise ArgumentError(
                f"The correlation filter cannot compare property '{name}' with a {type(value).__name__}; "
                "give it a text, number, boolean or time."
            )
        conditions[Scope.USER, name.lower()] = equality_key(plain)
    if not conditions:
        raise ArgumentError(
            "The correlation filter compares nothing; set at least one of its fields, or use a true filter."
        )
    return _ordered(conditions)
