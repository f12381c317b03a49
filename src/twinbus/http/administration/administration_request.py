"""What a request to the administration API says: its API version, and the description in the body of a PUT.

Text goes in, values come out, or ArgumentError says what to send instead.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.http.atom.access_xml import read_access_rules
from twinbus.http.atom.entity_reader import read_fields
from twinbus.http.atom.rule_xml import read_rule_description
from twinbus.http.atom.xml_reader import Element, parse_xml
from twinbus.management.validation import DEFAULT_RULE_NAME, DEFAULT_RULES, requested_size_mb
from twinbus.model.descriptions import (
    EntityDescription,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.entity_properties import PROPERTIES, Use, default_of

OLDEST = "2012-03"
VERSION = re.compile(r"20\d\d-(0[1-9]|1[0-2])")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What reading a body needs besides the body."""

    api_version: str
    now: Millis
    new_key: Callable[[], str]


def read_api_version(text: str | None) -> str:
    """Versions compare as text. A request that names none gets the oldest."""
    if text is None:
        return OLDEST
    if not VERSION.fullmatch(text):
        raise ArgumentError(f"api-version is '{text[:64]}'. Write a year and a month, like api-version=2021-05.")
    return text


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
    _check_version(fields, before, context.api_version)
    _keep(fields, before, context.api_version)
    _read_access(fields, element, before, context)
    if "max_size_mb" in fields:
        is_partitioned = fields.get("enable_partitioning", False)
        fields["max_size_mb"] = requested_size_mb(fields["max_size_mb"], is_partitioned=is_partitioned)
    return QueueDescription(name=path, **fields) if is_queue else TopicDescription(name=path, **fields)


def read_subscription(
    topic: str, name: str, element: Element, before: EntityDescription | None, context: RequestContext
) -> SubscriptionDescription:
    fields = read_fields(element, SubscriptionDescription)
    _keep(fields, before, context.api_version)
    return SubscriptionDescription(topic=topic, name=name, **fields)


def read_first_rules(element: Element) -> Sequence[RuleDescription]:
    """That a new subscription starts with: the one that the request names, or one that takes every message."""
    found = element.child("DefaultRuleDescription")
    if found is None or not found.children:
        return DEFAULT_RULES
    return [read_rule_description(found.text_of("Name") or DEFAULT_RULE_NAME, found)]


def _keep(fields: dict[str, Any], before: EntityDescription | None, api_version: str) -> None:
    """An update may omit what cannot change after creation, and what its version of the API does not know."""
    for each in PROPERTIES:
        may_be_omitted = each.use is Use.AT_CREATION or api_version < each.since
        if may_be_omitted and each.field not in fields and hasattr(before, each.field):
            fields[each.field] = getattr(before, each.field)


def _read_access(
    fields: dict[str, Any], element: Element, before: EntityDescription | None, context: RequestContext
) -> None:
    """Keys are not lost because a request does not speak of them; an empty list removes them."""
    access = element.child("AuthorizationRules")
    rules = before.authorization_rules if isinstance(before, QueueDescription | TopicDescription) else ()
    if access is not None:
        rules = read_access_rules(access, rules, context.now, context.new_key)
    fields["authorization_rules"] = rules


def _check_version(fields: dict[str, Any], before: EntityDescription | None, api_version: str) -> None:
    """A property can be set from the version on that shows it."""
    for each in PROPERTIES:
        if api_version < each.since and each.field in fields:
            now = default_of(each) if before is None else getattr(before, each.field, None)
            if fields[each.field] != now:
                raise ArgumentError(
                    f"{each.element} needs api-version={each.since} or later. Add it to the URL of the request."
                )
