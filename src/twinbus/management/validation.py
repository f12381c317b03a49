"""Whether a description is valid: a description goes in, nothing comes out, or ArgumentError says what to write instead.

Limits are those of `model.entity_properties`. The control plane checks what depends on other entities (names taken,
forward targets), and `quotas` what depends on the whole namespace.
"""

import re
from typing import Any

from twinbus.errors import ArgumentError
from twinbus.management.catalog import path_of
from twinbus.model.descriptions import (
    FRAGMENT_COUNT,
    AuthorizationRule,
    EntityDescription,
    QueueDescription,
    Right,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.entity_properties import Kind, Property, Use, properties_of, property_of
from twinbus.model.iso8601 import write_duration
from twinbus.model.paths import check_entity_path, check_subscription_name

ACCESS_RULES_MAX = 12
KEY_NAME_LENGTH_MAX = 256
KEY_LENGTH_MAX = 256

KEY_NAME = re.compile(r"[\x21-\x7e]+")


def check_description(description: EntityDescription) -> None:
    """Everything that can be checked without looking at other entities."""
    match description:
        case QueueDescription():
            check_entity_path(description.name, "queue")
            check_access_rules(description.authorization_rules)
        case TopicDescription():
            check_entity_path(description.name, "topic")
            check_access_rules(description.authorization_rules)
        case SubscriptionDescription():
            check_entity_path(description.topic, "topic")
            check_subscription_name(description.name, "subscription")
    for each in properties_of(type(description)):
        _check_limits(each, getattr(description, each.field))


def check_update(before: EntityDescription, after: EntityDescription) -> None:
    """Besides `check_description`: what was chosen at creation stays (contract A1)."""
    assert type(before) is type(after)
    for each in properties_of(type(before)):
        if each.use is Use.AT_CREATION and getattr(before, each.field) != getattr(after, each.field):
            raise ArgumentError(
                f"{each.element} of '{path_of(before)}' cannot be changed after creation. "
                "Delete the entity and create it again, or leave the property as it is."
            )


def shown_size_mb(description: QueueDescription | TopicDescription) -> int:
    """The largest size the entity can reach: every fragment holds as much as was asked for."""
    return description.max_size_mb * (FRAGMENT_COUNT if description.enable_partitioning else 1)


def requested_size_mb(size_mb: int, *, is_partitioned: bool) -> int:
    """The size per fragment; a client may send back the size it was shown."""
    if is_partitioned and not property_of("max_size_mb").allows(size_mb) and size_mb % FRAGMENT_COUNT == 0:
        return size_mb // FRAGMENT_COUNT
    return size_mb


def _check_limits(checked: Property, value: Any) -> None:
    if checked.allows(value):
        return
    if checked.kind is Kind.TEXT:
        raise ArgumentError(f"{checked.element} is longer than {checked.most} characters. Shorten it.")
    shown = write_duration(value) if checked.kind is Kind.DURATION else value
    raise ArgumentError(f"{checked.element} is {shown}. Use {checked.limits(write_duration)}.")


def check_access_rules(rules: tuple[AuthorizationRule, ...]) -> None:
    if len(rules) > ACCESS_RULES_MAX:
        raise ArgumentError(f"There are {len(rules)} authorization rules; an entity has at most {ACCESS_RULES_MAX}.")
    if len({rule.name for rule in rules}) != len(rules):
        raise ArgumentError("Two authorization rules have the same name. Give each its own.")
    for rule in rules:
        _check_access_rule(rule)


def _check_access_rule(rule: AuthorizationRule) -> None:
    if len(rule.name) > KEY_NAME_LENGTH_MAX or not KEY_NAME.fullmatch(rule.name):
        raise ArgumentError(
            f"'{rule.name[:64]}' is not a name for an authorization rule. Use 1 to {KEY_NAME_LENGTH_MAX} printable characters."
        )
    if not rule.rights:
        raise ArgumentError(f"The authorization rule '{rule.name}' grants no right. Name Send, Listen or Manage.")
    if Right.MANAGE in rule.rights and rule.rights != frozenset(Right):
        raise ArgumentError(f"The authorization rule '{rule.name}' has Manage; it must have Send and Listen as well.")
    for key in (rule.primary_key, rule.secondary_key):
        if not 1 <= len(key) <= KEY_LENGTH_MAX:
            raise ArgumentError(
                f"A key of the authorization rule '{rule.name}' has {len(key)} characters. Use 1 to {KEY_LENGTH_MAX}."
            )
