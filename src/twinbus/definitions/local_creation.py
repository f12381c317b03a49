"""Creates wanted entities in a namespace of this process, and finishes those that are marked as unfinished. Any other entity that
exists stays as it is, but for rules that a subscription lacks.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from twinbus.definitions.wanted_entities import UNFINISHED, WantedEntities, queue_steps
from twinbus.errors import EntityAlreadyExists
from twinbus.management.rule_set import RuleSet
from twinbus.management.validation import DEFAULT_RULES
from twinbus.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.paths import subscription_path

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
        await _finish_queue(control, queue)


async def _finish_queue(control: "ControlPlane", queue: QueueDescription) -> None:
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
    topic, name = subscription.topic, subscription.name
    wanted = DEFAULT_RULES if rules is None else rules
    try:
        # Created with its rules, so that it never takes a message that none of them matches.
        await control.create_subscription(subscription, wanted)
    except EntityAlreadyExists:
        found = control.catalog.get(subscription_path(topic, name))
        if found.description.user_metadata == UNFINISHED:
            await _finish_subscription(control, subscription, wanted, found.rules)
            return
        for rule in rules or ():
            with suppress(EntityAlreadyExists):
                await control.create_rule(topic, name, rule)


async def _finish_subscription(
    control: "ControlPlane", subscription: SubscriptionDescription, wanted: Sequence[RuleDescription], there: RuleSet
) -> None:
    """An import creates one with $Default, and then gives it its rules. The mark goes last."""
    names = subscription.topic, subscription.name
    for rule in wanted:
        is_there = there.find(rule.name) is not None
        await (control.update_rule(*names, rule) if is_there else control.create_rule(*names, rule))
    # Behind the new ones, so that it is never without a rule in between.
    kept = RuleSet(wanted)
    for rule in there:
        if kept.find(rule.name) is None:
            await control.delete_rule(*names, rule.name)
    await control.update(subscription)


def _with_keys(description: T, new_key: Callable[[], str]) -> T:
    rules = tuple(
        replace(rule, primary_key=rule.primary_key or new_key(), secondary_key=rule.secondary_key or new_key())
        for rule in description.authorization_rules
    )
    return replace(description, authorization_rules=rules)
