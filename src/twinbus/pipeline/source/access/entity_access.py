"""What a source asks of an entity, whichever namespace it is in: the words that own_access and plain_access share."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from twinbus.client.entity_extras import PackedPage
from twinbus.client.received_message import ReceivedMessage
from twinbus.clock import Millis
from twinbus.model import wire_names
from twinbus.model.wire_names import MessageState
from twinbus.pipeline.source.ranges import Range

ALL_STATES = tuple(MessageState)


class Seen(NamedTuple):
    """A message that is or was there."""

    number: int
    enqueued_at: Millis


class Head(NamedTuple):
    """Where a fragment begins and ends."""

    fragment: int
    is_available: bool  # false: nothing is known of it just now, and the numbers mean nothing
    first: int  # of the messages in it; `end` where there is none
    end: int  # one above the highest number that was ever given
    waiting: int  # messages that could be received; at most, where only the numbers are known
    deferred: int | None  # None: not known
    size_bytes: int  # of `message_count` messages
    message_count: int
    created_at: Millis | None = None  # the entity; None: the namespace does not say
    seen: tuple[Seen, ...] = ()  # where it does not: some messages, by which the entity is known again


class Claim(NamedTuple):
    ranges: list[Range]
    is_certain: bool  # false: a fragment failed meanwhile, and may have more that was not reported


class Wanted(NamedTuple):
    """Messages of one fragment with numbers from `first` to below `end`, as many as fit into a page."""

    first: int
    end: int
    count_max: int
    states: Sequence[MessageState]
    with_bodies: bool = False
    condition: str | None = None  # a SQL filter, for a twinbus namespace alone


class EntityAccess(Protocol):
    """Every call may be repeated, with one exception: a `claim` whose answer is lost may have been done."""

    path: str
    is_own: bool

    async def heads(self) -> list[Head]:
        """Of all fragments that are known to have messages, or to have had some."""
        ...

    async def page(self, wanted: Wanted) -> PackedPage:
        """May be empty although more follows."""
        ...

    async def times(self, numbers: Sequence[int]) -> list[tuple[int, Millis] | None]:
        """For each number, the first message with it or above in its fragment: its number, and when it was enqueued.

        Raises NotImplementedHere where that takes a request for each.
        """
        ...

    async def claim(self, shares: Mapping[int, int], ends: Mapping[int, int] | None, owner: str) -> Claim:
        """Claim at most this many messages of each fragment and, with `ends`, only those with lower numbers."""
        ...

    async def delete(self, ranges: Sequence[Range]) -> None:
        """Remove deferred messages. Messages that are gone are not an error."""
        ...

    async def release(self, ranges: Sequence[Range]) -> int:
        """Make deferred messages active again; how many it were."""
        ...

    async def check_claims(self) -> None:
        """Raises NotAllowed where messages cannot be claimed here."""
        ...


def mean_size(heads: Sequence[Head]) -> int:
    return sum(head.size_bytes for head in heads) // max(1, sum(head.message_count for head in heads))


def creation_time(heads: Sequence[Head]) -> Millis | None:
    """Of the entity that the heads are of."""
    return max((head.created_at for head in heads if head.created_at is not None), default=None)


def was_created_again(known: Millis | None, now: Millis | None) -> bool:
    """Whether the entity is another one than that of the known time: its sequence numbers have started over."""
    return None not in (known, now) and known != now


def enqueued_at(message: ReceivedMessage) -> Millis:
    return message.annotations.get(wire_names.ENQUEUED_TIME) or 0


def owner_of(message: ReceivedMessage) -> str | None:
    """Who claimed it; None if it is deferred for another reason."""
    owner = message.annotations.get(wire_names.CLAIMED_BY) or message.application_properties.get(wire_names.CLAIMED_BY)
    return owner if isinstance(owner, str) else None
