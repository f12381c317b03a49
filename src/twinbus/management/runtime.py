"""What the control plane asks of the entities that run; `twinbus.broker.entity.entities.Entities` implements it.

A change touches every fragment or fails whole (contract A6), and is answered once that is certain.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from twinbus.broker.replies import QueueCounts, Reply
from twinbus.clock import Millis
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription


class Countable(Protocol):
    def counts(self) -> QueueCounts: ...


class Used(Protocol):
    @property
    def last_used_at(self) -> Millis: ...


class Placed(Protocol):
    """A queue or topic that has just been created."""

    @property
    def first_store(self) -> int: ...


class Transferring(Used, Protocol):
    @property
    def transfer_dead_letter(self) -> Countable: ...
    def transfer_counts(self) -> QueueCounts:
        """Of what was sent via it and has not reached its destination yet."""
        ...


class SubQueues(Transferring, Protocol):
    """A queue or subscription at run time."""

    @property
    def main(self) -> Countable: ...
    @property
    def dead_letter(self) -> Countable: ...


class Topic(Countable, Transferring, Protocol):
    """A topic at run time; it holds scheduled messages itself."""


class Runtime(Protocol):
    def queue(self, path: str) -> SubQueues: ...

    def topic(self, path: str) -> Topic: ...

    def subscription(self, topic: str, name: str) -> SubQueues: ...

    def create_queue(
        self, entity_id: int, description: QueueDescription, now: Millis, reply: Reply[Placed]
    ) -> None: ...

    def create_topic(
        self, entity_id: int, description: TopicDescription, now: Millis, reply: Reply[Placed]
    ) -> None: ...

    def create_subscription(
        self,
        entity_id: int,
        description: SubscriptionDescription,
        rules: Iterable[RuleDescription],
        now: Millis,
        reply: Reply[Any],
    ) -> None: ...

    def update(
        self,
        description: QueueDescription | TopicDescription | SubscriptionDescription,
        now: Millis,
        reply: Reply[None],
    ) -> None: ...

    def delete(self, path: str, now: Millis, reply: Reply[None]) -> None: ...

    def delete_subscription(self, topic: str, name: str, now: Millis, reply: Reply[None]) -> None: ...

    def check_rules_can_change(self, topic: str, subscription: str) -> None: ...

    def add_rule(self, topic: str, subscription: str, rule: RuleDescription) -> None: ...

    def remove_rule(self, topic: str, subscription: str, name: str) -> None: ...
