"""Descriptions as JSON text and back: what the catalog keeps in a row.

Fields are written by name: rows written before a field was added are still read, and a field that no longer exists is
ignored.
"""

import json
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from typing import Any, TypeVar

from twinbus.management.typed_values import read_typed, write_typed
from twinbus.model.descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    EntityDescription,
    EntityStatus,
    FalseFilter,
    FilterDescription,
    Right,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)

T = TypeVar("T")

FILTERS: dict[str, type[FilterDescription]] = {
    "sql": SqlFilter,
    "true": TrueFilter,
    "false": FalseFilter,
    "correlation": CorrelationFilter,
}
FILTER_NAMES = {kind: name for name, kind in FILTERS.items()}


def write_entity(description: EntityDescription) -> str:
    return _to_text(_fields_of(description))


def read_entity(kind: type[T], text: str) -> T:
    return _build(kind, json.loads(text))


def write_authorization_rule(rule: AuthorizationRule) -> str:
    return _to_text(_fields_of(rule))


def read_authorization_rule(text: str) -> AuthorizationRule:
    return _build(AuthorizationRule, json.loads(text))


def write_rule(rule: RuleDescription) -> str:
    action = None if rule.action is None else _fields_of(rule.action)
    chosen = {"type": FILTER_NAMES[type(rule.filter)], **_fields_of(rule.filter)}
    return _to_text({"name": rule.name, "filter": chosen, "action": action, "created_at": rule.created_at})


def read_rule(text: str) -> RuleDescription:
    record = json.loads(text)
    chosen = _build(FILTERS[record["filter"]["type"]], record["filter"])
    action = None if record["action"] is None else _build(SqlAction, record["action"])
    return RuleDescription(record["name"], chosen, action, record["created_at"])


def _to_text(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _fields_of(value: Any) -> dict[str, Any]:
    return {field.name: _plain(field.name, getattr(value, field.name)) for field in fields(value)}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if name == "rights":
        return sorted(right.value for right in value)
    if name == "authorization_rules":
        return [_fields_of(rule) for rule in value]
    if name in ("parameters", "properties"):
        return [[key, *write_typed(item)] for key, item in value]
    return value


def _typed_pairs(rows: list[list[str]]) -> tuple[tuple[str, object], ...]:
    return tuple((key, read_typed(type_name, text)) for key, type_name, text in rows)


READERS: dict[str, Callable[[Any], Any]] = {
    "status": EntityStatus,
    "rights": lambda names: frozenset(Right(name) for name in names),
    "authorization_rules": lambda rules: tuple(_build(AuthorizationRule, rule) for rule in rules),
    "parameters": _typed_pairs,
    "properties": _typed_pairs,
}


def _build(kind: type[T], record: dict[str, Any]) -> T:
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    values = {name: READERS.get(name, lambda value: value)(value) for name, value in record.items() if name in known}
    return kind(**values)
