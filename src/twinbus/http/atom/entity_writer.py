"""Queues, topics and subscriptions as XML: the elements of `model.entity_properties`, in the service's order."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from twinbus.http.atom.access_xml import write_access_rules
from twinbus.http.atom.envelopes import description_node
from twinbus.http.atom.xml_writer import attribute, leaf, node
from twinbus.management.catalog import Entry
from twinbus.management.counts import EntityCounts
from twinbus.management.quotas import FilterCounts
from twinbus.management.validation import shown_size_mb
from twinbus.model.descriptions import EntityDescription, QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.entity_properties import Kind, Property, elements_of, scheme_field
from twinbus.model.iso8601 import write_duration, write_time

Values: TypeAlias = dict[str, str | int | bool | None]
"""None: the element is omitted."""

NEVER_USED = "0001-01-01T00:00:00Z"
COUNTS_NAMESPACE = "http://schemas.microsoft.com/netservices/2011/06/servicebus"


@dataclass(frozen=True, slots=True)
class View:
    """How the reader of an answer sees the namespace."""

    api_version: str
    host: str  # HOST:PORT, with which forwarding targets are shown


def write_queue(entry: Entry, queue: QueueDescription, counts: EntityCounts, view: View) -> str:
    values = _reported(entry, counts) | _stored(queue, counts, view) | {"SupportOrdering": True}
    nodes = {"AuthorizationRules": write_access_rules(queue.authorization_rules), "CountDetails": _write_counts(counts)}
    return _write(queue, values, nodes, view)


def write_topic(
    entry: Entry,
    topic: TopicDescription,
    counts: EntityCounts,
    subscription_count: int,
    filters: FilterCounts,
    view: View,
) -> str:
    own: Values = {
        "SubscriptionCount": subscription_count,
        "SqlFilterCount": filters.sql,
        "CorrelationFilterCount": filters.correlation,
        "EnableSubscriptionPartitioning": False,
    }
    values = _reported(entry, counts) | _stored(topic, counts, view) | own
    nodes = {"AuthorizationRules": write_access_rules(topic.authorization_rules), "CountDetails": _write_counts(counts)}
    return _write(topic, values, nodes, view)


def write_subscription(entry: Entry, subscription: SubscriptionDescription, counts: EntityCounts, view: View) -> str:
    # Rules have a list of their own, so the first one of a subscription is read and never written.
    nodes = {"CountDetails": _write_counts(counts), "DefaultRuleDescription": ""}
    # The service shows a new subscription as used when it was created, unlike queues and topics.
    used: Values = {"AccessedAt": write_time(max(entry.created_at, counts.last_used_at))}
    return _write(subscription, _reported(entry, counts) | used, nodes, view)


def _write(description: EntityDescription, values: Values, nodes: dict[str, str], view: View) -> str:
    """`values` and `nodes` are the texts and the XML of elements that are not simply the value of a field."""
    content = []
    for each in elements_of(type(description)):
        name = each.element
        if view.api_version < each.since:
            continue
        if name in nodes:
            content.append(nodes[name])
        elif name in values:
            content.append(leaf(name, values[name]))
        else:
            assert isinstance(each, Property)
            content.append(leaf(name, _value(each, description, view)))
    return description_node(type(description).__name__, "".join(content))


def _value(each: Property, description: EntityDescription, view: View) -> Any:
    value = getattr(description, each.field)
    if value is None:
        return None
    match each.kind:
        case Kind.DURATION:
            return write_duration(value)
        case Kind.STATUS:
            return value.value
        case Kind.TARGET:
            return f"{getattr(description, scheme_field(each.field))}://{view.host}/{value}"
    return value


def _reported(entry: Entry, counts: EntityCounts) -> Values:
    return {
        "MessageCount": None if counts.is_unknown else counts.messages,
        "CreatedAt": write_time(entry.created_at),
        "UpdatedAt": write_time(entry.updated_at),
        "AccessedAt": write_time(counts.last_used_at) if counts.last_used_at else NEVER_USED,
        "EntityAvailabilityStatus": counts.availability,
    }


def _stored(description: QueueDescription | TopicDescription, counts: EntityCounts, view: View) -> Values:
    """What queues and topics have and subscriptions do not."""
    return {
        "MaxSizeInMegabytes": shown_size_mb(description),
        "SizeInBytes": None if counts.is_unknown else counts.size_bytes,
        "IsAnonymousAccessible": False,
    }


def _write_counts(counts: EntityCounts) -> str:
    numbers = {
        "ActiveMessageCount": counts.active,
        "DeadLetterMessageCount": counts.dead_letter,
        "ScheduledMessageCount": counts.scheduled,
        "TransferMessageCount": counts.transfer,
        "TransferDeadLetterMessageCount": counts.transfer_dead_letter,
    }
    # Unknown is not zero; but SDKs look for what is inside this element, so it is always there.
    content = "".join(leaf(f"d2p1:{name}", None if counts.is_unknown else number) for name, number in numbers.items())
    return node("CountDetails", content, attribute("xmlns:d2p1", COUNTS_NAMESPACE))
