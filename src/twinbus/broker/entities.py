"""Everything in the namespace that can be sent to or received from, by its path."""

from collections.abc import Iterable, Sequence

from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.queue_entity import QueueEntity
from twinbus.broker.replies import Reply
from twinbus.broker.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.clock import Millis
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription


class Entities:
    """The registry of runtime entities. What they are told to be is durable in `twinbus.management.catalog`.

    `restore_*` puts one in place that exists already: at start, before the brokers load, or after another process made
    it. `create_*`, `update_*` and `delete_*` touch every fragment or fail whole (contract A6). Names find their entity
    in any case of letters.
    """

    def __init__(self, brokers: Sequence[MessageBroker]) -> None:
        raise NotImplementedError

    def find(self, path: str) -> QueueEntity | TopicEntity | None:
        raise NotImplementedError

    def queue(self, path: str) -> QueueEntity:
        """Raises EntityNotFound; so do the next two."""
        raise NotImplementedError

    def topic(self, path: str) -> TopicEntity:
        raise NotImplementedError

    def subscription(self, topic: str, name: str) -> SubscriptionEntity:
        raise NotImplementedError

    def queues(self) -> Iterable[QueueEntity]:
        raise NotImplementedError

    def topics(self) -> Iterable[TopicEntity]:
        raise NotImplementedError

    def restore_queue(self, entity_id: int, description: QueueDescription) -> QueueEntity:
        raise NotImplementedError

    def restore_topic(self, entity_id: int, description: TopicDescription) -> TopicEntity:
        raise NotImplementedError

    def restore_subscription(
        self, entity_id: int, description: SubscriptionDescription, rules: Iterable[RuleDescription]
    ) -> SubscriptionEntity:
        raise NotImplementedError

    def create_queue(
        self, entity_id: int, description: QueueDescription, now: Millis, reply: Reply[QueueEntity]
    ) -> None:
        raise NotImplementedError

    def create_topic(
        self, entity_id: int, description: TopicDescription, now: Millis, reply: Reply[TopicEntity]
    ) -> None:
        raise NotImplementedError

    def create_subscription(
        self,
        entity_id: int,
        description: SubscriptionDescription,
        rules: Iterable[RuleDescription],
        now: Millis,
        reply: Reply[SubscriptionEntity],
    ) -> None:
        raise NotImplementedError

    def update(
        self,
        description: QueueDescription | TopicDescription | SubscriptionDescription,
        now: Millis,
        reply: Reply[None],
    ) -> None:
        """Follow a new description of the entity of that name; what cannot change after creation must be the same."""
        raise NotImplementedError

    def delete(self, path: str, now: Millis, reply: Reply[None]) -> None:
        """Delete a queue, or a topic with its subscriptions, with everything in it."""
        raise NotImplementedError

    def delete_subscription(self, topic: str, name: str, now: Millis, reply: Reply[None]) -> None:
        raise NotImplementedError

    def add_rule(self, topic: str, subscription: str, rule: RuleDescription) -> None:
        """Raises EntityAlreadyExists, or ArgumentError where the rule does not parse. Making it durable is not done here."""
        raise NotImplementedError

    def remove_rule(self, topic: str, subscription: str, name: str) -> None:
        raise NotImplementedError
