"""The entities of a rehearsal: one of each kind, with a common prefix so that they are easy to delete."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from twinbus.errors import MessagingError
from twinbus.model.paths import subscription_path

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

LOCK_DURATION = timedelta(seconds=5)
"""Short: what a disconnected receiver held comes again only when its lock has ended."""

SESSION_LOCK_DURATION = timedelta(minutes=1)
"""Long: a message session is released at once when its receiver is disconnected, and a short lock would be lost often."""

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
        """Whether a message has to arrive exactly once, however often it was sent or moved."""
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


class LeftBehind(MessagingError):
    """Some entities of a rehearsal could not be deleted."""


def remove_all(place: str, deletions: Mapping[str, Callable[[], None]]) -> None:
    """Delete each path by its function, even if others fail. Raises LeftBehind for those that still exist.

    If the namespace does not answer, only the first deletion waits for it.
    """
    # The command line reads this module for its options, and importing the client takes longer than most commands.
    from azure.core.exceptions import AzureError, ResourceNotFoundError, ServiceRequestError, ServiceResponseError

    left: list[str] = []
    fault: AzureError | None = None
    for path, delete in deletions.items():
        if isinstance(fault, ServiceRequestError | ServiceResponseError):
            left.append(path)
            continue
        try:
            delete()
        except ResourceNotFoundError:
            continue
        except AzureError as error:
            left.append(path)
            fault = error
    if fault is not None:
        paths = ", ".join(left)
        raise LeftBehind(f"The {place} still has {paths}. Delete them by hand. The reason: {fault}") from fault
