"""What an address names in this namespace: a parsed address in, the entity or sub-queue it names out."""

from dataclasses import dataclass

from twinbus.broker.entity.entities import Entities
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.errors import EntityNotFound
from twinbus.model.paths import Address, SubQueue


@dataclass(frozen=True, slots=True)
class EntityNode:
    """An entity or one of its sub-queues, as an address names it. Which of the three are set depends on the kind of entity."""

    address: Address
    target: QueueEntity | TopicEntity | None  # takes messages; None for subscriptions and sub-queues
    queue: MessageQueue | None  # gives messages; None for topics
    subscription: SubscriptionEntity | None  # has rules

    @property
    def path(self) -> str:
        return self.address.entity_path

    @property
    def message_size_max(self) -> int:
        """In bytes. A subscription has its topic's."""
        entity = self.target or self.queue
        assert entity is not None
        return entity.settings.message_size_max


def resolve(entities: Entities, address: Address) -> EntityNode:
    """Raises EntityNotFound with the text that the SDKs look for."""
    if address.subscription is not None:
        subscription = entities.subscription(address.path, address.subscription)
        return EntityNode(address, None, _sub_queue(subscription, address.sub_queue), subscription)
    entity = entities.find(address.path)
    if isinstance(entity, QueueEntity):
        target = entity if address.sub_queue is SubQueue.MAIN else None
        return EntityNode(address, target, _sub_queue(entity, address.sub_queue), None)
    if isinstance(entity, TopicEntity) and address.sub_queue is SubQueue.MAIN:
        return EntityNode(address, entity, None, None)
    if isinstance(entity, TopicEntity) and address.sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
        return EntityNode(address, None, entity.transfer_dead_letter, None)
    raise EntityNotFound.at(address.entity_path)


def is_current(entities: Entities, node: EntityNode) -> bool:
    """Whether the address still names this very entity: it may have been deleted since, and created again."""
    try:
        found = resolve(entities, node.address)
    except EntityNotFound:
        return False
    return found.target is node.target and found.queue is node.queue


def _sub_queue(entity: QueueEntity | SubscriptionEntity, sub_queue: SubQueue) -> MessageQueue:
    if sub_queue is SubQueue.DEAD_LETTER:
        return entity.dead_letter
    if sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
        return entity.transfer_dead_letter
    return entity.main
