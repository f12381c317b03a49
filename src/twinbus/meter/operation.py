"""What a bill is made of: one `Operation` for every step that a namespace does for somebody, as values (contract D).

Who acts reports, and asks nothing back: the gateway and the administration for a namespace of ours, the pair and its
syphon for one that keeps no log. `twinbus.cost` writes, prices and explains what is reported.

cause          one operation is                                                               billed
send           a message that was accepted; those of a batch count one by one                 by size
schedule       a message that was accepted for later                                          by size
receive        a message handed to a receiver, and a deferred one fetched by its number       by size
empty_receive  a receive that ended without a message, see below                              as 1
peek           a message shown; a peek that shows none is one as well                         by size
settle         a message completed, abandoned, deferred, dead-lettered or given back          no
renew          a lock renewed, of a message or of a message session                           as 1
cancel         a scheduled message cancelled                                                  as 1
session        a message session accepted; a read or write of its state; a list of sessions   by size of the state
forward        a message that an entity handed on by itself, or that was sent via another     by size
copy           a message that a subscription took out of its topic                            no
ping           a message that asks whether the entity is there, and is delivered to nobody    as 1
management     a request about entities and rules, and one that works on many messages        as 1

"By size" is `units_of` the message: each began 64 KB. Billed are what the service counts as an operation: a settlement is
part of the receive, and a topic with 20 subscriptions that forward costs 21 for each message, so copies are free.

What is refused is not an operation: nothing was done. A duplicate that is dropped is one, for the sender was told yes.
A send or settlement in a transaction counts when the transaction is committed. Tokens, links and transactions
themselves are no operations.

A receive over AMQP is credit that a client gives a link. It ends with the first delivery, or else empty: when the
client gives the credit anew, takes it back (drain), or the link is gone. So a long poll of 15 minutes without a message
is one operation, and a link that is left waiting for a week is one as well. Credit that only gives back what deliveries
used up ends no receive. To wait for a message session in vain is an empty receive, too.
"""

from enum import Enum, StrEnum
from typing import NamedTuple, Protocol

from twinbus.clock import Millis

UNIT_BYTES = 64 * 1024

NO_FRAGMENT = -1
"""Of an operation that concerns none in particular: an empty receive, management, a duplicate that was dropped."""

WHO_LENGTH_MAX = 64

SYPHON_PRODUCT = "twinbus-syphon"
"""How the connections of a syphon name themselves; what they do is on the path `syphon`."""

BACKLOG_SEGMENT = "/x-servicebus-transfer/"


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
    """Which way a message went: the application's own, aside into a backlog queue, or home with a syphon."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    SYPHON = "syphon"


class EntityType(StrEnum):
    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    NAMESPACE = "namespace"


class Operation(NamedTuple):
    """One operation, or `operations` of them that differ in nothing but their messages."""

    at: Millis
    cause: Cause
    entity: str  # path of the queue, topic or subscription; "" is the namespace
    fragment: int
    messages: int
    size: int  # bytes of all messages, as the broker keeps them
    units: int  # what is billed; 0 where the cause is not
    path: Path
    who: str  # the product that the connection named, else its container
    message_id: str | None = None  # None where the row stands for several messages, or for none
    sequence_number: int | None = None
    entity_type: EntityType = EntityType.QUEUE
    operations: int = 1


class Meter(Protocol):
    """Where operations are reported to. Called on the thread that acted; must be quick and never raise."""

    def record(self, operation: Operation, /) -> None: ...


class _NoMeter(Enum):
    INSTANCE = 0

    def record(self, operation: Operation, /) -> None:
        """Nobody counts."""


NO_METER = _NoMeter.INSTANCE


def units_of(size: int) -> int:
    """Each began 64 KB of a message is a unit, and a message is at least one."""
    return max(1, -(-size // UNIT_BYTES))


def who_of_agent(user_agent: str) -> str:
    """The first name in a user agent, without its version: an application's own stands before its SDK's."""
    return user_agent.split(" ", 1)[0].split("/", 1)[0][:WHO_LENGTH_MAX]


def path_of(entity: str, who: str) -> Path:
    """By who acts, then by where: the backlog queues of a pair are known by their names."""
    if who.startswith(SYPHON_PRODUCT):
        return Path.SYPHON
    return Path.BACKLOG if BACKLOG_SEGMENT in entity.casefold() else Path.PRIMARY
