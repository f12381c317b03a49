"""Creates wanted entities in a namespace of this process; an entity that exists stays as it is."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from twinbus.definitions.wanted_entities import WantedEntities, queue_steps
from twinbus.errors import EntityAlreadyExists
from twinbus.management.validation import DEFAULT_RULE_NAME
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
    unfinished: list[QueueDescription] = []
    for step in queue_steps(queues):
        with suppress(EntityAlreadyExists):
            await control.create_queue(step.created)
            if step.created != step.wanted:
                unfinished.append(step.wanted)
    for queue in unfinished:
        await control.update(queue)


async def _create_subscription(
    control: "ControlPlane", subscription: SubscriptionDescription, rules: tuple[RuleDescription, ...] | None
) -> None:
    topic, name = subscription.topic, subscription.name
    with suppress(EntityAlreadyExists):
        # Created with its first rule, so that it never takes a message that none of its rules matches.
        await control.create_subscription(subscription, rules[0] if rules else None)
        if rules == ():
            await control.delete_rule(topic, name, DEFAULT_RULE_NAME)
    for rule in rules or ():
        with suppress(EntityAlreadyExists):
            await control.create_rule(topic, name, rule)


def _with_keys(description: T, new_key: Callable[[], str]) -> T:
    rules = tuple(
        replace(rule, primary_key=rule.primary_key or new_key(), secondary_key=rule.secondary_key or new_key())
        for rule in description.authorization_rules
    )
    return replace(description, authorization_rules=rules)
