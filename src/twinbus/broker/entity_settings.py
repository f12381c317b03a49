"""What the parts of one entity have to know of its description, in the terms they need it in."""

from dataclasses import dataclass, fields

from twinbus.clock import Millis
from twinbus.errors import EntityDisabled, EntityNotFound, ServerBusy
from twinbus.model.descriptions import (
    LOCK_DURATION_DEFAULT,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.message_limits import MESSAGE_SIZE_MAX
from twinbus.model.paths import path_key

KILOBYTE, MEGABYTE = 1024, 1024 * 1024
UNLIMITED = 2**63 - 1


@dataclass(slots=True)
class EntitySettings:
    """One object shared by an entity and all of its fragments, so that an update reaches them at once."""

    path: str
    root: str  # key of the queue or topic it belongs to: what has one root has its fragments in the same stores
    status: EntityStatus
    default_time_to_live: Millis
    is_partitioned: bool
    size_max_bytes: int = UNLIMITED  # of one fragment (contract, Numbers)
    message_size_max: int = MESSAGE_SIZE_MAX  # in bytes
    requires_session: bool = False
    has_sessions: bool = False  # it requires message sessions, or its subscriptions may
    duplicate_window: Millis = 0  # 0: no duplicate detection
    lock_duration: Millis = 0
    max_delivery_count: int = 0
    dead_letter_on_expiry: bool = False
    dead_letter_on_filter_error: bool = False
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    is_deleted: bool = False
    is_leaving: bool = False  # another node is about to delete it since nobody uses it, or may be
    alive_at: Millis = 0  # when it was created or restored, or last updated, or a scheduled message became due
    last_used_at: Millis = 0  # when somebody last sent, received or looked; 0: nobody has

    def follow(self, other: "EntitySettings") -> None:
        """Take over what a description says; what happened to the entity stays."""
        for field in fields(self):
            if field.name not in ("is_deleted", "is_leaving", "alive_at", "last_used_at"):
                setattr(self, field.name, getattr(other, field.name))

    def is_unused(self, now: Millis, duration: Millis) -> bool:
        """Whether nobody has used it for this long (contract, Numbers: auto-delete on idle)."""
        return now - max(self.alive_at, self.last_used_at) >= duration

    def clock_stepped(self, by: Millis) -> None:
        self.alive_at += by
        if self.last_used_at:
            self.last_used_at += by

    @property
    def can_send(self) -> bool:
        return self.status in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def can_receive(self) -> bool:
        return self.status in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)

    def check_stays(self) -> None:
        if self.is_deleted:
            raise EntityNotFound.at(self.path)
        if self.is_leaving:
            raise ServerBusy(
                f"'{self.path}' has not been used for as long as it may be idle and is about to be deleted, or it is just "
                "being changed. Try again."
            )

    def check_can_send(self) -> None:
        self.check_stays()
        if self.status is not EntityStatus.ACTIVE and not self.can_send:
            raise EntityDisabled(
                f"'{self.path}' takes no messages: its status is {self.status.value}. Set it to Active."
            )

    def check_can_receive(self) -> None:
        self.check_stays()
        if not self.can_receive:
            raise EntityDisabled(
                f"'{self.path}' gives no messages: its status is {self.status.value}. Set it to Active."
            )


def queue_settings(queue: QueueDescription) -> EntitySettings:
    return EntitySettings(
        path=queue.name,
        root=path_key(queue.name),
        status=queue.status,
        default_time_to_live=queue.default_time_to_live,
        is_partitioned=queue.enable_partitioning,
        size_max_bytes=queue.max_size_mb * MEGABYTE,
        message_size_max=queue.max_message_size_kb * KILOBYTE,
        requires_session=queue.requires_session,
        has_sessions=queue.requires_session,
        duplicate_window=queue.duplicate_detection_window if queue.requires_duplicate_detection else 0,
        lock_duration=queue.lock_duration,
        max_delivery_count=queue.max_delivery_count,
        dead_letter_on_expiry=queue.dead_letter_on_expiry,
        forward_to=queue.forward_to,
        forward_dead_letters_to=queue.forward_dead_letters_to,
    )


def topic_settings(topic: TopicDescription) -> EntitySettings:
    return EntitySettings(
        path=topic.name,
        root=path_key(topic.name),
        status=topic.status,
        default_time_to_live=topic.default_time_to_live,
        is_partitioned=topic.enable_partitioning,
        size_max_bytes=topic.max_size_mb * MEGABYTE,
        message_size_max=topic.max_message_size_kb * KILOBYTE,
        has_sessions=True,
        duplicate_window=topic.duplicate_detection_window if topic.requires_duplicate_detection else 0,
        lock_duration=LOCK_DURATION_DEFAULT,  # of its transfer dead-letter queue
    )


def subscription_settings(subscription: SubscriptionDescription, topic: TopicDescription) -> EntitySettings:
    """Size limits and duplicate detection are the topic's, which decides before it copies."""
    return EntitySettings(
        path=f"{subscription.topic}/Subscriptions/{subscription.name}",
        root=path_key(subscription.topic),
        status=subscription.status,
        default_time_to_live=subscription.default_time_to_live,
        is_partitioned=topic.enable_partitioning,
        message_size_max=topic.max_message_size_kb * KILOBYTE,
        requires_session=subscription.requires_session,
        has_sessions=subscription.requires_session,
        lock_duration=subscription.lock_duration,
        max_delivery_count=subscription.max_delivery_count,
        dead_letter_on_expiry=subscription.dead_letter_on_expiry,
        dead_letter_on_filter_error=subscription.dead_letter_on_filter_error,
        forward_to=subscription.forward_to,
        forward_dead_letters_to=subscription.forward_dead_letters_to,
    )
