"""Creates wanted entities over the administration API, and updates those that differ if asked to.

The namespace is read first and nothing is sent for an entity that is as wanted: a second import changes nothing. What an
interrupted import has left unfinished is marked, and finished by the next one, whether or not that may update.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from twinbus.definitions.remote_entities import client_properties, read_namespace
from twinbus.definitions.remote_rules import client_action, client_filter
from twinbus.definitions.wanted_entities import UNFINISHED, WantedEntities, queue_steps
from twinbus.management.validation import DEFAULT_RULES
from twinbus.model.descriptions import (
    AuthorizationRule,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.paths import path_key, subscription_path

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

T = TypeVar("T", QueueDescription, TopicDescription)


@dataclass
class RemoteImport:
    """`counts` says how many entities and rules were created, updated, deleted and left unchanged; `left`, by key, which entities are
    not yet as wanted. Both are right also after a failure, except for the request that was under way."""

    client: "ServiceBusAdministrationClient"
    may_update: bool
    counts: Counter[str] = field(default_factory=Counter)
    left: dict[str, str] = field(default_factory=dict)

    def run(self, wanted: WantedEntities) -> None:
        self.left = {path_key(path): path for path in wanted.paths()}
        there = read_namespace(self.client)
        known_topics = {path_key(topic.name): topic for topic in there.topics}
        for topic in wanted.topics:
            self._topic(topic, known_topics.get(path_key(topic.name)))
        self._queues(wanted.queues, {path_key(queue.name): queue for queue in there.queues})
        known = {(path_key(each.topic), path_key(each.name)): each for each in there.subscriptions}
        for subscription in wanted.subscriptions:
            found = known.get((path_key(subscription.topic), path_key(subscription.name)))
            rules = wanted.rules_of(subscription)
            if found is None or found.user_metadata == UNFINISHED:
                known_rules = None if found is None else there.rules_of(found)
                self._make_subscription(subscription, rules, known_rules)
            else:
                self._update_subscription(subscription, found)
                self._rules(subscription, rules, there.rules_of(found) or (), is_new=False)
            self._finished(subscription_path(subscription.topic, subscription.name))

    def _finished(self, path: str) -> None:
        del self.left[path_key(path)]

    def _topic(self, topic: TopicDescription, found: TopicDescription | None) -> None:
        # The client cannot send it, so it is not compared either.
        topic = replace(topic, filter_before_publishing=False)
        if found is None:
            self.client.create_topic(topic.name, **client_properties(topic))
            self.counts["created"] += 1
        elif self._should_update(found, after := _on_top_of(found, topic)):
            self.client.update_topic(self.client.get_topic(found.name), **client_properties(after))
            self.counts["updated"] += 1
        self._finished(topic.name)

    def _queues(self, queues: tuple[QueueDescription, ...], known: dict[str, QueueDescription]) -> None:
        """Updates come last: only then does every forwarding target exist."""
        unfinished: list[tuple[QueueDescription, bool]] = []  # and whether it was there before
        for step in queue_steps(tuple(queue for queue in queues if path_key(queue.name) not in known)):
            self.client.create_queue(step.created.name, **client_properties(step.created))
            self.counts["created"] += 1
            if step.created != step.wanted:
                unfinished.append((replace(step.wanted, authorization_rules=()), False))
            else:
                self._finished(step.wanted.name)
        for queue in queues:
            found = known.get(path_key(queue.name))
            if found is None:
                continue
            if self._should_update(found, after := _on_top_of(found, queue)):
                unfinished.append((after, True))
            else:
                self._finished(queue.name)
        for queue, was_there in unfinished:
            self.client.update_queue(self.client.get_queue(queue.name), **_finished_properties(queue))
            self.counts["updated"] += was_there
            self._finished(queue.name)

    def _make_subscription(
        self,
        subscription: SubscriptionDescription,
        rules: tuple[RuleDescription, ...] | None,
        there: tuple[RuleDescription, ...] | None,
    ) -> None:
        """`there`: the rules of one that an import has left unfinished. It is marked until its rules are as wanted."""
        topic, name = subscription.topic, subscription.name
        if there is None:
            first = subscription if rules is None else replace(subscription, user_metadata=UNFINISHED)
            self.client.create_subscription(topic, name, **client_properties(first))
            self.counts["created"] += 1
            if rules is None:
                return
        self._rules(subscription, rules, DEFAULT_RULES if there is None else there, is_new=True)
        found = self.client.get_subscription(topic, name)
        self.client.update_subscription(topic, found, **_finished_properties(subscription))
        self.counts["updated"] += there is not None

    def _update_subscription(self, subscription: SubscriptionDescription, found: SubscriptionDescription) -> None:
        if self._should_update(found, replace(subscription, topic=found.topic, name=found.name)):
            topic, properties = subscription.topic, client_properties(subscription)
            self.client.update_subscription(topic, self.client.get_subscription(topic, found.name), **properties)
            self.counts["updated"] += 1

    def _rules(
        self,
        subscription: SubscriptionDescription,
        wanted: tuple[RuleDescription, ...] | None,
        there: tuple[RuleDescription, ...],
        *,
        is_new: bool,
    ) -> None:
        """What happens to the $Default of a new subscription is not counted as a change."""
        is_whole = is_new or self.may_update
        known = {path_key(rule.name): rule for rule in there}
        names = subscription.topic, subscription.name
        for rule in DEFAULT_RULES if wanted is None and is_whole else wanted or ():
            found = known.pop(path_key(rule.name), None)
            chosen, action = client_filter(rule.filter), client_action(rule.action)
            if found is None:
                self.client.create_rule(*names, rule.name, filter=chosen, action=action)
                self.counts["created"] += 1
            elif is_whole and replace(rule, name=found.name) != found:
                there_now = self.client.get_rule(*names, found.name)
                # As attributes: of a filter that is passed as an argument the client forgets the parameters.
                there_now.filter, there_now.action = chosen, action
                self.client.update_rule(*names, there_now)
                self.counts["created" if is_new else "updated"] += 1
        # Last, so that an existing subscription is never without a rule in between.
        for rule in known.values() if is_whole else ():
            self.client.delete_rule(*names, rule.name)
            self.counts["deleted"] += not is_new

    def _should_update(
        self,
        found: QueueDescription | TopicDescription | SubscriptionDescription,
        after: QueueDescription | TopicDescription | SubscriptionDescription,
    ) -> bool:
        is_change = found != after and (self.may_update or found.user_metadata == UNFINISHED)
        self.counts["unchanged"] += not is_change
        return is_change


def _on_top_of(found: T, wanted: T) -> T:
    """What the entity becomes: keys that the file omits stay, and so do access rules if it names none."""
    rules = wanted.authorization_rules or found.authorization_rules
    known = {rule.name: rule for rule in found.authorization_rules}
    merged = tuple(_with_keys_of(rule, known.get(rule.name)) for rule in rules)
    return replace(wanted, name=found.name, authorization_rules=merged)


def _finished_properties(description: QueueDescription | SubscriptionDescription) -> dict[str, Any]:
    """With an empty text in the place of the mark: a namespace may keep what a request omits."""
    return client_properties(description) | {"user_metadata": description.user_metadata or ""}


def _with_keys_of(rule: AuthorizationRule, found: AuthorizationRule | None) -> AuthorizationRule:
    if found is None:
        return rule
    return replace(
        rule,
        primary_key=rule.primary_key or found.primary_key,
        secondary_key=rule.secondary_key or found.secondary_key,
    )
