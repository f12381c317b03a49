"""Rules of subscriptions as tables of a file, both ways.

    name = "red"                                      sql = "colour = @wanted"   parameters = { "@wanted" = "red" }
    action = "SET seen = TRUE"                        correlation = { label = "hot", properties = { size = "xl" } }

Without `sql` and `correlation` a rule takes every message, or none with `filter = "false"`. Values of types that TOML and
JSON do not share are tables: { type = "duration", value = "PT5S" }.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from twinbus.amqp.codec.types import Long
from twinbus.definitions.table import Table
from twinbus.management.typed_values import read_typed, write_typed
from twinbus.management.validation import check_rule
from twinbus.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    FilterDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)

Pairs = tuple[tuple[str, object], ...]

CORRELATION_FIELDS = tuple(field.name for field in fields(CorrelationFilter) if field.name != "properties")
RULE_KEYS = ("name", "filter", "sql", "parameters", "correlation", "action", "action_parameters")


def read_rule(table: Table) -> RuleDescription:
    table.only(RULE_KEYS)
    name, chosen = table.name(), _read_filter(table)
    table.check(check_rule, RuleDescription(name))
    key = next((key for key in ("sql", "correlation") if key in table.values), "filter")
    table.at(key).check(check_rule, RuleDescription(name, chosen))
    text = table.text("action")
    action = None if text is None else SqlAction(text, read_pairs(table.below("action_parameters")))
    table.at("action").check(check_rule, RuleDescription(name, action=action))
    return RuleDescription(name, chosen, action)


def write_rule(rule: RuleDescription) -> dict[str, Any]:
    table: dict[str, Any] = {"name": rule.name} | _write_filter(rule.filter)
    if rule.action is not None:
        table["action"] = rule.action.expression
        if rule.action.parameters:
            table["action_parameters"] = _write_pairs(rule.action.parameters)
    return table


def read_pairs(table: Table) -> Pairs:
    return tuple((key, _read_value(table, key)) for key in table.values)


def _read_filter(table: Table) -> FilterDescription:
    given = [key for key in ("filter", "sql", "correlation") if key in table.values]
    if len(given) > 1:
        table.refuse(given[1], f"cannot be combined with '{given[0]}'")
    if "parameters" in table.values and "sql" not in table.values:
        table.refuse("parameters", "needs 'sql'")
    sql = table.text("sql")
    if sql is not None:
        return SqlFilter(sql, read_pairs(table.below("parameters")))
    if "correlation" in table.values:
        chosen = table.below("correlation")
        chosen.only((*CORRELATION_FIELDS, "properties"))
        texts = {name: chosen.text(name) for name in CORRELATION_FIELDS}
        return CorrelationFilter(**texts, properties=read_pairs(chosen.below("properties")))
    word = table.text("filter") or "true"
    if word not in ("true", "false"):
        table.refuse("filter", "must be 'true' or 'false'; SQL goes into 'sql'")
    return TrueFilter() if word == "true" else FalseFilter()


def _write_filter(chosen: FilterDescription) -> dict[str, Any]:
    match chosen:
        case TrueFilter():
            return {}
        case FalseFilter():
            return {"filter": "false"}
        case SqlFilter():
            parameters = {"parameters": _write_pairs(chosen.parameters)} if chosen.parameters else {}
            return {"sql": chosen.expression} | parameters
        case CorrelationFilter():
            texts = {name: getattr(chosen, name) for name in CORRELATION_FIELDS}
            properties = {"properties": _write_pairs(chosen.properties)} if chosen.properties else {}
            return {"correlation": {name: text for name, text in texts.items() if text is not None} | properties}


def _write_pairs(pairs: Pairs) -> dict[str, Any]:
    return {name: _write_value(value) for name, value in pairs}


def _write_value(value: object) -> Any:
    # A number says its type where it is not the one that a file's own would have.
    if isinstance(value, str | bool | int | float) and not isinstance(value, Long):
        return value
    type_name, text = write_typed(value)
    return {"type": type_name, "value": text}


def _read_value(table: Table, key: str) -> object:
    value = table.values[key]
    if isinstance(value, str | bool | int | float):
        return value
    if not isinstance(value, Mapping):
        table.refuse(key, "must be a string, a number, true or false, or a table with type and value")
    typed = table.below(key)
    typed.only(("type", "value"))
    type_name, text = typed.text("type"), typed.text("value")
    if type_name is None or text is None:
        table.refuse(key, "needs both 'type' and 'value'")
    return typed.check(read_typed, type_name, text)
