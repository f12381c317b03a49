"""Queues, topics and subscriptions as tables of a file, both ways.

Keys are the fields of the descriptions (`twinbus.model.descriptions`), some with a shorter name as well
(`twinbus.model.entity_properties`); durations are written like 30s, 5m or PT30S. Defaults are not written.
"""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, TypeVar

from twinbus.clock import Millis
from twinbus.definitions.table import Table
from twinbus.errors import ArgumentError
from twinbus.http.atom.access_xml import RIGHTS_ORDER
from twinbus.management.validation import check_description
from twinbus.model.descriptions import (
    AuthorizationRule,
    EntityStatus,
    QueueDescription,
    Right,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.durations import millis_of, parse_duration
from twinbus.model.entity_properties import EntityKind, Kind, Property, default_of, properties_of
from twinbus.model.iso8601 import write_duration

T = TypeVar("T", QueueDescription, TopicDescription, SubscriptionDescription)

ACCESS_FIELD, ACCESS_KEY = "authorization_rules", "access_rule"
# A rule whose key the file omits has this one until a key is generated.
NO_KEY = ""


def read_entity(kind: type[T], table: Table, topic: str | None = None, below: Iterable[str] = ()) -> T:
    """`below` are keys of the table that hold other entities and are not read here."""
    known = _known(kind)
    values: dict[str, Any] = {} if topic is None else {"topic": topic}
    for key in table.values:
        if key in below or key == "name":
            continue
        if key == ACCESS_KEY and kind is not SubscriptionDescription:
            values[ACCESS_FIELD] = tuple(_read_access(each) for each in table.list_of(key))
        elif key in known:
            values[known[key].field] = _read(table, key, known[key].kind)
        else:
            table.refuse(key, f"is unknown. Use some of {', '.join(_keys(kind))}")
    described = kind(name=table.name(), **values)
    _check(table, described)
    return described


def write_entity(description: T, *, with_keys: bool) -> dict[str, Any]:
    table: dict[str, Any] = {"name": description.name}
    known = {each.field: each for each in properties_of(type(description))}
    for field in fields(description):
        each, value = known.get(field.name), getattr(description, field.name)
        if each is not None and value != default_of(each):
            table[each.field] = _write(each.kind, value)
    rules = getattr(description, ACCESS_FIELD, ())
    return table | ({ACCESS_KEY: [_write_access(rule, with_keys) for rule in rules]} if rules else {})


def _known(kind: EntityKind) -> dict[str, Property]:
    """By their keys, the short ones included."""
    known = properties_of(kind)
    return {each.field: each for each in known} | {each.short: each for each in known if each.short is not None}


def _keys(kind: EntityKind) -> list[str]:
    """What a table may contain, by the long names."""
    own = ["name"] if kind is SubscriptionDescription else ["name", ACCESS_KEY]
    return sorted([*own, *(each.field for each in properties_of(kind))])


def _check(table: Table, description: T) -> None:
    """Errors name elements of the administration API; the file has keys of its own, so the key is added."""
    try:
        check_description(_with_some_keys(description))
    except ArgumentError as wrong:
        known = _known(type(description))
        named = (key for key in table.values if key in known and str(wrong).startswith(f"{known[key].element} "))
        key = next(named, None)
        place = table.place if key is None else table.at(key).place
        raise ArgumentError(f"{place}: {wrong}") from None


def _with_some_keys(description: T) -> T:
    """For checking alone: keys may be missing because they are generated later."""
    if isinstance(description, SubscriptionDescription):
        return description
    rules = tuple(
        replace(rule, primary_key=rule.primary_key or "-", secondary_key=rule.secondary_key or "-")
        for rule in description.authorization_rules
    )
    return replace(description, authorization_rules=rules)


def _read(table: Table, key: str, kind: Kind) -> Any:
    value = table.values[key]
    match kind:
        case Kind.DURATION:
            return _read_duration(table, key)
        case Kind.STATUS:
            return _read_status(table, key)
        case Kind.FLAG:
            if type(value) is not bool:
                table.refuse(key, "must be true or false")
            return value
        case Kind.NUMBER:
            if type(value) is not int:
                table.refuse(key, "must be a whole number")
            return value
        case Kind.TEXT | Kind.TARGET:
            return table.text(key) or None


def _write(kind: Kind, value: Any) -> Any:
    if kind is Kind.DURATION:
        return write_duration(value)
    return value.value if kind is Kind.STATUS else value


def _read_duration(table: Table, key: str) -> Millis:
    try:
        return millis_of(parse_duration(str(table.values[key])))
    except ArgumentError:
        table.refuse(key, "is not a duration. Write it like 30s, 5m, 1h, 7d, never or PT30S")


def _read_status(table: Table, key: str) -> EntityStatus:
    try:
        return EntityStatus(table.values[key])
    except ValueError:
        table.refuse(key, f"must be one of {', '.join(status.value for status in EntityStatus)}")


def _read_access(table: Table) -> AuthorizationRule:
    table.only(("name", "rights", "primary_key", "secondary_key"))
    rights = read_rights(table)
    keys = table.text("primary_key") or NO_KEY, table.text("secondary_key") or NO_KEY
    return AuthorizationRule(table.name(), *keys, rights)


def read_rights(table: Table) -> frozenset[Right]:
    given = table.values.get("rights")
    names = {right.value: right for right in Right}
    if not isinstance(given, list) or not given or not all(each in names for each in given):
        table.refuse("rights", "must be a list of Send, Listen or Manage")
    return frozenset(Right) if Right.MANAGE.value in given else frozenset(names[each] for each in given)


def _write_access(rule: AuthorizationRule, with_keys: bool) -> dict[str, Any]:
    table: dict[str, Any] = {
        "name": rule.name,
        "rights": [right.value for right in RIGHTS_ORDER if right in rule.rights],
    }
    keys = {"primary_key": rule.primary_key, "secondary_key": rule.secondary_key} if with_keys else {}
    return table | {name: key for name, key in keys.items() if key}
