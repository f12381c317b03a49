"""What a bill counts: one `Operation` for everything a namespace does for a client (docs/contract.md, D).

The gateway and the administration report for a twinbus namespace; the pair and its syphon report for a namespace that keeps no
log. `twinbus.cost` prices and explains what is reported.

cause          one operation is                                                               billed
send           an accepted message; messages of a batch count one by one                      by size
schedule       a message accepted for later                                                   by size
receive        a message handed to a receiver, and a deferred one fetched by its number       by size
empty_receive  a receive that ended without a message, see below                              as 1
peek           a message shown; a peek that shows none is one as well                         by size
settle         a message completed, abandoned, deferred, dead-lettered or given back          no
renew          a lock renewed, of a message or of a message session                           as 1
cancel         a scheduled message cancelled                                                  as 1
session        a message session accepted; a read or write of its state; a list of sessions   by size of the state
forward        a message that an entity forwarded, or that was sent via another entity        by size
copy           a message that a subscription took from its topic                              no
ping           a message that asks whether the entity is available; it is never delivered     as 1
management     a request about entities and rules, or one that works on many messages         as 1

"By size" means `units_of` the message: one unit per started 64 KB. What the service counts as an operation is billed: a
settlement is part of its receive, and a message to a topic with 20 forwarding subscriptions costs 21, so copies are free.

A refused request is not an operation: nothing was done. A dropped duplicate is one, because its sender got an acceptance. A
send or settlement in a transaction counts when the transaction commits. Tokens, links and transactions themselves are not
operations.

A receive over AMQP is credit that a client gives a link. It ends with the first delivery. It ends empty when the client issues
credit again or drains the link, or when the link ends. So a long poll of 15 minutes without a message is one operation, and so is
a link that waits for a week. Credit that only replaces what deliveries used up does not end a receive. Waiting for a message
session in vain is also an empty receive.
"""

from enum import Enum, StrEnum
from typing import NamedTuple, Protocol

from twinbus.clock import Millis
from twinbus.model.paths import is_backlog_queue

UNIT_BYTES = 64 * 1024

NO_FRAGMENT = -1
"""For an operation that concerns no particular fragment: an empty receive, management, a dropped duplicate."""

WHO_LENGTH_MAX = 64

SYPHON_PRODUCT = "twinbus-syphon"
"""How the connections of a syphon identify themselves; their operations are on the path `syphon`."""


class Cause(StrEnum):
    SEND = "send"
    SCHEDULE = "schedule"
    RECEIVE = "receive"
    EMPTY_RECEIVE = "empty_receive"
    PEEK = "peek"
    SETTLE = "settle"
    RENEW = "renew"
    CANCEL = "cancel"
    SESSION = "session"
    FORWARD = "forward"
    COPY = "copy"
    PING = "ping"
    MANAGEMENT = "management"

    @property
    def is_billed(self) -> bool:
        return self not in _FREE


_FREE = frozenset({Cause.SETTLE, Cause.COPY})


class Path(StrEnum):
    """Which way a message went: directly, into a backlog queue, or to its entity by a syphon."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    SYPHON = "syphon"


class EntityType(StrEnum):
    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    NAMESPACE = "namespace"


class Operation(NamedTuple):
    """One operation, or `operations` of them that differ only in their messages."""

    at: Millis
    cause: Cause
    entity: str  # path of the queue, topic or subscription; "" is the namespace
    fragment: int
    messages: int
    size: int  # bytes of all messages, as the broker keeps them
    units: int  # what is billed; 0 if the cause is not billed
    path: Path
    who: str  # the product named by the connection, otherwise its container id
    message_id: str | None = None  # None if the row stands for several messages or none
    sequence_number: int | None = None
    entity_type: EntityType = EntityType.QUEUE
    operations: int = 1


class Meter(Protocol):
    """Operations are reported to it. It is called on the thread that acted, must be quick and must never raise."""

    def record(self, operation: Operation, /) -> None: ...


class _NoMeter(Enum):
    INSTANCE = 0

    def record(self, operation: Operation, /) -> None:
        """Nothing is counted."""


NO_METER = _NoMeter.INSTANCE


def units_of(size: int) -> int:
    """One unit per started 64 KB of a message, and at least one."""
    return max(1, -(-size // UNIT_BYTES))


def who_of_agent(user_agent: str) -> str:
    """The first name in a user agent, without its version: an application puts its own name before the SDK's."""
    return user_agent.split(" ", 1)[0].split("/", 1)[0][:WHO_LENGTH_MAX]


def path_of(entity: str, who: str) -> Path:
    """By who acts, then by the entity: backlog queues are recognised by their names."""
    if who.startswith(SYPHON_PRODUCT):
        return Path.SYPHON
    return Path.BACKLOG if is_backlog_queue(entity) else Path.PRIMARY
