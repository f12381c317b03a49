"""Rules of the administration client as our descriptions, both ways."""

from dataclasses import fields
from typing import Any

from twinbus.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)

CORRELATION_FIELDS = tuple(field.name for field in fields(CorrelationFilter) if field.name != "properties")


def described_rule(rule: Any) -> RuleDescription:
    action = rule.action
    return RuleDescription(
        name=rule.name,
        filter=_our_filter(rule.filter),
        action=SqlAction(action.sql_expression, _pairs(action.parameters)) if action else None,
    )


def client_filter(chosen: FilterDescription) -> Any:
    from azure.servicebus.management import CorrelationRuleFilter, FalseRuleFilter, SqlRuleFilter, TrueRuleFilter

    match chosen:
        case TrueFilter():
            return TrueRuleFilter()
        case FalseFilter():
            return FalseRuleFilter()
        case SqlFilter():
            return SqlRuleFilter(chosen.expression, _mapping(chosen.parameters))
        case CorrelationFilter():
            texts = {name: getattr(chosen, name) for name in CORRELATION_FIELDS}
            return CorrelationRuleFilter(**texts, properties=_mapping(chosen.properties))


def client_action(action: SqlAction | None) -> Any:
    from azure.servicebus.management import SqlRuleAction

    return None if action is None else SqlRuleAction(action.expression, _mapping(action.parameters))


def _our_filter(chosen: Any) -> FilterDescription:
    from azure.servicebus.management import CorrelationRuleFilter, FalseRuleFilter, TrueRuleFilter

    if chosen is None or isinstance(chosen, TrueRuleFilter):
        return TrueFilter()
    if isinstance(chosen, FalseRuleFilter):
        return FalseFilter()
    if isinstance(chosen, CorrelationRuleFilter):
        texts = {name: getattr(chosen, name) or None for name in CORRELATION_FIELDS}
        return CorrelationFilter(**texts, properties=_pairs(chosen.properties))
    return SqlFilter(chosen.sql_expression, _pairs(chosen.parameters))


def _pairs(found: Any) -> tuple[tuple[str, object], ...]:
    return tuple((found or {}).items())


def _mapping(pairs: tuple[tuple[str, object], ...]) -> dict[str, Any]:
    return dict(pairs)
