"""Where a durable store keeps its journal and its tables: a folder, or a schema of a database.

    Medium     who may use it, and the journal's segments by number
    Segment    batches of records, appended durably
    Tables     what all checkpointed segments add up to, read in snapshots

Overlay, recovery and checkpoints are the store's own and the same for all media. A medium has to be durable when `append` and
`write_checkpoint` return, and to show the tables and the number of the newest segment in them as of one moment.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from twinbus.clock import Millis
from twinbus.errors import StoreUnavailable
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import FragmentKey
from twinbus.store.damage import CheckedPage, Damage, RowsDamaged
from twinbus.store.room import Space

if TYPE_CHECKING:
    from twinbus.store.layers.located_changes import Row
    from twinbus.store.layers.overlay import Layer
    from twinbus.store.layers.pace import Pace


Body: TypeAlias = bytes | memoryview
"""Records that are appended to a journal, as they are in the memory of whoever asked for it."""


def kept_in_database(is_replicated: bool) -> str:
    """What a store on a database server answers to `kept_in`. `is_replicated`: a commit waits for a synchronous standby."""
    return "postgresql, replicated" if is_replicated else "postgresql, one server"


class Batch(NamedTuple):
    place: int  # where its body begins
    body: bytes


class Segment(Protocol):
    """One part of the journal; batches are appended to the newest, older ones are only read.

    Places count from the beginning of the segment and are above 0.
    """

    number: int
    end: int
    next_sequence: int

    @property
    def body_place(self) -> int:
        """Where the body of the next batch will begin."""
        ...

    def append(self, bodies: Sequence[Body]) -> None:
        """One batch of all of these. Returns once it is durable. If this raises, it may or may not be."""
        ...

    def batches(self) -> Iterator[Batch]:
        """Every whole batch in order, once, when a segment was opened; leaves `end` after the last. Raises StoreDamaged."""
        ...

    def renew_tail(self) -> None:
        """Make certain that what `batches` found is durable, and that nothing follows it."""
        ...

    def contents(self, places: Sequence[tuple[int, int]]) -> Iterable[bytes]:
        """What is at each (place, size), in this order."""
        ...

    def retire(self) -> None:
        """The tables hold its content and nobody reads it any more: its space may be used again."""
        ...

    def close(self) -> None: ...


class Snapshot(Protocol):
    """One state of the tables, seen from one fragment. Ask for rows only if `has_fragment`."""

    position: int  # of the journal: the newest segment that is in the tables
    has_fragment: bool
    slot: int

    def of(self, fragment: FragmentKey) -> "Snapshot":
        """The same state seen from another fragment."""
        ...

    def id(self, number: int) -> int:
        """Of the row with this number, unique in the tables."""
        ...

    def rows_after(
        self, after: int, last: int | None, count_max: int, states: Collection[MessageState], key: str | None
    ) -> "list[tuple[int, Row]]":
        """Up to the number `last`. `key`: of the message session that alone is wanted."""
        ...

    def row(self, number: int) -> "Row | None": ...

    def rows(self, numbers: Sequence[int]) -> "dict[int, Row]":
        """Those of them that exist, by number."""
        ...

    def sums(self, numbers: Sequence[int]) -> Mapping[int, int]:
        """What the rows have as PLACE, by number, of those that exist. Nothing else of a row is looked at: for those who know it."""
        ...

    def contents(self, sums: Mapping[int, int]) -> dict[int, bytes]:
        """The contents of rows, by number; `sums` are what their rows have as PLACE."""
        ...

    def scheduled_after(self, at: Millis, number: int, count_max: int) -> list[tuple[Millis, int]]: ...

    def mortal_after(self, at: Millis, number: int, count_max: int) -> list[tuple[Millis, int]]: ...

    def counts_without(self, hidden: Sequence[int]) -> Iterable[tuple[int, int, int, int]]:
        """(slot, state, count, bytes) of all fragments, without these rows, given by id."""
        ...

    def last_numbers(self) -> dict[FragmentKey, int | None]:
        """Highest number ever used, for every fragment."""
        ...

    def session_pages(self, hidden: Sequence[int]) -> Iterable[Sequence[tuple[str, int, int]]]:
        """(session id of the first message, active count, first number), without these rows, given by number; about a thousand
        at a time."""
        ...

    def state_pages(self) -> Iterable[Sequence[tuple[str, Millis]]]:
        """(session id that the state was set with, when), about a thousand at a time."""
        ...

    def session_state(self, key: str) -> bytes | None: ...

    def duplicates(self) -> dict[str, Millis]: ...


class Tables(Protocol):
    def snapshot(self, fragment: FragmentKey = 0) -> AbstractContextManager[Snapshot]:
        """For one fragment, or without one for what concerns all of them."""
        ...

    def frozen(self, fragment: FragmentKey) -> AbstractContextManager[Snapshot]:
        """As `snapshot`, for work that takes long and lets other snapshots be taken meanwhile."""
        ...

    def write_checkpoint(self, layer: "Layer", pace: "Pace") -> None:
        """Afterwards, the tables hold the layer and the number of its segment. If this raises, they are unchanged.

        Called by the checkpoint's thread, beside everything else.
        """
        ...

    def tidy(self, pace: "Pace", *, is_short: bool) -> None:
        """Give back the space of deleted rows, as far as there is time. Called by the checkpoint's thread. `is_short`: all of it, for
        there is little left."""
        ...

    def damage(self) -> list[Damage]:
        """See `MessagingStore`."""
        ...

    def check(self, after: int) -> CheckedPage:
        """See `MessagingStore`; damaged rows are named in the page, and nothing is changed."""
        ...

    def set_aside(self, damaged: RowsDamaged) -> str:
        """Move these rows out of the way, while no checkpoint runs. What was done, in a sentence. Raises StoreDamaged."""
        ...

    def close(self) -> None: ...


class Medium(Protocol):
    """One store's place. `str` of it is what people call it."""

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever kept here, so that a journal without segments is no loss."""
        ...

    def hold(self) -> None:
        """Become the only user. Raises StoreInUse, StoreGone or StoreUnavailable."""
        ...

    def tables(self, cache_bytes: int) -> Tables:
        """Open them, created or upgraded if need be, and checked. Once, while held."""
        ...

    @property
    def epoch(self) -> int:
        """See `MessagingStore`. Asked while held."""
        ...

    def kept_in(self) -> str:
        """See `MessagingStore`. Asked while held."""
        ...

    def are_numbers_lost(self) -> bool:
        """Whether sequence numbers may have been given out that are neither in the journal nor in the tables any more. Asked while held,
        before `keep`."""
        ...

    def keep(self) -> None:
        """Everything was found whole: from now on a store must be found here."""
        ...

    @property
    def last_commit(self) -> int:
        """The sequence of the last commit that is known to have been acknowledged, or 0. Asked while held, before the first commit."""
        ...

    def committed(self, sequence: int) -> None:
        """After a commit: raises StoreUnavailable if what was written cannot be found any more."""
        ...

    def segment_numbers(self) -> list[int]: ...

    def segment_name(self, number: int) -> str: ...

    def create_segment(self, number: int, first_sequence: int) -> Segment: ...

    def open_segment(self, number: int) -> Segment | None:
        """None if its creation was interrupted and it never took a batch."""
        ...

    def delete_segment(self, number: int) -> None:
        """One that the tables hold, left over from a crash."""
        ...

    def space(self) -> Space:
        """What is left of the disk. Asked often."""
        ...

    def give_back(self) -> None:
        """What is kept for speed only: there is no space left."""
        ...

    def is_lack_of_space(self, error: BaseException) -> bool: ...

    def failure(self, error: Exception) -> StoreUnavailable | None:
        """An error of the system or of the engine in our words; None for what is none of theirs."""
        ...

    def release(self) -> None:
        """Stop being the user. Fine to call at any time."""
        ...
