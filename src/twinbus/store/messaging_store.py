"""The protocol that every messaging store implements: durable memory of some fragments.

A dozen methods, and PostgreSQL must be able to keep each promise. `tests/contract` proves them for every
implementation.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from twinbus.clock import Millis
from twinbus.model.session_key import session_key
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import Change, FragmentKey, StoredMessage
from twinbus.store.damage import CheckedPage, Damage
from twinbus.store.room import RoomLeft


@dataclass(frozen=True, slots=True)
class FragmentSummary:
    """What a message broker has to know about a fragment before it can serve it."""

    fragment: FragmentKey
    last_sequence_number: int  # highest ever used, even if the row is gone; 0 for a new fragment
    active_count: int
    deferred_count: int
    scheduled_count: int
    size_bytes: int  # of the content of all rows


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A message session that has active messages, a state, or both."""

    session_id: str  # of its first active message; without messages, the one that its state was set with
    active_count: int
    first_sequence_number: int  # of its active messages; 0 if there is none
    state_updated_at: Millis | None  # None: no state was ever set


class RowFacts(NamedTuple):
    """Of some rows, in columns: whoever asks for thousands wants a few of them, and an object for each row costs more than all
    the rest."""

    numbers: Sequence[int] = ()
    states: Sequence[int] = ()
    due_at: Sequence[Millis] = ()
    expires_at: Sequence[Millis] = ()
    delivery_counts: Sequence[int] = ()
    session_ids: Sequence[str | None] = ()
    sizes: Sequence[int] = ()  # of the contents


def by_name(session: SessionSummary) -> str:
    return session.session_id


def by_load(session: SessionSummary) -> tuple[int, str]:
    """Those with most active messages first, then by name."""
    return -session.active_count, session.session_id


class SessionList(NamedTuple):
    """The message sessions of a fragment, for those who look at them."""

    by_name: Sequence[SessionSummary]
    with_state: Sequence[SessionSummary]  # by name
    busiest: Sequence[SessionSummary]  # those with active messages (`by_load`)
    active_keys: Collection[str]  # of those
    active_count: int  # messages

    @classmethod
    def of(cls, sessions: Sequence[SessionSummary]) -> "SessionList":
        names = sorted(sessions, key=by_name)
        busiest = sorted([each for each in sessions if each.active_count], key=by_load)
        return cls(
            names,
            [each for each in names if each.state_updated_at is not None],
            busiest,
            {session_key(each.session_id) for each in busiest},
            sum([each.active_count for each in busiest]),
        )


class MessagingStore(Protocol):
    """Durable memory of some fragments, used by one thread at a time.

    Each call is one transaction: it is applied whole, or it raises StoreUnavailable, and then
    it may or may not have been applied (the reply to a COMMIT can get lost). After a raise the
    store must be closed and reopened before it is used again. No method reads a clock or
    generates an id: given the same calls, every store ends up with the same rows.
    """

    def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes in order; on return they survive kill -9 and power loss."""
        ...

    def catch_up(self) -> bool:
        """Do work that commits deferred, for some milliseconds; whether there is more. Every read does all of it first if needed, so
        this is for a moment in which nobody waits."""
        ...

    def rest(self) -> bool:
        """Nobody has asked for anything for a while: a moment for work that would delay others. Whether another one is wanted, if nobody
        asks for anything until then: something has been begun."""
        ...

    def is_pressed(self) -> bool:
        """More is committed than reaches the place where it stays. It is taken still, but if it goes on like that, commits
        will have to wait."""
        ...

    def room_left(self) -> RoomLeft:
        """Now. While there is little or none, `rest` makes some."""
        ...

    def kept_in(self) -> str:
        """Where what is committed is, for people: the medium, and whether another machine has it too."""
        ...

    def epoch(self) -> int:
        """How often it has changed hands, and higher for each owner than for those before; 0 where a lock decides who owns it."""
        ...

    def damage(self) -> list[Damage]:
        """What was found damaged, was set aside and was not accepted yet."""
        ...

    def check(self, after: int) -> CheckedPage:
        """Compare some rows that are at rest, with their contents, with their checksums: from this place on, -1 for the
        first ones. Damaged ones are set aside, and then this raises."""
        ...

    def summaries(self) -> list[FragmentSummary]:
        """One for every fragment created and not deleted."""
        ...

    def scan(
        self,
        fragment: FragmentKey,
        after: int,
        count_max: int,
        bytes_max: int,
        states: Collection[MessageState],
        session_id: str | None = None,
        last: int | None = None,
    ) -> list[StoredMessage]:
        """Rows in those states with a number above `after`, and up to `last` if there is one; lowest first.

        Ends at `count_max` rows or before the content passes `bytes_max`, but never before the first
        row. With a session id only the rows of that message session (see `twinbus.model.session_key`).
        """
        ...

    def read(
        self, fragment: FragmentKey, sequence_numbers: Sequence[int], bytes_max: int | None = None
    ) -> list[StoredMessage]:
        """The rows with these numbers that exist, in the order asked for. They end before their content passes `bytes_max`,
        but never before the first row."""
        ...

    def facts(self, fragment: FragmentKey, sequence_numbers: Sequence[int]) -> RowFacts:
        """Of the rows with these numbers that exist, in the order asked for, without their content."""
        ...

    def facts_after(
        self,
        fragment: FragmentKey,
        after: int,
        count_max: int,
        states: Collection[MessageState],
        last: int | None = None,
    ) -> RowFacts:
        """As `scan`, without their content and however large that is."""
        ...

    def due(self, fragment: FragmentKey, now: Millis, count_max: int) -> tuple[list[int], Millis]:
        """Numbers of scheduled rows due at or before `now`, by due time; and when the next after those is due (NEVER if none)."""
        ...

    def expired(self, fragment: FragmentKey, now: Millis, count_max: int) -> tuple[list[int], Millis]:
        """Numbers of active rows that expired at or before `now`, by expiry; and when the next after those expires.

        Scheduled and deferred rows do not expire here (contract A14).
        """
        ...

    def sessions(self, fragment: FragmentKey) -> list[SessionSummary]:
        """By the number of the first active message; then those that have only a state, by name."""
        ...

    def prepare_session_list(self, fragment: FragmentKey) -> bool:
        """A step towards `session_list`, which takes long if there are very many; True if there are no more steps."""
        ...

    def session_list(self, fragment: FragmentKey) -> SessionList:
        """Of very many it may be the list of some seconds ago."""
        ...

    def session_state(self, fragment: FragmentKey, session_id: str) -> bytes | None: ...

    def duplicates(self, fragment: FragmentKey) -> list[tuple[str, Millis]]:
        """The history of duplicate detection, oldest end first."""
        ...

    def close(self) -> None:
        """Release files and locks. Closing twice is fine."""
        ...
