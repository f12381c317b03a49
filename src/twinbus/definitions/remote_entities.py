"""Entities of the administration client as our descriptions, both ways.

Times, counts and whatever else a namespace reports are not read, so that two reads of the same entity are equal.
"""

from typing import TYPE_CHECKING, Any, TypeVar

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
from twinbus.model.durations import millis_of
from twinbus.model.entity_properties import Kind, Property, properties_of
from twinbus.model.iso8601 import write_duration

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

T = TypeVar("T", QueueDescription, TopicDescription, SubscriptionDescription)


def read_namespace(client: "ServiceBusAdministrationClient") -> WantedEntities:
    """All entities and rules that are defined in it."""
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
    """The keywords for the client's `create_…` and `update_…`. Access rules only where there are any."""
    chosen: dict[str, Any] = {
        each.client_name: _client_value(each.kind, getattr(description, each.field))
        for each in properties_of(type(description))
        if each.is_in_client
    }
    rules = getattr(description, "authorization_rules", ())
    return chosen | ({"authorization_rules": [_client_access(rule) for rule in rules]} if rules else {})


def _client_value(kind: Kind, value: Any) -> Any:
    if kind is Kind.DURATION:
        return write_duration(value)
    return value.value if kind is Kind.STATUS else value


def _described(kind: type[T], found: Any, **names: str) -> T:
    values: dict[str, Any] = {"name": found.name, **names}
    for each in properties_of(kind):
        value = getattr(found, each.client_name, None)
        # A property that an older namespace does not report has its default.
        if each.is_in_client and value not in (None, ""):
            values[each.field] = _our_value(each, value)
    if getattr(found, "authorization_rules", None):
        values["authorization_rules"] = tuple(_our_access(rule) for rule in found.authorization_rules)
    if "max_size_mb" in values:
        is_partitioned = values.get("enable_partitioning", False)
        values["max_size_mb"] = requested_size_mb(values["max_size_mb"], is_partitioned=is_partitioned)
    return kind(**values)


def _our_value(found: Property, value: Any) -> Any:
    match found.kind:
        case Kind.DURATION:
            return millis_of(value)
        case Kind.TARGET:
            return read_target(value, found.element)
        case Kind.STATUS:
            return EntityStatus(_text(value))
    return value


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
    """The client has enumeration members for the texts it knows, and plain texts for others."""
    return str(getattr(value, "value", value))
