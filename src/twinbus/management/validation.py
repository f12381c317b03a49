"""Whether a description of an entity or a rule is valid: nothing comes out, or ArgumentError says what to write instead.

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
    CorrelationFilter,
    EntityDescription,
    QueueDescription,
    Right,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.entity_properties import Kind, Property, Use, properties_of, property_of
from twinbus.model.iso8601 import write_duration
from twinbus.model.paths import check_entity_path, check_subscription_name, path_key
from twinbus.model.rules.compiled import compile_rule

DEFAULT_RULE_NAME = "$Default"
DEFAULT_RULES = (RuleDescription(DEFAULT_RULE_NAME),)
"""Of a new subscription that names none: it takes every message."""
TEXT_LENGTH_MAX = 1_024
PAIRS_MAX = 64
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


def check_rule(rule: RuleDescription) -> None:
    """A rule is compiled here as the brokers will compile it, so that one which exists also works.

    The catalog keeps it for good, and the brokers read it again at every start.
    """
    if path_key(rule.name) != path_key(DEFAULT_RULE_NAME):
        check_subscription_name(rule.name, "rule")
    if isinstance(rule.filter, SqlFilter):
        _check_pairs(rule.filter.parameters, "parameters")
    if isinstance(rule.filter, CorrelationFilter):
        _check_correlation(rule.filter)
    if isinstance(rule.action, SqlAction):
        _check_pairs(rule.action.parameters, "parameters")
    compile_rule(rule)


def _check_correlation(chosen: CorrelationFilter) -> None:
    texts = (
        chosen.correlation_id,
        chosen.message_id,
        chosen.to,
        chosen.reply_to,
        chosen.label,
        chosen.session_id,
        chosen.reply_to_session_id,
        chosen.content_type,
    )
    if not chosen.properties and all(text is None for text in texts):
        raise ArgumentError("The correlation filter compares nothing. Set a field or a property, or use a true filter.")
    if any(len(text or "") > TEXT_LENGTH_MAX for text in texts):
        raise ArgumentError(
            f"A field of the correlation filter is longer than {TEXT_LENGTH_MAX} characters. Shorten it."
        )
    _check_pairs(chosen.properties, "properties")


def _check_pairs(pairs: tuple[tuple[str, object], ...], what: str) -> None:
    if len(pairs) > PAIRS_MAX:
        raise ArgumentError(f"The rule has {len(pairs)} {what}; at most {PAIRS_MAX} are allowed.")
    for name, _ in pairs:
        if not 1 <= len(name) <= TEXT_LENGTH_MAX:
            raise ArgumentError(f"A name among the {what} has {len(name)} characters. Use 1 to {TEXT_LENGTH_MAX}.")
    if any(len(value) > TEXT_LENGTH_MAX for _, value in pairs if isinstance(value, str)):
        raise ArgumentError(f"A value among the {what} is longer than {TEXT_LENGTH_MAX} characters. Shorten it.")
