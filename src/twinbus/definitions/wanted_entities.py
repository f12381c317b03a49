"""The entities that a namespace should have, and the order in which they can be created.

A forwarding target has to exist first, and dead letters may come back to the queue they left. So topics come first, then
queues after their targets, then subscriptions; a queue in a circle is created without forwarding and updated at the end.

Whoever creates them may be interrupted at any point. What is made in several steps is marked until the last one, in its own
properties, so that whoever creates the same entities again knows that it is not as somebody wanted it, and finishes it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from twinbus.errors import ArgumentError
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription
from twinbus.model.paths import path_key, subscription_path

UNFINISHED: Final = "unfinished import by twinbus"
"""In the user metadata of an entity that is made in several steps, until the last one."""


@dataclass(frozen=True, slots=True)
class WantedEntities:
    queues: tuple[QueueDescription, ...] = ()
    topics: tuple[TopicDescription, ...] = ()
    subscriptions: tuple[SubscriptionDescription, ...] = ()
    # By topic and subscription, only where rules are named: the others have $Default, which takes every message.
    rules: Mapping[tuple[str, str], tuple[RuleDescription, ...]] = field(default_factory=dict)

    def rules_of(self, subscription: SubscriptionDescription) -> tuple[RuleDescription, ...] | None:
        return self.rules.get((subscription.topic, subscription.name))

    def paths(self) -> Iterator[str]:
        """Of all entities, in the order in which they can be created."""
        yield from (topic.name for topic in self.topics)
        yield from (queue.name for queue in self.queues)
        yield from (subscription_path(each.topic, each.name) for each in self.subscriptions)


@dataclass(frozen=True, slots=True)
class QueueStep:
    """`created` is how to create it; where that differs from `wanted`, it is marked, and updated once all queues exist."""

    wanted: QueueDescription
    created: QueueDescription


def queue_steps(queues: tuple[QueueDescription, ...]) -> Iterator[QueueStep]:
    waiting: dict[str, QueueDescription] = {}
    for queue in queues:
        waiting.setdefault(path_key(queue.name), queue)
    while waiting:
        ready = [key for key, queue in waiting.items() if not _targets(queue) & waiting.keys() - {key}]
        for key in ready:
            free = waiting.pop(key)
            yield QueueStep(free, free)
        if not ready:
            bound = waiting.pop(next(iter(waiting)))
            first = replace(bound, forward_to=None, forward_dead_letters_to=None, user_metadata=UNFINISHED)
            yield QueueStep(bound, first)


def _targets(queue: QueueDescription) -> set[str]:
    return {path_key(target) for target in (queue.forward_to, queue.forward_dead_letters_to) if target is not None}


def check_unique(wanted: WantedEntities, place: str) -> None:
    """A name given twice is a mistake: one of the two would be silently ignored."""
    names = [queue.name for queue in wanted.queues] + [topic.name for topic in wanted.topics]
    _check_names(names, place)
    _check_names((subscription_path(each.topic, each.name) for each in wanted.subscriptions), place)
    for (topic, subscription), rules in wanted.rules.items():
        _check_names((f"{topic}/Subscriptions/{subscription}/Rules/{rule.name}" for rule in rules), place)


def _check_names(names: Iterable[str], place: str) -> None:
    seen: set[str] = set()
    for name in names:
        if path_key(name) in seen:
            raise ArgumentError(f"{place}: '{name}' is defined twice. Remove one of them.")
        seen.add(path_key(name))
