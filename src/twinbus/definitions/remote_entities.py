"""Entities of the administration client as our descriptions, both ways.

Times, counts and whatever else a namespace reports by itself are left behind, so that what was read twice is equal.
"""

from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from twinbus.clock import NEVER, Millis
from twinbus.definitions.remote_rules import described_rule
from twinbus.definitions.wanted_entities import WantedEntities
from twinbus.http.atom.access_xml import RIGHTS_ORDER
from twinbus.http.atom.entity_reader import read_target
from twinbus.management.validation import requested_size_mb
from twinbus.model.descriptions import (
    AuthorizationRule,
    EntityStatus,
    QueueDescription,
    Right,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.iso8601 import NEVER_FROM, write_duration

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

T = TypeVar("T", QueueDescription, TopicDescription, SubscriptionDescription)

# Our names -> those of the administration client, where they differ.
CLIENT_NAMES = {
    "max_size_mb": "max_size_in_megabytes",
    "default_time_to_live": "default_message_time_to_live",
    "dead_letter_on_expiry": "dead_lettering_on_message_expiration",
    "dead_letter_on_filter_error": "dead_lettering_on_filter_evaluation_exceptions",
    "duplicate_detection_window": "duplicate_detection_history_time_window",
    "forward_dead_letters_to": "forward_dead_lettered_messages_to",
}
# The client shows it and never sends it, so what we cannot make elsewhere is not read either.
LEFT_OUT = {"filter_before_publishing"}
DURATIONS = {"lock_duration", "default_time_to_live", "duplicate_detection_window", "auto_delete_on_idle"}


def read_namespace(client: "ServiceBusAdministrationClient") -> WantedEntities:
    """Everything that is defined in it."""
    queues = tuple(_described(QueueDescription, queue) for queue in client.list_queues())
    topics = tuple(_described(TopicDescription, topic) for topic in client.list_topics())
    subscriptions = tuple(
        _described(SubscriptionDescription, each, topic=topic.name)
        for topic in topics
        for each in client.list_subscriptions(topic.name)
    )
    rules = {
        (each.topic, each.name): tuple(described_rule(rule) for rule in client.list_rules(each.topic, each.name))
        for each in subscriptions
    }
    return WantedEntities(queues, topics, subscriptions, rules)


def client_properties(description: QueueDescription | TopicDescription | SubscriptionDescription) -> dict[str, Any]:
    """What to call the client's `create_…` and `update_…` with, besides names. Access rules only where there are any."""
    chosen: dict[str, Any] = {}
    for field in fields(description):
        value = getattr(description, field.name)
        if field.name in {"name", "topic", *LEFT_OUT}:
            continue
        if field.name == "authorization_rules":
            chosen |= {"authorization_rules": [_client_access(rule) for rule in value]} if value else {}
            continue
        chosen[CLIENT_NAMES.get(field.name, field.name)] = _client_value(field.name, value)
    return chosen


def _client_value(name: str, value: Any) -> Any:
    if name in DURATIONS:
        return write_duration(value)
    return value.value if isinstance(value, EntityStatus) else value


def _described(kind: type[T], found: Any, **names: str) -> T:
    values: dict[str, Any] = {"name": found.name, **names}
    for field in fields(kind):
        value = getattr(found, CLIENT_NAMES.get(field.name, field.name), None)
        # What an older namespace does not report has its default.
        if field.name not in {*values, *LEFT_OUT} and value not in (None, ""):
            values[field.name] = _our_value(field.name, value)
    if "max_size_mb" in values:
        is_partitioned = values.get("enable_partitioning", False)
        values["max_size_mb"] = requested_size_mb(values["max_size_mb"], is_partitioned=is_partitioned)
    return kind(**values)


def _our_value(name: str, value: Any) -> Any:
    if name in DURATIONS:
        return _millis(value)
    if name in ("forward_to", "forward_dead_letters_to"):
        return read_target(value, name)
    if name == "status":
        return EntityStatus(_text(value))
    if name == "authorization_rules":
        return tuple(_our_access(rule) for rule in value)
    return value


def _millis(duration: timedelta) -> Millis:
    millis = duration // timedelta(milliseconds=1)
    return NEVER if millis >= NEVER_FROM else millis


def _our_access(rule: Any) -> AuthorizationRule:
    rights = frozenset(Right(_text(right)) for right in rule.rights or ())
    return AuthorizationRule(rule.key_name, rule.primary_key or "", rule.secondary_key or "", rights)


def _client_access(rule: AuthorizationRule) -> Any:
    from azure.servicebus.management import AuthorizationRule as ClientRule

    return ClientRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[right.value for right in RIGHTS_ORDER if right in rule.rights],
        key_name=rule.name,
        primary_key=rule.primary_key or None,
        secondary_key=rule.secondary_key or None,
    )


def _text(value: Any) -> str:
    """The client has members of an enumeration for texts it knows and plain texts for others."""
    return str(getattr(value, "value", value))
