"""Paths of the administration API: text in, the resource it names out.

Fixed parts (`$Resources`, `Subscriptions`, `Rules`) are found in any case of letters; names keep theirs.
"""

from dataclasses import dataclass
from typing import TypeAlias

from twinbus.errors import ArgumentError


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
    """Raises ArgumentError for a path that names nothing."""
    parts = path.strip("/").split("/")
    words = [part.casefold() for part in parts]
    match words:
        case [""]:
            raise ArgumentError("The path of the request names no entity. Put its name behind the first slash.")
        case ["$namespaceinfo"]:
            return NamespaceResource()
        case ["$resources", "queues"]:
            return QueueList()
        case ["$resources", "topics"]:
            return TopicList()
        case [first, *_] if first.startswith("$"):
            raise ArgumentError(
                f"'{path[:128]}' is no resource. Use /$Resources/queues, /$Resources/topics or /$namespaceinfo."
            )
        case [_, *_, "subscriptions", _, "rules", _]:
            return RuleResource("/".join(parts[:-4]), parts[-3], parts[-1])
        case [_, *_, "subscriptions", _, "rules"]:
            return RuleList("/".join(parts[:-3]), parts[-2])
        case [_, *_, "subscriptions", _]:
            return SubscriptionResource("/".join(parts[:-2]), parts[-1])
        case [_, *_, "subscriptions"]:
            return SubscriptionList("/".join(parts[:-1]))
    return EntityResource("/".join(parts))
