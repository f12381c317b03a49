"""What can be asked of a queue: each command a value, with what is replied beside it.

`MessageQueue.ask(command, now, reply)` carries it out. The reply comes once: what the command names, or the MessagingError
that kept it from being done. Commands and replies hold data alone, so that they can travel; `twinbus.broker.operations`
has the steps of each, in the module that is named here.

Not on this page is what comes in bursts, message by message: sending, receiving and settling, and the locks of messages and
message sessions. These are methods of the queue and its entity.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.clock import Millis
from twinbus.model.descriptions import SqlAction, SqlFilter
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import ACTIVE_ONLY, ANY_STATE, BacklogShares, NumberedTime, PackedRows

T = TypeVar("T")

Range: TypeAlias = tuple[int, int]
"""First and last sequence number, both included."""

CALL_COUNT_MAX = 10_000
"""Messages that one command changes at most."""
NUMBERS_MAX = 100_000
"""Sequence numbers that one command names at most."""
SHARES_COUNT_MAX = 10_000
"""Messages that one `CountShares` looks at."""


class Command(Generic[T]):
    """Something asked of a queue that is replied to with a `T`."""

    __slots__ = ()


# Looking (operations/peek.py)


@dataclass(frozen=True, slots=True)
class Peek(Command[list[StoredMessage]]):
    """Messages in any state numbered `from_number` or above, without taking them (contract A12).

    Fragment after fragment, and no page holds messages of two. A page may be short; an empty one is the end.
    """

    from_number: int
    count_max: int  # message_limits.PEEK_COUNT_MAX at most
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class PeekMerged(Command[list[StoredMessage]]):
    """As `Peek`, over all fragments at once in the order of arrival."""

    positions: Mapping[int, int]  # index of a fragment -> lowest number wanted of it
    count_max: int  # message_limits.PEEK_COUNT_MAX at most


class RangePage(NamedTuple):
    rows: list[StoredMessage]
    next_number: int | None  # where to go on; None: there is nothing more in the range


@dataclass(frozen=True, slots=True)
class PeekRange(Command[RangePage]):
    """Messages in some states numbered `first` to `last`, all in one fragment; without rows only if there are none."""

    first: int
    last: int
    count_max: int  # message_limits.RANGE_COUNT_MAX at most
    states: Collection[MessageState] = ANY_STATE
    filter: SqlFilter | None = None
    """Others are left out, and so is what it fails on. A page may then be empty although more follows."""
    with_bodies: bool = True


@dataclass(frozen=True, slots=True)
class PeekPacked(Command[PackedRows]):
    """As `PeekRange`, encoded where the rows are: for readers of whole entities."""

    first: int
    last: int
    count_max: int  # message_limits.RANGE_COUNT_MAX at most
    states: Collection[MessageState] = ANY_STATE
    filter: SqlFilter | None = None
    with_bodies: bool = True


# Taking by number (operations/by_number.py)


@dataclass(frozen=True, slots=True)
class ReceiveDeferred(Command[list[TakenMessage]]):
    """Take the deferred messages with these numbers, all of one fragment: every one of them, or MessageNotFound."""

    numbers: Sequence[int]
    mode: ReceiveMode
    session_id: str | None = None  # where the queue requires message sessions; it has to be held


@dataclass(frozen=True, slots=True)
class CancelScheduled(Command[None]):
    """Remove the scheduled messages with these numbers, all of one fragment: every one of them, or MessageNotFound."""

    numbers: Sequence[int]


# Changing many (operations/bulk.py): each replies with the numbers of the messages that it changed


@dataclass(frozen=True, slots=True)
class Purge(Command[list[int]]):
    """Remove the first messages enqueued at a time or before. Fewer than `count_max` means that it was all.

    With a session id: of that message session alone. Whoever holds it may purge it, and nobody else meanwhile.
    """

    count_max: int
    enqueued_until: Millis
    states: Collection[MessageState] = ANY_STATE
    session_id: str | None = None
    is_by_holder: bool = False  # of the message session


@dataclass(frozen=True, slots=True)
class Claim(Command[list[int]]):
    """Set the first active messages aside as if they were received and deferred; the numbers of a fragment rise.

    The owner, if there is one, is an annotation of the messages from then on.
    """

    count_max: int
    owner: str | None = None
    fragment_index: int | None = None  # None: of all fragments
    last_number: int | None = None  # of the one fragment: what came later stays


@dataclass(frozen=True, slots=True)
class DeleteDeferred(Command[list[int]]):
    """Remove the deferred messages with these numbers. Those that are gone already are not an error: it may be repeated."""

    ranges: Sequence[Range]


@dataclass(frozen=True, slots=True)
class Undefer(Command[list[int]]):
    """Make the deferred messages with these numbers active again, each in its old place."""

    ranges: Sequence[Range]


@dataclass(frozen=True, slots=True)
class UndeferAll(Command[list[int]]):
    """Make the first deferred messages active again, each in its old place."""

    count_max: int


# Repairing (operations/repair.py)


@dataclass(frozen=True, slots=True)
class Repair(Command["RepairPage"]):
    """Move messages of one fragment that nobody holds to where they belong, changed on the way if need be; or remove them.

    By their numbers, or numbered `first` to `last`; of those, the ones that the filter matches. If it cannot go on, the reply is
    what it has repaired, and an error only if that is nothing. May be repeated after any failure: what has been repaired is gone
    from here.
    """

    first: int
    last: int
    count_max: int = CALL_COUNT_MAX  # messages that are looked at
    numbers: Sequence[int] | None = None  # all from `first` to `last`; REPAIRED_NUMBERS_MAX at most
    filter: SqlFilter | None = None
    action: SqlAction | None = None
    destination: str | None = None  # None: the queue or subscription whose dead letters these are
    removes: bool = False  # in place of moving
    resets_delivery_count: bool = False
    states: Collection[MessageState] = ACTIVE_ONLY


REPAIRED_NUMBERS_MAX = 1_000
"""Sequence numbers that one `Repair` names at most."""
PREVIEWS_MAX = 100
"""Messages that one `PreviewRepair` shows."""
REFUSALS_MAX = 20
"""Reasons that one `RepairPage` gives."""


class Refusal(NamedTuple):
    """Why a message stays as and where it is."""

    sequence_number: int
    reason: str


class RepairPage(NamedTuple):
    numbers: list[int]  # of the messages that were moved or removed
    examined_count: int
    held_count: int  # of those that match, and somebody holds
    refused_count: int
    refusals: list[Refusal]  # the first ones
    next_number: int | None  # where to go on; None: there is nothing more


class RepairPreview(NamedTuple):
    before: StoredMessage
    after: StoredMessage | None  # None: it would be removed, or stays for the reason given
    refusal: str | None


class PreviewPage(NamedTuple):
    previews: list[RepairPreview]
    examined_count: int
    next_number: int | None


@dataclass(frozen=True, slots=True)
class PreviewRepair(Command[PreviewPage]):
    """What a repair would do with the first messages that it would touch."""

    repair: Repair
    count_max: int  # PREVIEWS_MAX at most


def ranges_of(numbers: Iterable[int]) -> list[Range]:
    """The runs that rising numbers make up."""
    ranges: list[Range] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


# Message sessions (operations/sessions.py)


@dataclass(frozen=True, slots=True)
class GetSessionState(Command[bytes | None]):
    """The state that applications keep with a message session; None: it has none. SessionLockLost if nobody holds it."""

    session_id: str


@dataclass(frozen=True, slots=True)
class SetSessionState(Command[None]):
    """None forgets the state; an empty one is a state. SessionLockLost if nobody holds the session."""

    session_id: str
    state: bytes | None


@dataclass(frozen=True, slots=True)
class ListSessions(Command[list[str]]):
    """Message sessions by name: those with active messages or a state, or those whose state was set after a time."""

    updated_after: Millis | None  # None: all of them
    skip: int
    top: int


class SessionCount(NamedTuple):
    session_id: str
    active: int  # messages, locked ones too
    is_held: bool  # by a receiver


class SessionCounts(NamedTuple):
    """The sums are over all sessions with active messages, whatever the page shows."""

    sessions: int
    held: int
    active: int
    page: list[SessionCount]
    is_all: bool  # False: a part of the queue could not be asked


@dataclass(frozen=True, slots=True)
class CountSessions(Command[SessionCounts]):
    """How many active messages each message session has, those with most first. Unavailable fragments are skipped."""

    skip: int
    top: int


# Counting by fragment or destination (operations/overview.py)


class FragmentHead(NamedTuple):
    fragment: int
    is_available: bool  # false: nothing is known, and all that follows is 0
    first_number: int  # of the messages in it; one above the last if there are none
    last_number: int  # the highest that was ever given
    active: int
    deferred: int
    scheduled: int
    size_bytes: int
    store: int  # the messaging store that it is in, which is known even if that is lost


@dataclass(frozen=True, slots=True)
class ListFragments(Command[list[FragmentHead]]):
    """Where every fragment begins and ends, in their order. What is numbered up to `last_number` is durable, or gone."""


@dataclass(frozen=True, slots=True)
class FindTimes(Command[list[NumberedTime | None]]):
    """When the first message with each of these numbers or above was enqueued, in any state; None where its fragment has
    no such message. In the order of the numbers, which may be of several fragments."""

    numbers: Sequence[int]


@dataclass(frozen=True, slots=True)
class CountShares(Command[BacklogShares]):
    """What waits for which destination, of messages in any state numbered `from_number` or above, locked ones too."""

    from_number: int
    count_max: int  # about; SHARES_COUNT_MAX at most
