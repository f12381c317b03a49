"""What can happen to the rows of a messaging store, as values.

A message broker decides, and the result is a list of these changes. A store applies a list completely or not at all.
The journal records them, the tables hold their sum, and the in-memory store holds the same sum without a disk. So that
all of these agree, a change contains every value that it needs and nothing is left to a clock, an id generator or a default.

A fragment is named by a `FragmentKey`: entity, index of the fragment and sub-queue packed in one
integer, so that a dead-letter move is two changes in the same store and so in one commit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from twinbus.clock import Millis
from twinbus.model.paths import SubQueue as SubQueue
from twinbus.model.session_key import session_key
from twinbus.model.wire_names import MessageState

FragmentKey: TypeAlias = int


FRAGMENT_INDEX_MAX = 63


def fragment_key(entity_id: int, index: int, sub_queue: SubQueue = SubQueue.MAIN) -> FragmentKey:
    assert entity_id > 0
    assert 0 <= index <= FRAGMENT_INDEX_MAX
    return entity_id << 8 | index << 2 | sub_queue


@dataclass(frozen=True, slots=True)
class FragmentParts:
    entity_id: int
    index: int
    sub_queue: SubQueue


def fragment_parts(key: FragmentKey) -> FragmentParts:
    return FragmentParts(key >> 8, fragment_index(key), SubQueue(key & 3))


def fragment_index(key: FragmentKey) -> int:
    return key >> 2 & FRAGMENT_INDEX_MAX


@dataclass(slots=True)
class StoredMessage:
    """One message as a row. `content` is opaque here: `twinbus.model.message` reads and writes it.

    Mutable because the broker that owns the fragment keeps the object it stored in its window and updates state and
    delivery count on it. A store never changes an object that it was given, and never returns the same object twice.
    """

    sequence_number: int
    content: bytes
    enqueued_at: Millis
    expires_at: Millis  # NEVER if there is no time to live
    state: MessageState = MessageState.ACTIVE
    due_at: Millis = (
        0  # when a scheduled (or delayed) message becomes active; of a deferred one, its claim (model.claim_owner)
    )
    delivery_count: int = 0
    session_id: str | None = None
    enqueued_sequence_number: int = 0  # the number at the first point of submission; 0 = this one


@dataclass(frozen=True, slots=True)
class FragmentCreated:
    fragment: FragmentKey


@dataclass(frozen=True, slots=True)
class FragmentDeleted:
    """The fragment and everything in it: messages, session states, duplicate history."""

    fragment: FragmentKey


@dataclass(frozen=True, slots=True)
class Enqueued:
    """New rows, in ascending order of sequence numbers, each above any that the fragment ever had."""

    fragment: FragmentKey
    messages: list[StoredMessage]


SessionRun: TypeAlias = tuple[str, int, int]
"""Of rows in a row: a session id, how many of them have it, and the place of the first."""


def session_runs(session_ids: Iterable[str | None]) -> list[SessionRun]:
    found: dict[str, SessionRun] = {}
    for place, session_id in enumerate(session_ids):
        if session_id is not None:
            key = session_key(session_id)
            name, count, first = found.get(key, (session_id, 0, place))
            found[key] = (name, count + 1, first)
    return list(found.values())


class SharedRows:
    """Rows that several fragments get, each under numbers of its own: those in the messages mean nothing. They must not be
    changed any more."""

    def __init__(self, messages: Sequence[StoredMessage]) -> None:
        self.messages = messages

    def __len__(self) -> int:
        return len(self.messages)

    def measure(self) -> None:
        """Look at all of them, while there is time: a commit of very many takes these together."""
        for _ in (self.size_bytes, self.next_expiry, self.sessions):
            pass

    @cached_property
    def size_bytes(self) -> int:
        return sum([len(message.content) for message in self.messages])

    @cached_property
    def next_expiry(self) -> Millis:
        return min([message.expires_at for message in self.messages])

    @cached_property
    def sessions(self) -> list[SessionRun]:
        return session_runs([message.session_id for message in self.messages])

    def numbered(self, first_number: int) -> list[StoredMessage]:
        """As the rows of one fragment."""
        return [replace(message, sequence_number=first_number + place) for place, message in enumerate(self.messages)]


@dataclass(frozen=True, slots=True)
class Copied:
    """As `Enqueued`, for rows that other fragments get too: numbered from `first_number` on, in their order.

    A topic with hundreds of subscriptions copies a large batch this way: what is the same for all is encoded once.
    """

    fragment: FragmentKey
    first_number: int
    rows: SharedRows


@dataclass(frozen=True, slots=True)
class Removed:
    """Rows that are removed for good. A number that does not exist is not an error: removal is idempotent."""

    fragment: FragmentKey
    sequence_numbers: list[int]


@dataclass(frozen=True, slots=True)
class Altered:
    """A row whose state, count, times or content changed; the number stays. Missing rows are ignored."""

    fragment: FragmentKey
    sequence_number: int
    state: MessageState
    delivery_count: int
    due_at: Millis
    expires_at: Millis
    content: bytes | None = None  # None: as it was


@dataclass(frozen=True, slots=True)
class AlteredTogether:
    """Many rows that get the same state and `due_at`, and keep everything else. Missing rows are ignored."""

    fragment: FragmentKey
    sequence_numbers: list[int]
    state: MessageState
    due_at: Millis


@dataclass(frozen=True, slots=True)
class Activated:
    """A scheduled row that became an active one under a new number (contract A13); its due time is 0 then.

    A missing row is ignored, but the new number counts as used.
    """

    fragment: FragmentKey
    scheduled_number: int
    sequence_number: int
    enqueued_at: Millis
    expires_at: Millis


@dataclass(frozen=True, slots=True)
class ActivatedTogether:
    """As `Activated`, for many rows of a fragment: their new numbers count from `first_number` on, in this order."""

    fragment: FragmentKey
    scheduled_numbers: list[int]
    first_number: int
    enqueued_at: Millis
    expiries: list[Millis]

    def each(self) -> Iterator[Activated]:
        for place, (number, expires_at) in enumerate(zip(self.scheduled_numbers, self.expiries, strict=True)):
            yield Activated(self.fragment, number, self.first_number + place, self.enqueued_at, expires_at)


@dataclass(frozen=True, slots=True)
class SessionStateSet:
    """The state of a message session; None removes it. An empty state is a state (contract A9)."""

    fragment: FragmentKey
    session_id: str
    state: bytes | None
    updated_at: Millis


@dataclass(frozen=True, slots=True)
class DuplicatesSeen:
    """Keys of duplicate detection, or names of second tries, and until when each of them is valid."""

    fragment: FragmentKey
    keys: list[tuple[str, Millis]]


@dataclass(frozen=True, slots=True)
class DuplicatesForgotten:
    """Every key of the fragment that is valid until `until` or less is dropped."""

    fragment: FragmentKey
    until: Millis


Change: TypeAlias = (
    FragmentCreated
    | FragmentDeleted
    | Enqueued
    | Copied
    | Removed
    | Altered
    | AlteredTogether
    | Activated
    | ActivatedTogether
    | SessionStateSet
    | DuplicatesSeen
    | DuplicatesForgotten
)


def contents_size(changes: Iterable[Change]) -> int:
    """Of all new rows, in bytes."""
    size = 0
    for change in changes:
        if isinstance(change, Enqueued):
            size += sum([len(message.content) for message in change.messages])
        elif isinstance(change, Copied):
            size += change.rows.size_bytes
    return size
