"""Changing many messages of a queue without receiving them: purge, claim, delete what was claimed, un-defer.

    next fragment > read some rows > skip what somebody holds > one commit > read some more

Steps are small, whatever the depth of the queue: none of them stalls a store or fills memory. What is locked, part of
a message session that somebody holds, or being changed is left alone. An unavailable fragment is skipped; only
a command that changed nothing fails for it, since the caller has to learn what was done.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from twinbus.broker.commands import NUMBERS_MAX, Claim, DeleteDeferred, Purge, Range, Undefer, UndeferAll
from twinbus.broker.consumer import SessionLock
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.operations.asked_queue import AskedQueue
from twinbus.broker.operations.steps import Steps, commit, read_one, read_timed
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, FragmentUnavailable
from twinbus.model import wire_names
from twinbus.model.claim_owner import owner_number
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import (
    ACTIVE_ONLY,
    DEFERRED_ONLY,
    ActiveUnread,
    DeferredUnread,
    ReadNumbers,
    Rows,
    Scan,
    UnreadRows,
)

STEP_COUNT_MAX = 500
STEP_BYTES_MAX = 1024 * 1024
UNREAD_COUNT_MAX = 1_000
"""Of a step that reads no content."""

Numbers: TypeAlias = list[int]
Alter: TypeAlias = Callable[[Decision, Sequence[StoredMessage]], None]
IsWanted: TypeAlias = Callable[[StoredMessage], bool]


# What to do with which messages


def purge(queue: AskedQueue, command: Purge, now: Millis) -> Steps[Numbers]:
    def is_wanted(row: StoredMessage) -> bool:
        return row.enqueued_at <= command.enqueued_until

    session_id, fragments, holder = command.session_id, queue.own_fragments, None
    if session_id is not None and queue.requires_session:
        fragments = [queue.sessions().place(session_id)]
        if command.is_by_holder:
            holder = queue.sessions().sessions_of(fragments[0]).lock_of(session_id, now)
    change = _Change(_remove, is_wanted, command.count_max, holder=holder)
    parts = (change.scan(fragment, command.states, session_id=session_id) for fragment in fragments)
    return (yield from over(parts, change.done))


def claim(queue: AskedQueue, command: Claim, now: Millis) -> Steps[Numbers]:
    queue.settings.check_can_receive()
    last_number, owner = command.last_number, command.owner
    number = 0 if owner is None else owner_number(owner)
    fragments = _chosen(queue, command.fragment_index)
    if number is not None and not queue.requires_session:
        unread = _UnreadChange(command.count_max)
        claims = (unread.claim(fragment, last_number, number, now) for fragment in fragments)
        return (yield from over(claims, unread.done))
    queue.expect_claims()
    annotations = None if owner is None else {wire_names.CLAIMED_BY: owner}

    def defer(decision: Decision, rows: Sequence[StoredMessage]) -> None:
        for row in rows:
            decision.alter(row, MessageState.DEFERRED, annotations=annotations)

    def is_wanted(row: StoredMessage) -> bool:
        return row.expires_at > now and (last_number is None or row.sequence_number <= last_number)

    change = _Change(defer, is_wanted, command.count_max)
    parts = (change.scan(fragment, ACTIVE_ONLY, before_first_free(fragment), last_number) for fragment in fragments)
    return (yield from over(parts, change.done))


def delete_deferred(queue: AskedQueue, command: DeleteDeferred, now: Millis) -> Steps[Numbers]:
    """Holding a message session does not protect messages of it that somebody else has claimed."""
    change = _UnreadChange(NUMBERS_MAX)
    parts = (change.remove(*part) for part in _by_fragment(queue.fragments, command.ranges))
    return (yield from over(parts, change.done))


def undefer(queue: AskedQueue, command: Undefer, now: Millis) -> Steps[Numbers]:
    change = _Change(_activate, _is_deferred, NUMBERS_MAX)
    parts = (change.read(*part) for part in _by_fragment(queue.fragments, command.ranges))
    return (yield from over(parts, change.done))


def undefer_all(queue: AskedQueue, command: UndeferAll, now: Millis) -> Steps[Numbers]:
    change = _Change(_activate, _is_deferred, command.count_max)
    parts = (change.scan(fragment, DEFERRED_ONLY) for fragment in queue.own_fragments)
    return (yield from over(parts, change.done))


def _remove(decision: Decision, rows: Sequence[StoredMessage]) -> None:
    decision.remove(rows)


def _activate(decision: Decision, rows: Sequence[StoredMessage]) -> None:
    for row in rows:
        decision.alter(row, MessageState.ACTIVE)
        decision.free(row)


def _is_deferred(row: StoredMessage) -> bool:
    return row.state is MessageState.DEFERRED


def before_first_free(fragment: Fragment) -> int:
    """A number below those of all active messages that nobody holds: what was claimed before lies there too, and to
    read past it costs more with every claim."""
    if fragment.sessions is not None:
        return 0
    ready = fragment.lane.ready
    return ready[0].sequence_number - 1 if ready else fragment.lane.tail


def _chosen(queue: AskedQueue, index: int | None) -> Sequence[Fragment]:
    fragments = queue.fragments
    if index is None:
        return queue.own_fragments
    if not 0 <= index < len(fragments):
        raise ArgumentError(f"There is no fragment {index}: the entity has {len(fragments)}, counted from 0.")
    return [fragments[index]]


def _by_fragment(fragments: Sequence[Fragment], ranges: Sequence[Range]) -> list[tuple[Fragment, Numbers]]:
    numbers: dict[int, set[int]] = {}
    left = NUMBERS_MAX
    for first, last in ranges:
        left -= last - first + 1
        if last < first or left < 0:
            raise ArgumentError(
                f"Name at most {NUMBERS_MAX} sequence numbers at a time, in ranges whose last is not below the first."
            )
        numbers.setdefault(first >> SEQUENCE_BITS, set()).update(range(first, last + 1))
    return [(fragment, sorted(numbers[fragment.index])) for fragment in fragments if fragment.index in numbers]


# How


def over(parts: Iterable[Steps[None]], done: Numbers) -> Steps[Numbers]:
    """One part after the other, each begun when its turn comes; each adds to what is done."""
    lost: FragmentUnavailable | None = None
    for part in parts:
        try:
            yield from part
        except FragmentUnavailable as error:
            lost = error
    if lost is not None and not done:
        raise lost
    return done


@dataclass(slots=True)
class _UnreadChange:
    """As `_Change`, of messages whose content stays in the store: claims of a million and their ends."""

    count_max: int
    done: Numbers = field(default_factory=list)

    def claim(self, fragment: Fragment, last: int | None, owner: int, now: Millis) -> Steps[None]:
        after: int | None = before_first_free(fragment)
        while self._room() and after is not None and (last is None or after < last):
            scan = ActiveUnread(fragment.key, after, last, self._room(), now)
            found, now = yield from read_timed(fragment, scan)
            free = _free_unread(fragment, found)
            if free.numbers:
                fragment.lane.remove_all(free.numbers, after, free.numbers[-1])
                decision = Decision(fragment)
                decision.claim_unread(free, owner)
                yield from commit(decision, [fragment.lane])
                self.done += free.numbers
            after = found.last_seen

    def remove(self, fragment: Fragment, numbers: Numbers) -> Steps[None]:
        for start in range(0, len(numbers), UNREAD_COUNT_MAX):
            some = numbers[start : start + UNREAD_COUNT_MAX]
            free = _free_unread(fragment, (yield from read_one(fragment, DeferredUnread(fragment.key, some))))
            if free.numbers:
                decision = Decision(fragment)
                decision.remove_unread(free)
                yield from commit(decision)
                self.done += free.numbers

    def _room(self) -> int:
        return min(UNREAD_COUNT_MAX, self.count_max - len(self.done))


def _free_unread(fragment: Fragment, rows: UnreadRows) -> UnreadRows:
    """Without what was locked or changed after the rows were asked for."""
    taken = fragment.out_of_lane_by_number(rows.numbers)
    if not taken.intersection(rows.numbers):
        return rows
    kept = [(number, size) for number, size in zip(rows.numbers, rows.sizes, strict=True) if number not in taken]
    return UnreadRows([number for number, _ in kept], [size for _, size in kept], rows.last_seen)


@dataclass(slots=True)
class _Change:
    """One command under way, and the numbers of the messages that it has changed."""

    alter: Alter
    is_wanted: IsWanted
    count_max: int
    spares_held_sessions: bool = True
    holder: SessionLock | None = None  # the hold of whoever asks, which spares nothing for as long as it lasts
    done: Numbers = field(default_factory=list)

    def scan(
        self,
        fragment: Fragment,
        states: Collection[MessageState],
        after: int = 0,
        last: int | None = None,
        session_id: str | None = None,
    ) -> Steps[None]:
        """Rows of a fragment by their states, up to number `last`; with a session id, of that session alone."""
        while self._room() and (last is None or after < last):
            scan = Scan(fragment.key, after, self._room(), STEP_BYTES_MAX, states, session_id)
            rows, now = yield from read_timed(fragment, scan)
            if not rows:
                return
            after = rows[-1].sequence_number
            yield from self._change(fragment, rows, now)

    def read(self, fragment: Fragment, numbers: Numbers) -> Steps[None]:
        """Rows of a fragment by their numbers, in order. Those that are not there count as done."""
        done = 0
        while done < len(numbers):
            some = numbers[done : done + STEP_COUNT_MAX]
            rows, now = yield from read_timed(fragment, ReadNumbers(fragment.key, some, STEP_BYTES_MAX))
            # Large ones come in several answers; behind the last one nothing is there.
            done = bisect_right(numbers, rows[-1].sequence_number) if rows else done + len(some)
            yield from self._change(fragment, rows, now)

    def _room(self) -> int:
        return min(STEP_COUNT_MAX, self.count_max - len(self.done))

    def _change(self, fragment: Fragment, rows: Rows, now: Millis) -> Steps[None]:
        free = self._free(fragment, rows, now)
        if free:
            withdrawn = fragment.withdraw(free)
            decision = Decision(fragment)
            self.alter(decision, free)
            numbers = [row.sequence_number for row in free]
            yield from commit(decision, withdrawn)
            self.done += numbers

    def _free(self, fragment: Fragment, rows: Rows, now: Millis) -> Rows:
        """Without what was locked or changed after the rows were asked for."""
        taken = fragment.out_of_lane(rows)
        is_by_holder = self.holder is not None and self.holder.is_held and self.holder.locked_until > now
        sessions = fragment.sessions if self.spares_held_sessions and not is_by_holder else None
        return [
            row
            for row in rows
            if row.sequence_number not in taken
            and self.is_wanted(row)
            and not (sessions is not None and sessions.is_held(row, now))
        ]
