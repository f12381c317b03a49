"""One messaging store into another: whatever they are kept in, everything in the one ends up in the other.

Rows go over in the order of their numbers, a page in each commit. So the highest number that the target knows of a fragment says
how far an interrupted transfer came, and the next one goes on from there. It says so only while the source stays as it was:
whoever goes on compares `DurableStore.next_sequence`, and otherwise begins again (`clear`).
"""

from collections.abc import Callable, Iterable, Iterator

from twinbus.errors import StoreDamaged
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.changes import (
    Activated,
    Change,
    DuplicatesSeen,
    Enqueued,
    FragmentCreated,
    FragmentDeleted,
    FragmentKey,
    SessionStateSet,
    fragment_parts,
)
from twinbus.store.messaging_store import FragmentSummary, MessagingStore

ROWS_MAX = 2_000
BYTES_MAX = 4 << 20
KEYS_MAX = 10_000
FRAGMENTS_MAX = 500
NUMBERS_SKIPPED = 1_000_000
"""More than a fragment can have used since a moment to which its store is taken back."""


def transfer(source: MessagingStore, target: MessagingStore, told: Callable[[int], None] = lambda _: None) -> None:
    """Into a target that is new, or that an earlier transfer left. `told` is called with the number of rows in each commit."""
    there = {summary.fragment: summary.last_sequence_number for summary in target.summaries()}
    for summary in sorted(source.summaries(), key=lambda each: each.fragment):
        fragment = summary.fragment
        if fragment not in there:
            target.commit([FragmentCreated(fragment)])
        last = there.get(fragment, 0)
        while messages := source.scan(fragment, last, ROWS_MAX, BYTES_MAX, tuple(MessageState)):
            target.commit([Enqueued(fragment, messages)])
            last = messages[-1].sequence_number
            told(len(messages))
        if last < summary.last_sequence_number:
            target.commit([_used(fragment, summary.last_sequence_number)])
        for change in _other_facts(source, fragment):
            target.commit([change])


def _other_facts(source: MessagingStore, fragment: FragmentKey) -> Iterator[Change]:
    """Which may be told twice."""
    for session in source.sessions(fragment):
        if session.state_updated_at is not None:
            state = source.session_state(fragment, session.session_id)
            yield SessionStateSet(fragment, session.session_id, state, session.state_updated_at)
    keys = source.duplicates(fragment)
    for first in range(0, len(keys), KEYS_MAX):
        yield DuplicatesSeen(fragment, keys[first : first + KEYS_MAX])


def require_same(source: MessagingStore, target: MessagingStore, name: str) -> list[FragmentSummary]:
    """Counts and bytes of every fragment, its sessions and its history of duplicates. Raises StoreDamaged."""
    wanted, found = ({each.fragment: each for each in store.summaries()} for store in (source, target))
    for fragment in wanted.keys() | found.keys():
        if (expected := wanted.get(fragment)) != (there := found.get(fragment)):
            raise StoreDamaged(f"{name}: fragment {fragment} is {there}, and has to be {expected}.")
        if source.sessions(fragment) != target.sessions(fragment):
            raise StoreDamaged(f"{name}: the sessions of fragment {fragment} are not the same.")
        if sorted(source.duplicates(fragment)) != sorted(target.duplicates(fragment)):
            raise StoreDamaged(f"{name}: the duplicate history of fragment {fragment} is not the same.")
    return list(wanted.values())


def clear(store: MessagingStore) -> None:
    fragments = [summary.fragment for summary in store.summaries()]
    for first in range(0, len(fragments), FRAGMENTS_MAX):
        store.commit([FragmentDeleted(fragment) for fragment in fragments[first : first + FRAGMENTS_MAX]])


def create_missing(store: MessagingStore, fragments: Iterable[FragmentKey]) -> None:
    there = {summary.fragment for summary in store.summaries()}
    changes: list[Change] = [FragmentCreated(fragment) for fragment in fragments if fragment not in there]
    for first in range(0, len(changes), FRAGMENTS_MAX):
        store.commit(changes[first : first + FRAGMENTS_MAX])


def skip_numbers(store: MessagingStore) -> int:
    """Let no fragment use its next sequence numbers, which clients may hold. Returns the number of fragments."""
    changes = [
        _used(summary.fragment, max(summary.last_sequence_number, _base(summary.fragment)) + NUMBERS_SKIPPED)
        for summary in store.summaries()
    ]
    for first in range(0, len(changes), FRAGMENTS_MAX):
        store.commit(changes[first : first + FRAGMENTS_MAX])
    return len(changes)


def _used(fragment: FragmentKey, number: int) -> Change:
    """A number counts as used when a row gets it, even if that row is missing, as the one with no number is."""
    return Activated(fragment, _base(fragment), number, 0, 0)


def _base(fragment: FragmentKey) -> int:
    return fragment_parts(fragment).index << SEQUENCE_BITS
