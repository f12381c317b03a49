"""Send-via: messages for one entity that are sent by way of another (contract A7).

    sent via an entity --> its transfer sub-queue --as auto-forwarding does--> the destination
                                        '--missing, disabled, full, too large for it--> the entity's transfer dead-letter queue

The queue or topic they are sent via takes them whole, in the fragment that their via-partition-key chooses, so that they share
a commit with whatever else a transaction does there. Their own keys count at the destination. Where they are to go is
written on them as an annotation, which the destination does not get to see.
"""

from collections.abc import Sequence, Set
from dataclasses import replace

from twinbus.broker.consumer import SessionLock
from twinbus.broker.entity.forwarding import RUN_MAX, Find, ForwardingRun, may_begin
from twinbus.broker.entity.placement import Placement
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hand_over import take
from twinbus.broker.fragment.intake import check_room, stage
from twinbus.broker.fragment.lane import Lane
from twinbus.broker.replies import Reply, SendReply
from twinbus.broker.target import TargetName
from twinbus.clock import NEVER, Millis
from twinbus.errors import EntityNotFound, NotAllowed
from twinbus.model import wire_names
from twinbus.model.content import annotation, with_annotations
from twinbus.model.message import Message
from twinbus.store.changes import StoredMessage


class ViaPlacement(Placement):
    """The way into an entity for messages that are meant for another one."""

    def __init__(self, settings: EntitySettings, fragments: Sequence[Fragment], destination: str) -> None:
        super().__init__(settings, fragments, stage, check_room)
        self.destination = destination

    def key_of(self, message: Message) -> str | None:
        return message.via_partition_key or None

    def prepare(self, messages: Sequence[Message]) -> Sequence[Message]:
        # A scheduled message is transferred at once and waits for its time at the destination, where it is looked for. What
        # waits here for a destination that is down does not expire: its time to live counts there.
        return [
            replace(
                message,
                content=with_annotations(message.content, {wire_names.TRANSFER_DESTINATION: self.destination}),
                time_to_live=None,
                scheduled_at=None,
            )
            for message in messages
        ]

    def send_each(
        self,
        messages: Sequence[Message],
        now: Millis,
        reply: SendReply,
        origins: Sequence[int] | None = None,
        *,
        is_one_try: bool = False,
        failed: int | None = None,
    ) -> None:
        super().send_each(self.prepare(messages), now, reply, origins, is_one_try=is_one_try, failed=failed)

    def send_together(
        self,
        messages: Sequence[Message],
        now: Millis,
        reply: Reply[list[int]],
        *,
        is_one_try: bool = False,
        failed: int | None = None,
    ) -> None:
        super().send_together(self.prepare(messages), now, reply, is_one_try=is_one_try, failed=failed)


class HomePlacement(ViaPlacement):
    """For what a transaction sends elsewhere. Its home keeps it whether or not it takes messages of its own."""

    def check_open(self) -> None:
        if self.settings.is_deleted:
            raise EntityNotFound.at(self.settings.path)


class ViaTarget:
    """Takes messages as a queue does; they end up elsewhere."""

    def __init__(self, placement: ViaPlacement) -> None:
        self.placement = placement

    @property
    def name(self) -> TargetName:
        return TargetName(self.settings.path, self.placement.destination)

    @property
    def settings(self) -> EntitySettings:
        return self.placement.settings

    def send_each(
        self, messages: Sequence[Message], now: Millis, reply: SendReply, origins: Sequence[int] | None = None
    ) -> None:
        """Each is accepted when it is durable here."""
        self.placement.send_each(messages, now, reply, origins)

    def send_batch(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None:
        self.placement.send_together(messages, now, reply)


class Transfers:
    """The transfer sub-queue of one queue or topic: nobody receives from it, and it hands on what it has."""

    def __init__(self, settings: EntitySettings, fragments: Sequence[Fragment], find: Find) -> None:
        self.fragments = fragments
        self._settings = settings
        self._find = find
        for fragment in fragments:
            fragment.set_watcher(self)

    def target(self, destination: str) -> ViaTarget:
        return ViaTarget(ViaPlacement(self._settings, self.fragments, destination))

    # For transactions whose home is this entity

    def check_home_of(self, settings: EntitySettings) -> None:
        """Raises NotAllowed for anything but this queue, or this topic and its subscriptions."""
        if settings.root != self._settings.root:
            home = self._settings.path
            raise NotAllowed(
                f"The transactions of this AMQP session are on '{home}', the first entity that it used, and can only "
                f"send to '{settings.path}'. Use another connection, or receive from '{settings.path}' first."
            )

    def way_to(self, placement: Placement) -> Placement:
        """What is sent to another entity is kept here at the commit, and transferred."""
        settings = placement.settings
        if settings.root == self._settings.root:
            return placement
        if isinstance(placement, ViaPlacement):
            self.check_home_of(settings)
        settings.check_can_send()
        return HomePlacement(self._settings, self.fragments, settings.path)

    # Called by the fragments

    @property
    def is_taken_from(self) -> bool:
        return True

    def messages_ready(self, fragment: Fragment, lane: Lane, now: Millis) -> None:
        self._pump(fragment, now)

    def messages_read(self) -> None:
        """Nobody waits for it."""

    def session_free(self, now: Millis) -> None:
        """There are no message sessions here."""

    def session_came(self, fragment: Fragment, lock: SessionLock) -> None:
        """There are no message sessions here."""

    def fragment_lost(self, fragment: Fragment) -> None:
        """Its run ends with the errors that all its requests get."""

    def fragment_moved(self, fragment: Fragment, locks: Set[SessionLock]) -> None:
        """As when it is lost: nothing here is locked."""

    # Called by the runs

    def run_ended(self, fragment: Fragment, now: Millis) -> None:
        if fragment.is_available:
            self._pump(fragment, now)

    def _pump(self, fragment: Fragment, now: Millis) -> None:
        """Hand on the first messages that are for one destination, if the last run has ended."""
        if not may_begin(self, fragment):
            return
        messages = take(fragment, fragment.lane, RUN_MAX, now)
        if not messages:
            return
        path = destination_of(messages[0])
        count = next((place for place, each in enumerate(messages) if destination_of(each) != path), len(messages))
        forwarded = ForwardingRun(self, fragment, fragment.locks.lock(messages[:count], NEVER), now)
        fragment.put_back(messages[count:], now)
        forwarded.send(self._find(path), path)


def destination_of(message: StoredMessage) -> str:
    return str(annotation(message.content, wire_names.TRANSFER_DESTINATION))
