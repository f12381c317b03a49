"""What a request to the administration API is about: its path in, a resource out; and what such a request is on the bill.

The fixed parts (`$Resources`, `Subscriptions`, `Rules`) are matched without regard to case; names keep theirs.
"""

from dataclasses import dataclass
from typing import TypeAlias

from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.meter.operation import NO_FRAGMENT, Cause, EntityType, Operation, path_of
from twinbus.model.paths import path_key, subscription_path

NAMESPACE_PATH = ""


@dataclass(frozen=True, slots=True)
class NamespaceResource:
    pass


@dataclass(frozen=True, slots=True)
class QueueList:
    pass


@dataclass(frozen=True, slots=True)
class TopicList:
    pass


@dataclass(frozen=True, slots=True)
class EntityResource:
    """A queue or topic: the path alone does not tell which."""

    path: str


@dataclass(frozen=True, slots=True)
class SubscriptionList:
    topic: str


@dataclass(frozen=True, slots=True)
class SubscriptionResource:
    topic: str
    name: str


@dataclass(frozen=True, slots=True)
class RuleList:
    topic: str
    subscription: str


@dataclass(frozen=True, slots=True)
class RuleResource:
    topic: str
    subscription: str
    name: str


ListResource: TypeAlias = QueueList | TopicList | SubscriptionList | RuleList
Resource: TypeAlias = NamespaceResource | EntityResource | SubscriptionResource | RuleResource | ListResource


def read_resource(path: str) -> Resource:
    """Raises ArgumentError for an empty path, and for a dead-letter queue, which has no description of its own.

    Any other path that is not a resource of ours is that of an entity that does not exist: clients ask for names that
    no entity can have, such as `$nservicebus-verification-queue`, to see whether they may ask.
    """
    parts = path.strip("/").split("/")
    words = [path_key(part) for part in parts]
    match words:
        case [""]:
            raise ArgumentError("The path of the request names no entity. Put its name after the first slash.")
        case [_, *_, "$deadletterqueue"]:
            raise ArgumentError(
                "A dead-letter queue has no description of its own. Ask for the queue or subscription that it belongs to."
            )
        case ["$namespaceinfo"]:
            return NamespaceResource()
        case ["$resources", "queues"]:
            return QueueList()
        case ["$resources", "topics"]:
            return TopicList()
        case [_, *_, "subscriptions", _, "rules", _]:
            return RuleResource("/".join(parts[:-4]), parts[-3], parts[-1])
        case [_, *_, "subscriptions", _, "rules"]:
            return RuleList("/".join(parts[:-3]), parts[-2])
        case [_, *_, "subscriptions", _]:
            return SubscriptionResource("/".join(parts[:-2]), parts[-1])
        case [_, *_, "subscriptions"]:
            return SubscriptionList("/".join(parts[:-1]))
    return EntityResource("/".join(parts))


def management_operation(resource: Resource, who: str, now: Millis) -> Operation:
    """What a request that was carried out is on the bill; one that is refused is nothing."""
    entity, kind = _billed(resource)
    return Operation(now, Cause.MANAGEMENT, entity, NO_FRAGMENT, 0, 0, 1, path_of(entity, who), who, entity_type=kind)


def _billed(resource: Resource) -> tuple[str, EntityType]:
    match resource:
        case EntityResource(path):
            # A request to delete it does not say whether the path is a queue's or a topic's: all count as queues.
            return path, EntityType.QUEUE
        case SubscriptionList(topic):
            return topic, EntityType.TOPIC
        case SubscriptionResource(topic, name) | RuleResource(topic, name, _) | RuleList(topic, name):
            return subscription_path(topic, name), EntityType.SUBSCRIPTION
    return NAMESPACE_PATH, EntityType.NAMESPACE
