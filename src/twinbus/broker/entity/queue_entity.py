"""A queue as a whole: where messages are sent to, and the sub-queues they are received from."""

from collections.abc import Sequence
from typing import Final

from twinbus.broker.commands import CancelScheduled
from twinbus.broker.entity.forwarding import Find
from twinbus.broker.entity.placement import Placement
from twinbus.broker.entity.sub_queues import SubQueues, brokers_of, make_fragments
from twinbus.broker.entity.transfers import Transfers, ViaTarget
from twinbus.broker.entity_settings import queue_settings
from twinbus.broker.fragment.fragment_group import counts_of
from twinbus.broker.fragment.intake import check_room, stage
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.replies import QueueCounts, Reply, SendReply
from twinbus.broker.target import TargetName
from twinbus.clock import Millis
from twinbus.model.descriptions import QueueDescription
from twinbus.model.message import Message
from twinbus.store.changes import SubQueue


class QueueEntity(SubQueues):
    is_topic: Final = False

    def __init__(
        self,
        entity_id: int,
        description: QueueDescription,
        brokers: Sequence[MessageBroker],
        find: Find,
        now: Millis,
        first_store: int,
    ) -> None:
        settings = queue_settings(description)
        own_brokers = brokers_of(settings, brokers, first_store)
        super().__init__(entity_id, settings, own_brokers, find, now)
        transfer = make_fragments(
            entity_id,
            SubQueue.TRANSFER,
            settings,
            own_brokers,
            transfer_dead_letters=self.transfer_dead_letter.fragments,
        )
        self.fragments += transfer
        self.transfers = Transfers(settings, transfer, find)
        self.set_transfers(settings, transfer)
        self.description = description
        self.first_store = first_store
        self.placement = Placement(settings, self.main.fragments, stage, check_room)

    @property
    def name(self) -> TargetName:
        return TargetName(self.settings.path)

    def send_each(
        self, messages: Sequence[Message], now: Millis, reply: SendReply, origins: Sequence[int] | None = None
    ) -> None:
        """Take independent messages that arrived together; each is answered when it is durable.

        `origins`: their numbers at the first point of submission, for messages that are forwarded.
        """
        self.placement.send_each(messages, now, reply, origins)

    def send_batch(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None:
        """Take all or none, into one fragment; replies the sequence numbers (0 for a dropped duplicate)."""
        self.placement.send_together(messages, now, reply)

    def schedule(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None:
        """As `send_batch`; each becomes active at its `scheduled_at`."""
        self.placement.send_together(messages, now, reply)

    def via(self, destination: str) -> ViaTarget:
        """Takes messages here that are handed on to another entity."""
        return self.transfers.target(destination)

    def transfer_counts(self) -> QueueCounts:
        return counts_of(self.transfers.fragments)

    def cancel_scheduled(self, numbers: Sequence[int], now: Millis, reply: Reply[None]) -> None:
        """Remove scheduled messages, all of them or MessageNotFound."""
        self.main.ask(CancelScheduled(numbers), now, reply)

    def follow_description(self, description: QueueDescription, now: Millis) -> None:
        self.description = description
        self.follow(queue_settings(description), now)
