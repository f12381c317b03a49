"""Whether a description may be: a description goes in, nothing comes out, or ArgumentError says what to write instead.

Limits are those of the contract's table of numbers. What only another entity can tell (names taken, forward targets) is
the control plane's to check; what the whole namespace can tell is `quotas`.
"""

import re
from dataclasses import fields

from twinbus.clock import NEVER, Millis
from twinbus.errors import ArgumentError
from twinbus.management.catalog import path_of
from twinbus.management.records import EntityDescription
from twinbus.model.descriptions import (
    DAY,
    FRAGMENT_COUNT,
    MINUTE,
    SECOND,
    AuthorizationRule,
    QueueDescription,
    Right,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.iso8601 import write_duration
from twinbus.model.paths import check_entity_path, check_subscription_name

USER_METADATA_LENGTH_MAX = 1024
SIZES_MB = (1024, 2048, 3072, 4096, 5120)
LOCK_DURATION_RANGE: tuple[Millis, Millis] = (5 * SECOND, 5 * MINUTE)
DUPLICATE_WINDOW_RANGE: tuple[Millis, Millis] = (20 * SECOND, 7 * DAY)
TIME_TO_LIVE_MIN: Millis = SECOND
AUTO_DELETE_ON_IDLE_MIN: Millis = 5 * MINUTE
DELIVERY_COUNT_MAX = 2_147_483_647
ACCESS_RULES_MAX = 12
KEY_NAME_LENGTH_MAX = 256
KEY_LENGTH_MAX = 256

KEY_NAME = re.compile(r"[\x21-\x7e]+")

# Chosen at creation and never changed (contract A1).
IMMUTABLE = {
    "requires_duplicate_detection": "RequiresDuplicateDetection",
    "requires_session": "RequiresSession",
    "enable_partitioning": "EnablePartitioning",
}


def check_description(description: EntityDescription) -> None:
    """Everything that one description can tell by itself."""
    match description:
        case QueueDescription():
            check_entity_path(description.name, "queue")
            _check_stored(description)
            _check_received(description)
        case TopicDescription():
            check_entity_path(description.name, "topic")
            _check_stored(description)
        case SubscriptionDescription():
            check_entity_path(description.topic, "topic")
            check_subscription_name(description.name, "subscription")
            _check_received(description)
    _check_at_least(description.default_time_to_live, TIME_TO_LIVE_MIN, "DefaultMessageTimeToLive")
    _check_at_least(description.auto_delete_on_idle, AUTO_DELETE_ON_IDLE_MIN, "AutoDeleteOnIdle")
    if len(description.user_metadata or "") > USER_METADATA_LENGTH_MAX:
        raise ArgumentError(f"UserMetadata is longer than {USER_METADATA_LENGTH_MAX} characters. Shorten it.")


def check_update(before: EntityDescription, after: EntityDescription) -> None:
    """Besides `check_description`: what was chosen at creation stays."""
    assert type(before) is type(after)
    for field in fields(before):
        if field.name in IMMUTABLE and getattr(before, field.name) != getattr(after, field.name):
            raise ArgumentError(
                f"{IMMUTABLE[field.name]} of '{path_of(before)}' cannot be changed after creation. "
                "Delete the entity and create it anew, or leave the property as it is."
            )


def shown_size_mb(description: QueueDescription | TopicDescription) -> int:
    """The largest size the entity can reach: every fragment takes what was asked for."""
    return description.max_size_mb * (FRAGMENT_COUNT if description.enable_partitioning else 1)


def requested_size_mb(size_mb: int, *, is_partitioned: bool) -> int:
    """The size asked for, where a client may send back the one it was shown."""
    if is_partitioned and size_mb not in SIZES_MB and size_mb % FRAGMENT_COUNT == 0:
        return size_mb // FRAGMENT_COUNT
    return size_mb


def _check_stored(description: QueueDescription | TopicDescription) -> None:
    if description.max_size_mb not in SIZES_MB:
        choice = ", ".join(map(str, SIZES_MB))
        raise ArgumentError(f"MaxSizeInMegabytes is {description.max_size_mb}. Use one of {choice}.")
    _check_range(description.duplicate_detection_window, DUPLICATE_WINDOW_RANGE, "DuplicateDetectionHistoryTimeWindow")
    check_access_rules(description.authorization_rules)


def _check_received(description: QueueDescription | SubscriptionDescription) -> None:
    _check_range(description.lock_duration, LOCK_DURATION_RANGE, "LockDuration")
    if not 1 <= description.max_delivery_count <= DELIVERY_COUNT_MAX:
        raise ArgumentError(f"MaxDeliveryCount is {description.max_delivery_count}. Use 1 to {DELIVERY_COUNT_MAX}.")


def check_access_rules(rules: tuple[AuthorizationRule, ...]) -> None:
    if len(rules) > ACCESS_RULES_MAX:
        raise ArgumentError(f"There are {len(rules)} authorization rules; an entity takes at most {ACCESS_RULES_MAX}.")
    if len({rule.name for rule in rules}) != len(rules):
        raise ArgumentError("Two authorization rules have the same name. Give each its own.")
    for rule in rules:
        _check_access_rule(rule)


def _check_access_rule(rule: AuthorizationRule) -> None:
    if len(rule.name) > KEY_NAME_LENGTH_MAX or not KEY_NAME.fullmatch(rule.name):
        raise ArgumentError(
            f"'{rule.name[:64]}' is no name for an authorization rule. Use 1 to {KEY_NAME_LENGTH_MAX} printable characters."
        )
    if not rule.rights:
        raise ArgumentError(f"The authorization rule '{rule.name}' gives no right. Name Send, Listen or Manage.")
    if Right.MANAGE in rule.rights and rule.rights != frozenset(Right):
        raise ArgumentError(f"The authorization rule '{rule.name}' has Manage; it must have Send and Listen as well.")
    for key in (rule.primary_key, rule.secondary_key):
        if not 1 <= len(key) <= KEY_LENGTH_MAX:
            raise ArgumentError(
                f"A key of the authorization rule '{rule.name}' has {len(key)} characters. Use 1 to {KEY_LENGTH_MAX}."
            )


def _check_range(value: Millis, allowed: tuple[Millis, Millis], what: str) -> None:
    low, high = allowed
    if not low <= value <= high:
        raise ArgumentError(f"{what} is {write_duration(value)}. Use {write_duration(low)} to {write_duration(high)}.")


def _check_at_least(value: Millis, low: Millis, what: str) -> None:
    if not low <= value <= NEVER:
        raise ArgumentError(f"{what} is {write_duration(value)}. Use at least {write_duration(low)}.")
