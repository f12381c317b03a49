"""The entities that are rehearsed: one of each way to lay messages down, below one prefix so that they are easy to remove."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from twinbus.model.paths import subscription_path

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

LOCK_DURATION = timedelta(seconds=5)
"""Short: what a receiver held that was cut off comes again only when its lock has ended."""

SESSION_LOCK_DURATION = timedelta(minutes=1)
"""A message session is free at once when its receiver is cut off, and would otherwise be lost again and again."""

SUBSCRIPTIONS = ("audit", "billing")
SESSIONS = tuple(f"customer-{number}" for number in range(6))


class EntityKind(StrEnum):
    ORDINARY = "ordinary"
    PARTITIONED = "partitioned"
    SESSIONS = "sessions"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class RehearsedEntity:
    """`outlets` are the paths from which its messages are received: each gets every message."""

    kind: EntityKind
    path: str

    @property
    def outlets(self) -> tuple[str, ...]:
        if self.kind is EntityKind.TOPIC:
            return tuple(subscription_path(self.path, name) for name in SUBSCRIPTIONS)
        return (self.path,)

    @property
    def detects_duplicates(self) -> bool:
        """Where a message has to arrive once, however often it was sent or moved."""
        return self.kind in (EntityKind.ORDINARY, EntityKind.SESSIONS)


def rehearsed_entities(prefix: str) -> tuple[RehearsedEntity, ...]:
    return tuple(RehearsedEntity(kind, prefix + kind) for kind in EntityKind)


def create_entity(administration: "ServiceBusAdministrationClient", entity: RehearsedEntity) -> None:
    if entity.kind is EntityKind.TOPIC:
        administration.create_topic(entity.path)
        for name in SUBSCRIPTIONS:
            administration.create_subscription(entity.path, name, lock_duration=LOCK_DURATION)
        return
    administration.create_queue(
        entity.path,
        lock_duration=SESSION_LOCK_DURATION if entity.kind is EntityKind.SESSIONS else LOCK_DURATION,
        enable_partitioning=entity.kind is EntityKind.PARTITIONED,
        requires_session=entity.kind is EntityKind.SESSIONS,
        requires_duplicate_detection=entity.detects_duplicates,
    )


def delete_entity(administration: "ServiceBusAdministrationClient", entity: RehearsedEntity) -> None:
    delete = administration.delete_topic if entity.kind is EntityKind.TOPIC else administration.delete_queue
    delete(entity.path)
