"""Everything in the namespace that can be sent to or received from, by its path."""

import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from twinbus.broker.entity.forwarding import Find, Target
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.sub_queues import first_store_of, new_first_store
from twinbus.broker.entity.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import check_all_available
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.operations.fragment_changes import create_fragments, delete_fragments
from twinbus.broker.operations.steps import Steps, run
from twinbus.broker.replies import Holdings, Reply
from twinbus.clock import Millis
from twinbus.errors import EntityAlreadyExists, EntityNotFound, FragmentUnavailable, MessagingError
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription
from twinbus.model.paths import parse_address, path_key

log = logging.getLogger(__name__)

Created = TypeVar("Created", QueueEntity, TopicEntity)


class Entities:
    """The registry of runtime entities. Their descriptions are durable in `twinbus.management.catalog`.

    `restore_*` puts one in place that exists already, at start. `create_*`, `update` and `delete*` touch every fragment
    or fail whole (contract A6); `elsewhere` names the stores of other nodes that work, None says that they do not matter. Names
    find their entity in any case of letters.
    """

    def __init__(self, brokers: Sequence[MessageBroker]) -> None:
        self._brokers = brokers
        self._entities: dict[str, QueueEntity | TopicEntity] = {}
        self._by_id: dict[int, QueueEntity | TopicEntity | SubscriptionEntity] = {}
        self._find_target: Find = self.find

    def forward_through(self, find: Find) -> None:
        """Entities that forward or transfer messages find their targets by this from now on: these may be at other nodes."""
        self._find_target = find

    def _target(self, path: str) -> Target | None:
        return self._find_target(path)

    # Finding

    def with_id(self, entity_id: int) -> QueueEntity | TopicEntity | SubscriptionEntity | None:
        return self._by_id.get(entity_id)

    def find(self, path: str) -> QueueEntity | TopicEntity | None:
        return self._entities.get(path_key(path))

    def queue(self, path: str) -> QueueEntity:
        """Raises EntityNotFound; so do the next two."""
        entity = self.find(path)
        if not isinstance(entity, QueueEntity):
            raise EntityNotFound.at(path)
        return entity

    def topic(self, path: str) -> TopicEntity:
        entity = self.find(path)
        if not isinstance(entity, TopicEntity):
            raise EntityNotFound.at(path)
        return entity

    def subscription(self, topic: str, name: str) -> SubscriptionEntity:
        found = self.topic(topic).subscriptions.get(path_key(name))
        if found is None:
            raise EntityNotFound.at(f"{topic}/Subscriptions/{name}")
        return found

    def queues(self) -> list[QueueEntity]:
        return [entity for entity in self._entities.values() if isinstance(entity, QueueEntity)]

    def topics(self) -> list[TopicEntity]:
        return [entity for entity in self._entities.values() if isinstance(entity, TopicEntity)]

    def count(self, path: str, now: Millis, reply: Reply[Holdings]) -> None:
        """Of a queue, topic or subscription, from memory. Replies EntityNotFound if there is none of that path."""
        try:
            counts = self.at(path).holdings()
        except EntityNotFound as error:
            reply(error)
            return
        reply(counts)

    def at(self, path: str) -> QueueEntity | TopicEntity | SubscriptionEntity:
        """A queue, topic or subscription. Raises EntityNotFound."""
        address = parse_address(path)
        if address.subscription is not None:
            return self.subscription(address.path, address.subscription)
        entity = self.find(path)
        if entity is None:
            raise EntityNotFound.at(path)
        return entity

    def name_at(self, path: str) -> str | None:
        """The path of a queue, topic or subscription as it was created; None if there is none."""
        try:
            return self.at(path).settings.path
        except EntityNotFound:
            return None

    # Restoring

    def restore_queue(
        self, entity_id: int, description: QueueDescription, now: Millis, first_store: int | None = None
    ) -> QueueEntity:
        """`first_store`: that of its first fragment, if it is known."""
        if first_store is None:
            first_store = first_store_of(entity_id, description.enable_partitioning, len(self._brokers))
        entity = QueueEntity(entity_id, description, self._brokers, self._target, now, first_store)
        self._entities[path_key(description.name)] = self._by_id[entity_id] = entity
        _restored(entity, now)
        return entity

    def restore_topic(
        self, entity_id: int, description: TopicDescription, now: Millis, first_store: int | None = None
    ) -> TopicEntity:
        if first_store is None:
            first_store = first_store_of(entity_id, description.enable_partitioning, len(self._brokers))
        entity = TopicEntity(entity_id, description, self._brokers, self._target, now, first_store)
        self._entities[path_key(description.name)] = self._by_id[entity_id] = entity
        _restored(entity, now)
        return entity

    def restore_subscription(
        self, entity_id: int, description: SubscriptionDescription, rules: Iterable[RuleDescription], now: Millis
    ) -> SubscriptionEntity:
        topic = self.topic(description.topic)
        subscription = SubscriptionEntity(entity_id, description, topic, self._target, now)
        topic.add_subscription(subscription, ())
        self._by_id[entity_id] = subscription
        for rule in rules:
            fault = topic.rules.restore_rule(subscription, rule)
            if fault is not None:
                # One rule must not keep a whole namespace from starting.
                fields = {"subscription": subscription.settings.path, "rule": rule.name, "reason": str(fault)}
                log.error("rule_faulty", extra={"fields": fields})
        _restored(subscription, now)
        return subscription

    # Creating

    def create_queue(
        self,
        entity_id: int,
        description: QueueDescription,
        now: Millis,
        reply: Reply[QueueEntity],
        elsewhere: Collection[int] | None = (),
    ) -> None:
        """EntityAlreadyExists if the name is taken, FragmentUnavailable if a store is lost. So for the next two."""
        first_store = self._new_first_store(entity_id, description.enable_partitioning, elsewhere or ())
        entity = QueueEntity(entity_id, description, self._brokers, self._target, now, first_store)
        run(self._create(entity, elsewhere), now, reply)

    def create_topic(
        self,
        entity_id: int,
        description: TopicDescription,
        now: Millis,
        reply: Reply[TopicEntity],
        elsewhere: Collection[int] | None = (),
    ) -> None:
        first_store = self._new_first_store(entity_id, description.enable_partitioning, elsewhere or ())
        entity = TopicEntity(entity_id, description, self._brokers, self._target, now, first_store)
        run(self._create(entity, elsewhere), now, reply)

    def _new_first_store(self, entity_id: int, is_partitioned: bool, elsewhere: Collection[int]) -> int:
        """An ordinary entity goes to a store that works, if one does; a partitioned one needs all of its stores."""
        store_count = len(self._brokers)
        first_store = new_first_store(entity_id, store_count)
        if is_partitioned:
            return first_store
        turns = [(first_store + step) % store_count for step in range(store_count)]
        works = (index for index in turns if self._brokers[index].is_available or index in elsewhere)
        return next(works, first_store)

    def _create(self, entity: Created, elsewhere: Collection[int] | None) -> Steps[Created]:
        name = entity.description.name
        if self.find(name) is not None:
            raise EntityAlreadyExists(f"'{name}' exists already. Choose another name, or delete it first.")
        yield from create_fragments(entity.fragments, elsewhere)
        if self.find(name) is not None:
            with suppress(FragmentUnavailable):  # what is left over is empty, and its id is never used again
                yield from delete_fragments(entity.fragments, None)
            raise EntityAlreadyExists(f"'{name}' was created meanwhile. Choose another name.")
        self._entities[path_key(name)] = self._by_id[entity.id] = entity
        return entity

    def create_subscription(
        self,
        entity_id: int,
        description: SubscriptionDescription,
        rules: Iterable[RuleDescription],
        now: Millis,
        reply: Reply[SubscriptionEntity],
        elsewhere: Collection[int] | None = (),
    ) -> None:
        run(self._create_subscription(entity_id, description, rules, now, elsewhere), now, reply)

    def _create_subscription(
        self,
        entity_id: int,
        description: SubscriptionDescription,
        rules: Iterable[RuleDescription],
        now: Millis,
        elsewhere: Collection[int] | None,
    ) -> Steps[SubscriptionEntity]:
        topic = self.topic(description.topic)
        if path_key(description.name) in topic.subscriptions:
            raise EntityAlreadyExists(f"The topic has a subscription '{description.name}'. Choose another name.")
        subscription = SubscriptionEntity(entity_id, description, topic, self._target, now)
        yield from create_fragments(subscription.fragments, elsewhere)
        topic.add_subscription(subscription, rules)
        self._by_id[entity_id] = subscription
        topic.settings.last_used_at = now
        return subscription

    # Changing

    def update(
        self,
        description: QueueDescription | TopicDescription | SubscriptionDescription,
        now: Millis,
        reply: Reply[None],
        elsewhere: Collection[int] | None = (),
    ) -> None:
        """Follow a new description of the entity of that name; what cannot change after creation must be the same."""
        try:
            self._update(description, now, elsewhere)
        except MessagingError as error:
            reply(error)
            return
        reply(None)

    def _update(
        self,
        description: QueueDescription | TopicDescription | SubscriptionDescription,
        now: Millis,
        elsewhere: Collection[int] | None,
    ) -> None:
        match description:
            case QueueDescription():
                queue = self.queue(description.name)
                check_all_available(queue.fragments, elsewhere)
                queue.follow_description(description, now)
                queue.settings.alive_at = now
            case TopicDescription():
                topic = self.topic(description.name)
                check_all_available(topic.fragments, elsewhere)
                topic.follow_description(description, now)
                topic.settings.alive_at = now
            case SubscriptionDescription():
                subscription = self.subscription(description.topic, description.name)
                check_all_available(subscription.fragments, elsewhere)
                subscription.follow_description(description, now)
                subscription.settings.alive_at = now

    def delete(self, path: str, now: Millis, reply: Reply[None], elsewhere: Collection[int] | None = ()) -> None:
        """Delete a queue, or a topic with its subscriptions, with everything in it."""
        run(self._delete(path, elsewhere), now, reply)

    def _delete(self, path: str, elsewhere: Collection[int] | None) -> Steps[None]:
        entity = self.find(path)
        if entity is None:
            raise EntityNotFound.at(path)
        yield from delete_fragments(_fragments_of_all(entity), elsewhere)
        self._entities.pop(path_key(path), None)
        self._by_id.pop(entity.id, None)
        if isinstance(entity, TopicEntity):
            for each in entity.subscriptions.values():
                self._by_id.pop(each.id, None)
        entity.close()

    def delete_subscription(
        self, topic: str, name: str, now: Millis, reply: Reply[None], elsewhere: Collection[int] | None = ()
    ) -> None:
        run(self._delete_subscription(topic, name, elsewhere), now, reply)

    def _delete_subscription(self, topic: str, name: str, elsewhere: Collection[int] | None) -> Steps[None]:
        above, subscription = self.topic(topic), self.subscription(topic, name)
        yield from delete_fragments(subscription.fragments, elsewhere)
        above.remove_subscription(subscription)
        self._by_id.pop(subscription.id, None)
        subscription.close()

    def idle(self, now: Millis) -> list[QueueDescription | TopicDescription | SubscriptionDescription]:
        """What nobody has used for its auto-delete duration. Deleting it, catalog and all, is the control plane's."""
        found: list[QueueDescription | TopicDescription | SubscriptionDescription] = []
        for entity in self._entities.values():
            if entity.is_idle(now, entity.description.auto_delete_on_idle):
                found.append(entity.description)
            elif isinstance(entity, TopicEntity):
                found += [
                    each.description
                    for each in entity.subscriptions.values()
                    if each.is_idle(now, each.description.auto_delete_on_idle)
                ]
        return found

    def is_idle(self, path: str, now: Millis) -> bool:
        """Whether it is there, and nobody has used it for its auto-delete duration."""
        try:
            entity = self.at(path)
        except EntityNotFound:
            return False
        return entity.is_idle(now, entity.description.auto_delete_on_idle)

    def close_if_idle(self, path: str, now: Millis) -> bool:
        """As `is_idle`. If so, every use of it is refused until it is deleted or reopened: another node is about to delete it, and what
        this one took until it hears of that would be lost."""
        if not self.is_idle(path, now):
            return False
        self.close(path)
        return True

    def check_all_available(self, path: str, elsewhere: Collection[int] | None = ()) -> None:
        """Raises EntityNotFound, or FragmentUnavailable while a fragment of it or of what is below it has no working store."""
        check_all_available(_fragments_of_all(self.at(path)), elsewhere)

    def close(self, path: str) -> None:
        """Every use of it is refused until it is deleted or reopened. Raises EntityNotFound."""
        for settings in self._settings_of_all(path):
            settings.is_leaving = True

    def reopen(self, path: str) -> None:
        """Raises EntityNotFound."""
        for settings in self._settings_of_all(path):
            settings.is_leaving = False

    def is_leaving(self, path: str) -> bool:
        """Whether it was closed, and neither deleted nor reopened since."""
        try:
            return self.at(path).settings.is_leaving
        except EntityNotFound:
            return False

    def _settings_of_all(self, path: str) -> list[EntitySettings]:
        """With those of a topic's subscriptions."""
        entity = self.at(path)
        below = entity.subscriptions.values() if isinstance(entity, TopicEntity) else ()
        return [entity.settings, *(each.settings for each in below)]

    def clock_stepped(self, by: Millis) -> None:
        """The clock was set by this much: whatever was just used has still just been used."""
        for entity in self._by_id.values():
            entity.settings.clock_stepped(by)

    def check_rules_can_change(
        self,
        topic: str,
        subscription: str,
        now: Millis,
        reply: Reply[None],
        elsewhere: Collection[int] | None = (),
    ) -> None:
        """Replies FragmentUnavailable while a fragment of the subscription has no working store (contract A6)."""
        try:
            check_all_available(self.subscription(topic, subscription).fragments, elsewhere)
        except MessagingError as error:
            reply(error)
            return
        reply(None)

    def change_rules(
        self,
        topic: str,
        subscription: str,
        removed: Sequence[str],
        added: Sequence[RuleDescription],
        now: Millis,
        reply: Reply[None],
    ) -> None:
        """Making it durable is not done here. Whatever store is lost, this cannot fail: it is known that the rules compile."""
        try:
            for name in removed:
                self.remove_rule(topic, subscription, name)
            for rule in added:
                self.add_rule(topic, subscription, rule)
                self.subscription(topic, subscription).settings.alive_at = now
        except MessagingError as error:
            reply(error)
            return
        reply(None)

    def add_rule(self, topic: str, subscription: str, rule: RuleDescription) -> None:
        """EntityAlreadyExists, or ArgumentError where the rule does not parse. Making it durable is not done here."""
        found = self.subscription(topic, subscription)
        found.topic.rules.add_rule(found, rule)

    def remove_rule(self, topic: str, subscription: str, name: str) -> None:
        """EntityNotFound if there is none of that name."""
        found = self.subscription(topic, subscription)
        found.topic.rules.remove_rule(found, name)


def _fragments_of_all(entity: QueueEntity | TopicEntity | SubscriptionEntity) -> list[Fragment]:
    """With those of a topic's subscriptions."""
    below = entity.subscriptions.values() if isinstance(entity, TopicEntity) else ()
    return [*entity.fragments, *(fragment for each in below for fragment in each.fragments)]


def _restored(entity: QueueEntity | TopicEntity | SubscriptionEntity, now: Millis) -> None:
    # When it was last used is not kept: what was there before may have been used until a moment ago.
    entity.settings.last_used_at = now
    _serve(entity.fragments)


def _serve(fragments: Sequence[Fragment]) -> None:
    """Also those in stores of other nodes: their brokers load them when this node gets the store."""
    for broker in {id(fragment.broker): fragment.broker for fragment in fragments}.values():
        broker.add([fragment for fragment in fragments if fragment.broker is broker])
