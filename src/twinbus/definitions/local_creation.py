"""Creates wanted entities in a namespace of this process; an entity that exists and is not marked as unfinished stays as it is."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from twinbus.definitions.wanted_entities import UNFINISHED, WantedEntities, queue_steps
from twinbus.errors import EntityAlreadyExists
from twinbus.management.validation import DEFAULT_RULES
from twinbus.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)

if TYPE_CHECKING:
    from twinbus.management.control_plane import ControlPlane

T = TypeVar("T", QueueDescription, TopicDescription)


async def create_entities(control: "ControlPlane", wanted: WantedEntities, new_key: Callable[[], str]) -> None:
    """Keys that the wanted access rules lack are generated."""
    for topic in wanted.topics:
        with suppress(EntityAlreadyExists):
            await control.create_topic(_with_keys(topic, new_key))
    await _create_queues(control, tuple(_with_keys(queue, new_key) for queue in wanted.queues))
    for subscription in wanted.subscriptions:
        await _create_subscription(control, subscription, wanted.rules_of(subscription))


async def _create_queues(control: "ControlPlane", queues: tuple[QueueDescription, ...]) -> None:
    for step in queue_steps(queues):
        with suppress(EntityAlreadyExists):
            await control.create_queue(step.created)
    for queue in queues:
        await _finish(control, queue)


async def _finish(control: "ControlPlane", queue: QueueDescription) -> None:
    """If it was created without forwarding, now or when this was interrupted."""
    found = control.catalog.find(queue.name)
    if found is None or not isinstance(found.description, QueueDescription):
        return  # a topic has the name
    if found.description.user_metadata == UNFINISHED:
        # Its keys may be in use: those that were generated now are not taken.
        await control.update(replace(queue, authorization_rules=found.description.authorization_rules))


async def _create_subscription(
    control: "ControlPlane", subscription: SubscriptionDescription, rules: tuple[RuleDescription, ...] | None
) -> None:
    try:
        # Created with its rules, so that it never takes a message that none of them matches.
        await control.create_subscription(subscription, DEFAULT_RULES if rules is None else rules)
    except EntityAlreadyExists:
        for rule in rules or ():
            with suppress(EntityAlreadyExists):
                await control.create_rule(subscription.topic, subscription.name, rule)


def _with_keys(description: T, new_key: Callable[[], str]) -> T:
    rules = tuple(
        replace(rule, primary_key=rule.primary_key or new_key(), secondary_key=rule.secondary_key or new_key())
        for rule in description.authorization_rules
    )
    return replace(description, authorization_rules=rules)
