"""The fragments of an entity: how many, in which stores, and the sub-queues they make up (contract A1)."""

from collections.abc import Callable, Sequence

from twinbus.broker.entity.forwarding import Find
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import counts_of
from twinbus.broker.fragment.upkeep import keep_up
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.replies import QueueCounts
from twinbus.clock import Millis
from twinbus.errors import EntityNotFound
from twinbus.model.descriptions import FRAGMENT_COUNT
from twinbus.store.changes import SubQueue, fragment_key


def brokers_of(entity_id: int, settings: EntitySettings, brokers: Sequence[MessageBroker]) -> list[MessageBroker]:
    """The broker of every fragment. An ordinary entity lives in one store, chosen by its id so that they spread."""
    if settings.is_partitioned:
        return [brokers[index % len(brokers)] for index in range(FRAGMENT_COUNT)]
    return [brokers[entity_id % len(brokers)]]


def make_fragments(
    entity_id: int,
    sub_queue: SubQueue,
    settings: EntitySettings,
    brokers: Sequence[MessageBroker],
    upkeep: Callable[[Fragment, Millis], None] = keep_up,
    dead_letters: Sequence[Fragment] | None = None,
    transfer_dead_letters: Sequence[Fragment] | None = None,
) -> list[Fragment]:
    """`brokers` and the fragments of dead-letter queues: one for each fragment."""
    return [
        Fragment(
            fragment_key(entity_id, index, sub_queue),
            broker,
            settings,
            upkeep,
            None if dead_letters is None else dead_letters[index],
            None if transfer_dead_letters is None else transfer_dead_letters[index],
        )
        for index, broker in enumerate(brokers)
    ]


class SubQueues:
    """The three queues that every queue and subscription has. A fragment's dead letters stay in its store."""

    def __init__(
        self, entity_id: int, settings: EntitySettings, brokers: Sequence[MessageBroker], find: Find, now: Millis
    ) -> None:
        self.id = entity_id
        self.settings = settings
        settings.last_used_at = now
        transfer = make_fragments(entity_id, SubQueue.TRANSFER_DEAD_LETTER, settings, brokers)
        dead_letter = make_fragments(entity_id, SubQueue.DEAD_LETTER, settings, brokers, transfer_dead_letters=transfer)
        main = make_fragments(
            entity_id, SubQueue.MAIN, settings, brokers, dead_letters=dead_letter, transfer_dead_letters=transfer
        )
        self.fragments = [*main, *dead_letter, *transfer]
        self.main = MessageQueue(settings, main, find)
        self.dead_letter = MessageQueue(settings, dead_letter, find)
        self.transfer_dead_letter = MessageQueue(settings, transfer, find)

    @property
    def queues(self) -> tuple[MessageQueue, MessageQueue, MessageQueue]:
        return self.main, self.dead_letter, self.transfer_dead_letter

    def transfer_counts(self) -> QueueCounts:
        """Of what was sent via it and has not reached its destination yet."""
        return counts_of([])

    @property
    def last_used_at(self) -> Millis:
        return self.settings.last_used_at

    def is_idle(self, now: Millis, duration: Millis) -> bool:
        """Whether nobody has used it for this long."""
        is_received_from = any(queue.receiver_count for queue in self.queues)
        return not is_received_from and now - self.settings.last_used_at >= duration

    def close(self) -> None:
        """The entity has been deleted."""
        self.settings.is_deleted = True
        for queue in self.queues:
            queue.close(EntityNotFound.at(self.settings.path))

    def follow(self, settings: EntitySettings, now: Millis) -> None:
        """Be as the description says from now on."""
        self.settings.follow(settings)
        for fragment in self.fragments:
            fragment.hide_hops(fragment.lane.ready)
        for queue in self.queues:
            queue.pump(now)
