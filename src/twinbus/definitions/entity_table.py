"""Queues, topics and subscriptions as tables of a file, both ways.

Keys are the fields of the descriptions (`twinbus.model.descriptions`), some with a shorter name besides; durations are
written like 30s, 5m or PT30S. What has its default is left out on the way to a file.
"""

from collections.abc import Iterable
from dataclasses import MISSING, Field, fields, replace
from datetime import timedelta
from typing import Any, TypeVar

from twinbus.cli.durations import NEVER_DELTA, parse_duration
from twinbus.cli.table import Table
from twinbus.clock import NEVER, Millis
from twinbus.errors import ArgumentError
from twinbus.http.atom.access_xml import RIGHTS_ORDER
from twinbus.http.atom.entity_reader import QUEUE_ELEMENTS, SUBSCRIPTION_ELEMENTS, TOPIC_ELEMENTS
from twinbus.management.validation import check_description
from twinbus.model.descriptions import (
    AuthorizationRule,
    EntityStatus,
    QueueDescription,
    Right,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.iso8601 import write_duration

T = TypeVar("T", QueueDescription, TopicDescription, SubscriptionDescription)

DURATIONS = {"lock_duration", "default_time_to_live", "duplicate_detection_window", "auto_delete_on_idle"}
ACCESS_KEY = "access_rule"
SHORT_NAMES = {
    "partitioned": "enable_partitioning",
    "sessions": "requires_session",
    "duplicate_detection": "requires_duplicate_detection",
    "duplicate_window": "duplicate_detection_window",
    "ttl": "default_time_to_live",
    ACCESS_KEY: "authorization_rules",
}
ELEMENTS = {field: element for element, (field, _) in (QUEUE_ELEMENTS | TOPIC_ELEMENTS | SUBSCRIPTION_ELEMENTS).items()}
# A rule whose key the file leaves out has this one until somebody draws it.
NO_KEY = ""


def read_entity(kind: type[T], table: Table, topic: str | None = None, below: Iterable[str] = ()) -> T:
    """`below` are keys of the table that hold other entities and are none of ours."""
    known = {field.name: field for field in fields(kind)}
    values: dict[str, Any] = {} if topic is None else {"topic": topic}
    for key in table.values:
        field = known.get(SHORT_NAMES.get(key, key))
        if key in below or key == "name":
            continue
        if field is None or key in ("topic", "authorization_rules"):
            table.refuse(key, f"is not known. Use some of {', '.join(_keys(kind))}")
        values[field.name] = _read(table, key, field)
    made = kind(name=table.name(), **values)
    _check(table, made)
    return made


def write_entity(description: T, *, with_keys: bool) -> dict[str, Any]:
    table: dict[str, Any] = {"name": description.name}
    for field in fields(description):
        value = getattr(description, field.name)
        if field.default is MISSING or value == field.default or field.name == "authorization_rules":
            continue
        if field.name in DURATIONS:
            value = write_duration(value)
        table[field.name] = value.value if isinstance(value, EntityStatus) else value
    rules = getattr(description, "authorization_rules", ())
    return table | ({ACCESS_KEY: [_write_access(rule, with_keys) for rule in rules]} if rules else {})


def _check(table: Table, description: T) -> None:
    """Limits are told by the names of the administration API; the file has names of its own."""
    try:
        check_description(_with_some_keys(description))
    except ArgumentError as wrong:
        blamed = (key for key in table.values if _is_about(str(wrong), SHORT_NAMES.get(key, key)))
        key = next(blamed, None)
        place = table.place if key is None else table.at(key).place
        raise ArgumentError(f"{place}: {wrong}") from None


def _is_about(text: str, field: str) -> bool:
    return field in ELEMENTS and text.startswith(ELEMENTS[field] + " ")


def _with_some_keys(description: T) -> T:
    """For checking alone: keys that are drawn later are no mistake."""
    if isinstance(description, SubscriptionDescription):
        return description
    rules = tuple(
        replace(rule, primary_key=rule.primary_key or "-", secondary_key=rule.secondary_key or "-")
        for rule in description.authorization_rules
    )
    return replace(description, authorization_rules=rules)


def _keys(kind: type[Any]) -> list[str]:
    """What a table may say, by the long names."""
    names = {field.name for field in fields(kind)} - {"topic"}
    return sorted(ACCESS_KEY if name == SHORT_NAMES[ACCESS_KEY] else name for name in names)


def _read(table: Table, key: str, field: "Field[Any]") -> Any:
    value = table.values[key]
    if field.name in DURATIONS:
        return _millis(table, key)
    if field.name == "authorization_rules":
        return tuple(_read_access(each) for each in table.list_of(key))
    if field.name == "status":
        return _read_status(table, key)
    if field.type in (bool, int):
        if type(value) is not field.type:
            table.refuse(key, "has to be true or false" if field.type is bool else "has to be a whole number")
        return value
    return table.text(key) or None


def _millis(table: Table, key: str) -> Millis:
    try:
        duration = parse_duration(str(table.values[key]))
    except ArgumentError:
        table.refuse(key, "is no duration. Write it like 30s, 5m, 1h, 7d, never or PT30S")
    return NEVER if duration >= NEVER_DELTA else duration // timedelta(milliseconds=1)


def _read_status(table: Table, key: str) -> EntityStatus:
    try:
        return EntityStatus(table.values[key])
    except ValueError:
        table.refuse(key, f"has to be one of {', '.join(status.value for status in EntityStatus)}")


def _read_access(table: Table) -> AuthorizationRule:
    table.only(("name", "rights", "primary_key", "secondary_key"))
    given = table.values.get("rights")
    names = {right.value: right for right in Right}
    if not isinstance(given, list) or not given or not all(each in names for each in given):
        table.refuse("rights", "has to be a list of Send, Listen or Manage")
    rights = frozenset(Right) if Right.MANAGE.value in given else frozenset(names[each] for each in given)
    keys = table.text("primary_key") or NO_KEY, table.text("secondary_key") or NO_KEY
    return AuthorizationRule(table.name(), *keys, rights)


def _write_access(rule: AuthorizationRule, with_keys: bool) -> dict[str, Any]:
    table: dict[str, Any] = {
        "name": rule.name,
        "rights": [right.value for right in RIGHTS_ORDER if right in rule.rights],
    }
    keys = {"primary_key": rule.primary_key, "secondary_key": rule.secondary_key} if with_keys else {}
    return table | {name: key for name, key in keys.items() if key}
