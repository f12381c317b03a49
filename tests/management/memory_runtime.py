"""Entities that run nowhere but in a dict: what the control plane needs of the brokers, with a switch to make them ill."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from twinbus.broker.replies import NO_COUNTS, Holdings, Reply
from twinbus.clock import Millis
from twinbus.errors import EntityAlreadyExists, EntityNotFound, FragmentUnavailable
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription
from twinbus.model.paths import parse_address

EMPTY = Holdings(NO_COUNTS, NO_COUNTS, NO_COUNTS, NO_COUNTS, 0)
Elsewhere: TypeAlias = Collection[int] | None


@dataclass
class MemoryEntity:
    id: int
    description: Any
    rules: dict[str, RuleDescription] = field(default_factory=dict)
    first_store: int = 0
    held: Holdings = EMPTY


class MemoryRuntime:
    def __init__(self) -> None:
        self.entities: dict[str, MemoryEntity] = {}
        self.is_ill = False
        self.idle: set[str] = set()
        self.change_count = 0

    def queue(self, path: str) -> MemoryEntity:
        return self._get(path)

    def count(self, path: str, now: Millis, reply: Reply[Holdings]) -> None:
        address = parse_address(path)
        key = address.path if address.subscription is None else f"{address.path}|{address.subscription}"
        reply(self._get(key).held)

    def subscription(self, topic: str, name: str) -> MemoryEntity:
        return self._get(f"{topic}|{name}")

    def check_rules_can_change(
        self, topic: str, subscription: str, now: Millis, reply: Reply[None], elsewhere: Elsewhere = ()
    ) -> None:
        reply(FragmentUnavailable("ill") if self.is_ill else None)

    def create_queue(
        self, entity_id: int, description: QueueDescription, now: Millis, reply: Reply[Any], elsewhere: Elsewhere = ()
    ) -> None:
        self._put(description.name, MemoryEntity(entity_id, description), reply)

    def create_topic(
        self, entity_id: int, description: TopicDescription, now: Millis, reply: Reply[Any], elsewhere: Elsewhere = ()
    ) -> None:
        self._put(description.name, MemoryEntity(entity_id, description), reply)

    def create_subscription(
        self,
        entity_id: int,
        description: SubscriptionDescription,
        rules: Iterable[RuleDescription],
        now: Millis,
        reply: Reply[Any],
        elsewhere: Elsewhere = (),
    ) -> None:
        entity = MemoryEntity(entity_id, description, {rule.name: rule for rule in rules})
        self._put(f"{description.topic}|{description.name}", entity, reply)

    def update(
        self,
        description: QueueDescription | TopicDescription | SubscriptionDescription,
        now: Millis,
        reply: Reply[None],
        elsewhere: Elsewhere = (),
    ) -> None:
        is_below = isinstance(description, SubscriptionDescription)
        entity = self._get(f"{description.topic}|{description.name}" if is_below else description.name)  # type: ignore[union-attr]
        if not self._refuses(reply):
            entity.description = description
            reply(None)

    def delete(self, path: str, now: Millis, reply: Reply[None], elsewhere: Elsewhere = ()) -> None:
        key = path.casefold()
        if key not in self.entities:
            reply(EntityNotFound.at(path))
        elif not self._refuses(reply):
            for each in [each for each in self.entities if each == key or each.startswith(key + "|")]:
                del self.entities[each]
            reply(None)

    def delete_subscription(
        self, topic: str, name: str, now: Millis, reply: Reply[None], elsewhere: Elsewhere = ()
    ) -> None:
        key = f"{topic}|{name}".casefold()
        if key not in self.entities:
            reply(EntityNotFound.at(key))
        elif not self._refuses(reply):
            del self.entities[key]
            reply(None)

    def name_at(self, path: str) -> str | None:
        address = parse_address(path)
        key = address.path if address.subscription is None else f"{address.path}|{address.subscription}"
        return path if key.casefold() in self.entities else None

    def close_if_idle(self, path: str, now: Millis) -> bool:
        return path in self.idle

    def reopen(self, path: str) -> None: ...

    def check_all_available(self, path: str, elsewhere: Elsewhere = ()) -> None:
        if self.is_ill:
            raise FragmentUnavailable("Fragment 3 has no working messaging store. Mend it and try again.")

    def restore_queue(
        self, entity_id: int, description: QueueDescription, now: Millis, first_store: int | None = None
    ) -> None:
        self.entities[description.name.casefold()] = MemoryEntity(entity_id, description)

    def restore_topic(
        self, entity_id: int, description: TopicDescription, now: Millis, first_store: int | None = None
    ) -> None:
        self.entities[description.name.casefold()] = MemoryEntity(entity_id, description)

    def restore_subscription(
        self, entity_id: int, description: SubscriptionDescription, rules: Iterable[RuleDescription], now: Millis
    ) -> None:
        entity = MemoryEntity(entity_id, description, {rule.name: rule for rule in rules})
        self.entities[f"{description.topic}|{description.name}".casefold()] = entity

    def change_rules(
        self,
        topic: str,
        subscription: str,
        removed: Sequence[str],
        added: Sequence[RuleDescription],
        now: Millis,
        reply: Reply[None],
    ) -> None:
        rules = self.subscription(topic, subscription).rules
        for name in removed:
            del rules[name]
        rules.update({rule.name: rule for rule in added})
        reply(None)

    def _get(self, key: str) -> MemoryEntity:
        if key.casefold() not in self.entities:
            raise EntityNotFound.at(key)
        return self.entities[key.casefold()]

    def _put(self, key: str, entity: MemoryEntity, reply: Reply[Any]) -> None:
        if key.casefold() in self.entities:
            reply(EntityAlreadyExists(f"'{key}' exists already."))
        elif not self._refuses(reply):
            self.entities[key.casefold()] = entity
            reply(entity)

    def _refuses(self, reply: Reply[Any]) -> bool:
        self.change_count += 1
        if self.is_ill:
            reply(FragmentUnavailable("Fragment 3 has no working messaging store. Mend it and try again."))
        return self.is_ill
