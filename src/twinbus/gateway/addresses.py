"""What an address names in this namespace: a parsed address in, the entity or sub-queue it names out."""

from dataclasses import dataclass

from twinbus.broker.directory import Directory, SubscriptionNode
from twinbus.broker.source import Source
from twinbus.broker.target import Target
from twinbus.errors import EntityNotFound
from twinbus.model.paths import Address, SubQueue


@dataclass(frozen=True, slots=True)
class EntityNode:
    """An entity or one of its sub-queues, as an address names it. Which of the three are set depends on the kind of entity."""

    address: Address
    target: Target | None  # takes messages; None for subscriptions and sub-queues
    queue: Source | None  # gives messages; None for topics
    subscription: SubscriptionNode | None  # has rules

    @property
    def path(self) -> str:
        return self.address.entity_path

    @property
    def message_size_max(self) -> int:
        """In bytes. A subscription has its topic's."""
        entity = self.target or self.queue
        assert entity is not None
        return entity.settings.message_size_max

    def is_same(self, other: "EntityNode") -> bool:
        """Whether both are this very entity: it may have been deleted in between, and created again."""
        return self.target is other.target and self.queue is other.queue


def resolve(entities: Directory, address: Address) -> EntityNode:
    """Raises EntityNotFound with the text that the SDKs look for."""
    if address.subscription is not None:
        subscription = entities.subscription(address.path, address.subscription)
        return EntityNode(address, None, _sub_queue(subscription, address.sub_queue), subscription)
    entity = entities.find(address.path)
    if entity is not None and entity.is_topic:
        if address.sub_queue is SubQueue.MAIN:
            return EntityNode(address, entity, None, None)
        if address.sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
            return EntityNode(address, None, entity.transfer_dead_letter, None)
    elif entity is not None:
        target = entity if address.sub_queue is SubQueue.MAIN else None
        return EntityNode(address, target, _sub_queue(entity, address.sub_queue), None)
    raise EntityNotFound.at(address.entity_path)


def is_current(entities: Directory, node: EntityNode) -> bool:
    """Whether the address still names this very entity."""
    try:
        return resolve(entities, node.address).is_same(node)
    except EntityNotFound:
        return False


def _sub_queue(entity: SubscriptionNode, sub_queue: SubQueue) -> Source:
    if sub_queue is SubQueue.DEAD_LETTER:
        return entity.dead_letter
    if sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
        return entity.transfer_dead_letter
    return entity.main
