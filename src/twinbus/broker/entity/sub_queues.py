"""The fragments of an entity: how many, in which stores, and the sub-queues they make up (contract A1)."""

from collections.abc import Callable, Sequence
from itertools import count
from math import gcd

from twinbus.broker.entity.forwarding import Find
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.upkeep import keep_up
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.operations.asked_queue import WaysOut
from twinbus.broker.replies import NO_COUNTS, Holdings, QueueCounts
from twinbus.clock import Millis
from twinbus.errors import EntityNotFound
from twinbus.model.descriptions import FRAGMENT_COUNT
from twinbus.store.changes import SubQueue, fragment_key


def new_first_store(entity_id: int, store_count: int) -> int:
    """Where the first fragment of a new entity goes, so that entities one after the other fill all stores alike and
    sixteen of them do not all begin in the same one. The catalog keeps it: fragments never move."""
    step = next(step for step in count(FRAGMENT_COUNT) if gcd(step, store_count) == 1)
    return (entity_id - 1) * step % store_count  # ids count from 1


def first_store_of(entity_id: int, is_partitioned: bool, store_count: int) -> int:
    """That of an entity of which the catalog does not say it: it was created before the catalog kept it."""
    return 0 if is_partitioned else entity_id % store_count


def stores_of(is_partitioned: bool, first_store: int, store_count: int) -> list[int]:
    """That of every fragment, one after the other. An ordinary entity has one."""
    fragment_count = FRAGMENT_COUNT if is_partitioned else 1
    return [(first_store + index) % store_count for index in range(fragment_count)]


def brokers_of(settings: EntitySettings, brokers: Sequence[MessageBroker], first_store: int) -> list[MessageBroker]:
    return [brokers[store] for store in stores_of(settings.is_partitioned, first_store, len(brokers))]


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
        settings.alive_at = now
        transfer = make_fragments(entity_id, SubQueue.TRANSFER_DEAD_LETTER, settings, brokers)
        dead_letter = make_fragments(entity_id, SubQueue.DEAD_LETTER, settings, brokers, transfer_dead_letters=transfer)
        main = make_fragments(
            entity_id, SubQueue.MAIN, settings, brokers, dead_letters=dead_letter, transfer_dead_letters=transfer
        )
        self.fragments = [*main, *dead_letter, *transfer]
        self.main = MessageQueue(settings, main, find)
        self.dead_letter = MessageQueue(settings, dead_letter, find)
        self.transfer_dead_letter = MessageQueue(settings, transfer, find)

    def set_transfers(self, owner: EntitySettings, transfers: Sequence[Fragment]) -> None:
        """`owner` is the queue or topic that these fragments belong to, from which messages go on to other entities."""
        for queue in self.queues:
            home = self.main.fragments if queue is self.dead_letter else None
            queue.set_ways_out(WaysOut(owner, home, transfers))

    @property
    def queues(self) -> tuple[MessageQueue, MessageQueue, MessageQueue]:
        return self.main, self.dead_letter, self.transfer_dead_letter

    def transfer_counts(self) -> QueueCounts:
        """Of what was sent via it and has not reached its destination yet."""
        return NO_COUNTS

    def holdings(self) -> Holdings:
        main, dead, undelivered = [queue.counts() for queue in self.queues]
        return Holdings(main, dead, self.transfer_counts(), undelivered, self.last_used_at)

    @property
    def last_used_at(self) -> Millis:
        return self.settings.last_used_at

    def is_idle(self, now: Millis, duration: Millis) -> bool:
        """Whether nobody has used it for this long, and nothing is left to be done for anybody. To forward is to be received from."""
        if not self.settings.is_unused(now, duration):
            return False
        # One with message sessions keeps its messages, whatever it is to forward them to.
        is_forwarding = self.settings.forward_to is not None and not self.main.requires_session
        is_waited_for = is_forwarding or self.transfer_counts().active > 0
        return not is_waited_for and not any(queue.is_in_use for queue in self.queues)

    def close(self) -> None:
        """The entity has been deleted."""
        for queue in self.queues:
            queue.close(EntityNotFound.at(self.settings.path))

    def follow(self, settings: EntitySettings, now: Millis) -> None:
        """Be as the description says from now on."""
        self.settings.follow(settings)
        for fragment in self.fragments:
            fragment.hide_hops(fragment.lane.ready)
        for queue in self.queues:
            queue.settings_changed(now)
