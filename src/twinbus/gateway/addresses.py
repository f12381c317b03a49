"""Addresses of links: text in, what it names out.

    [scheme://authority/] path [/Subscriptions/name] [/$Transfer] [/$DeadLetterQueue] [/$management]      or  $cbs

Fixed parts and names compare without case. Whether the named entity exists is asked of `Entities` in `resolve`.
"""

from dataclasses import dataclass

from twinbus.broker.entities import Entities
from twinbus.broker.message_queue import MessageQueue
from twinbus.broker.queue_entity import QueueEntity
from twinbus.broker.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.errors import EntityNotFound
from twinbus.store.changes import SubQueue

CBS = "$cbs"
_MANAGEMENT = "$management"
_DEAD_LETTER = "$deadletterqueue"
_TRANSFER = "$transfer"
_SUBSCRIPTIONS = "subscriptions"


@dataclass(frozen=True, slots=True)
class Address:
    path: str  # of the queue or topic
    subscription: str | None = None
    sub_queue: SubQueue = SubQueue.MAIN
    is_management: bool = False

    @property
    def entity_path(self) -> str:
        """The queue, topic or subscription, without sub-queue and node."""
        return self.path if self.subscription is None else f"{self.path}/Subscriptions/{self.subscription}"


def strip_authority(text: str) -> str:
    """The path of an address; some clients write a whole URL, with any scheme."""
    scheme, separator, rest = text.partition("://")
    if separator and "/" not in scheme:
        text = rest.partition("/")[2]
    return text.strip("/")


def parse_address(text: str) -> Address:
    segments = strip_authority(text).split("/")
    is_management = _drop(segments, _MANAGEMENT)
    sub_queue = SubQueue.MAIN
    if _drop(segments, _DEAD_LETTER):
        sub_queue = SubQueue.TRANSFER_DEAD_LETTER if _drop(segments, _TRANSFER) else SubQueue.DEAD_LETTER
    subscription = None
    if len(segments) > 2 and segments[-2].lower() == _SUBSCRIPTIONS:
        subscription = segments[-1]
        del segments[-2:]
    return Address("/".join(segments), subscription, sub_queue, is_management)


def _drop(segments: list[str], last: str) -> bool:
    if len(segments) > 1 and segments[-1].lower() == last:
        segments.pop()
        return True
    return False


@dataclass(frozen=True, slots=True)
class Node:
    """What an address turned out to be. Which of the three is set depends on the kind of entity."""

    address: Address
    target: QueueEntity | TopicEntity | None  # takes messages; None for subscriptions and sub-queues
    queue: MessageQueue | None  # gives messages; None for topics
    subscription: SubscriptionEntity | None  # has rules

    @property
    def path(self) -> str:
        return self.address.entity_path


def resolve(entities: Entities, address: Address) -> Node:
    """Raises EntityNotFound with the words the SDKs look for."""
    if address.subscription is not None:
        subscription = entities.subscription(address.path, address.subscription)
        return Node(address, None, _sub_queue(subscription, address.sub_queue), subscription)
    entity = entities.find(address.path)
    if isinstance(entity, QueueEntity):
        target = entity if address.sub_queue is SubQueue.MAIN else None
        return Node(address, target, _sub_queue(entity, address.sub_queue), None)
    if isinstance(entity, TopicEntity) and address.sub_queue is SubQueue.MAIN:
        return Node(address, entity, None, None)
    raise EntityNotFound.at(address.entity_path)


def is_current(entities: Entities, node: Node) -> bool:
    """Whether the address still means this very entity: it may have been deleted, and made anew, meanwhile."""
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
