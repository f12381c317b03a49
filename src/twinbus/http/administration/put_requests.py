"""What a PUT asks for: path and body go in, a description comes out, or ArgumentError says what to send instead."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.http.api_version import check_partitioning
from twinbus.http.atom.access_xml import read_access_rules
from twinbus.http.atom.entity_reader import read_fields, read_integer
from twinbus.http.atom.rule_xml import read_rule_description
from twinbus.http.atom.xml_reader import Element, parse_xml
from twinbus.management.rule_validation import DEFAULT_RULE_NAME
from twinbus.management.validation import requested_size_mb
from twinbus.model.descriptions import (
    EntityDescription,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.entity_properties import PROPERTIES, Use


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What reading a body needs besides the body."""

    api_version: str
    message_size_kb: int
    now: Millis
    new_key: Callable[[], str]


def read_content(body: bytes, *names: str) -> Element:
    """The description in an Atom entry; it must be one of those named."""
    entry = parse_xml(body)
    content = entry.child("content") if entry.name == "entry" else None
    found = [child for child in content.children if child.name in names] if content is not None else []
    if len(found) != 1:
        raise ArgumentError(
            f"The body of the request has to be an Atom entry whose content is one {' or '.join(names)}."
        )
    return found[0]


def read_entity(
    path: str, element: Element, before: EntityDescription | None, context: RequestContext
) -> QueueDescription | TopicDescription:
    is_queue = element.name == "QueueDescription"
    fields = read_fields(element, QueueDescription if is_queue else TopicDescription)
    _keep(fields, before)
    _read_access(fields, element, before, context)
    is_partitioned = fields.get("enable_partitioning", False)
    check_partitioning(context.api_version, is_partitioned=is_partitioned and before is None)
    if "max_size_mb" in fields:
        fields["max_size_mb"] = requested_size_mb(fields["max_size_mb"], is_partitioned=is_partitioned)
    _check_message_size(element, context)
    return QueueDescription(name=path, **fields) if is_queue else TopicDescription(name=path, **fields)


def read_subscription(
    topic: str, name: str, element: Element, before: EntityDescription | None
) -> SubscriptionDescription:
    fields = read_fields(element, SubscriptionDescription)
    _keep(fields, before)
    return SubscriptionDescription(topic=topic, name=name, **fields)


def read_default_rule(element: Element) -> RuleDescription | None:
    """The rule that a new subscription starts with, if the request names one."""
    found = element.child("DefaultRuleDescription")
    if found is None or not found.children:
        return None
    return read_rule_description(found.text_of("Name") or DEFAULT_RULE_NAME, found)


def _keep(fields: dict[str, Any], before: EntityDescription | None) -> None:
    """An update may omit what cannot change after creation."""
    for each in PROPERTIES:
        if each.use is Use.AT_CREATION and each.field not in fields and hasattr(before, each.field):
            fields[each.field] = getattr(before, each.field)


def _read_access(
    fields: dict[str, Any], element: Element, before: EntityDescription | None, context: RequestContext
) -> None:
    """Keys are not lost because a request does not speak of them; an empty list removes them."""
    access = element.child("AuthorizationRules")
    if access is not None:
        fields["authorization_rules"] = read_access_rules(access, context.now, context.new_key)
    elif isinstance(before, QueueDescription | TopicDescription):
        fields["authorization_rules"] = before.authorization_rules


def _check_message_size(element: Element, context: RequestContext) -> None:
    text = element.text_of("MaxMessageSizeInKilobytes")
    if text is not None and read_integer(text, "MaxMessageSizeInKilobytes") != context.message_size_kb:
        raise ArgumentError(
            f"MaxMessageSizeInKilobytes cannot be set for one entity; this namespace takes {context.message_size_kb} KB. Leave it out."
        )
