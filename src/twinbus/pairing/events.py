"""What a pair reports: one event per step, and a view of every entity's state."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from twinbus.clock import Millis


class EventKind(Enum):
    TIMER_STARTED = "timer-started"
    FAILED_OVER = "failed-over"
    BACKLOG_SEND = "backlog-send"
    QUEUE_TAKEN_OUT = "queue-taken-out"
    QUEUE_READMITTED = "queue-readmitted"
    PING = "ping"
    RECOVERED = "recovered"
    CAUGHT_UP = "caught-up"
    SYPHON_MOVED = "syphon-moved"
    SYPHON_SKIPPED = "syphon-skipped"
    SYPHON_DEAD_LETTERED = "syphon-dead-lettered"
    FAULTED = "faulted"
    UNPROTECTED = "unprotected"
    PROTECTED = "protected"


@dataclass(frozen=True, slots=True)
class PairingEvent:
    """One step. `path` is the entity's, `queue` the backlog queue's, where the step has one; `fragment` is set where a step is
    about one fragment of a partitioned entity only."""

    kind: EventKind
    at: Millis
    path: str | None = None
    queue: str | None = None
    count: int = 1
    error: BaseException | None = None
    fragment: int | None = None


_LOGGER = logging.getLogger(__name__)


def tell(on_event: Callable[[PairingEvent], None], event: PairingEvent) -> None:
    """Call the user's callback. Its failure must not look like a failed send: the message was accepted."""
    try:
        on_event(event)
    except Exception:
        _LOGGER.exception("on_event failed for %s", event.kind.value)


class Availability(Enum):
    """Of one entity of the primary, as its senders see it."""

    HEALTHY = "healthy"
    FAILING = "failing"
    FAILED_OVER = "failed-over"
    REFUSING = "refusing"
    RECOVERING = "recovering"
    CATCHING_UP = "catching-up"


@dataclass(frozen=True, slots=True)
class FragmentState:
    """One fragment of a partitioned entity, while it is in trouble and the rest of the entity is not."""

    fragment: int
    availability: Availability
    failing_since: Millis | None
    failed_over_at: Millis | None
    last_error: BaseException | None


@dataclass(frozen=True, slots=True)
class EntityState:
    """The entity as a whole, and those of its fragments that are in trouble by themselves."""

    path: str
    availability: Availability
    failing_since: Millis | None
    failed_over_at: Millis | None
    next_ping_at: Millis | None
    last_error: BaseException | None
    fragments: tuple[FragmentState, ...] = ()

    @property
    def availabilities(self) -> tuple[Availability, ...]:
        """Of the whole, and of each fragment that is in trouble."""
        return (self.availability, *(each.availability for each in self.fragments))


@dataclass(frozen=True, slots=True)
class BacklogQueueState:
    """`out_until` is None for a queue that is in the rotation."""

    path: str
    out_until: Millis | None


@dataclass(frozen=True, slots=True)
class PairState:
    """`is_protected` is false while a pair that does not require its backlog has none; `backlog_error` is why."""

    entities: tuple[EntityState, ...]
    backlog_queues: tuple[BacklogQueueState, ...]
    is_protected: bool = True
    backlog_error: BaseException | None = None
