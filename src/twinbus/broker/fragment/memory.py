"""What a store remembers of a fragment, as far as its message broker has to know it before it can serve it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twinbus.clock import NEVER, Millis
from twinbus.store.changes import FragmentKey
from twinbus.store.messaging_store import FragmentSummary, MessagingStore, SessionSummary


@dataclass(frozen=True, slots=True)
class FragmentMemory:
    summary: FragmentSummary
    next_due: Millis
    next_expiry: Millis
    sessions: Sequence[SessionSummary]
    duplicates: Sequence[tuple[str, Millis]]


def no_memory(key: FragmentKey) -> FragmentMemory:
    """Of a fragment that is new."""
    return FragmentMemory(FragmentSummary(key, 0, 0, 0, 0, 0), NEVER, NEVER, (), ())


class MemoryWanted(NamedTuple):
    """What its message broker asks of a store about a fragment."""

    key: FragmentKey
    has_sessions: bool
    has_duplicates: bool


def read_memories(wanted: Sequence[MemoryWanted], store: MessagingStore) -> list[FragmentMemory | None]:
    """In the same order; None for a fragment that the store does not know."""
    summaries = {summary.fragment: summary for summary in store.summaries()}
    return [_read_memory(store, summaries[one.key], one) if one.key in summaries else None for one in wanted]


def _read_memory(store: MessagingStore, summary: FragmentSummary, wanted: MemoryWanted) -> FragmentMemory:
    key, has_sessions, has_duplicates = wanted
    # Before the beginning of time nothing is due: what comes back is when the first one will be.
    return FragmentMemory(
        summary,
        next_due=store.due(key, -1, 1)[1] if summary.scheduled_count else NEVER,
        next_expiry=store.expired(key, -1, 1)[1] if summary.active_count else NEVER,
        sessions=store.sessions(key) if has_sessions else (),
        duplicates=store.duplicates(key) if has_duplicates else (),
    )
