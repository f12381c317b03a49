"""Changing many messages of a queue without receiving them: purge, claim, delete what was claimed, un-defer.

    next fragment > read some rows > leave out what somebody holds > one commit > read some more

Steps are small, whatever the depth of the queue: none of them stalls a store or fills memory. What is locked, part of
a message session that somebody holds, or being changed is left alone. A fragment that is ill is left out; only a call
that changed nothing says so, since what was done has to be told.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.withdrawal import withdraw
from twinbus.broker.operations.bulk_pages import ByNumber, Numbers, Pages, Scan
from twinbus.broker.replies import Reply
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, FragmentUnavailable, MessagingError
from twinbus.model import wire_names
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import ACTIVE_ONLY, ANY_STATE, DEFERRED_ONLY, Rows

STEP_COUNT_MAX = 500
CALL_COUNT_MAX = 10_000
"""Messages that one call changes at most."""
NUMBERS_MAX = 100_000
"""Sequence numbers that one call names at most."""

Range: TypeAlias = tuple[int, int]
"""First and last sequence number, both included."""
Alter: TypeAlias = Callable[[Decision, Sequence[StoredMessage]], None]
IsWanted: TypeAlias = Callable[[StoredMessage], bool]


# What to do with whom


def purge(
    queue: MessageQueue,
    count_max: int,
    before: Millis,
    now: Millis,
    reply: Reply[Numbers],
    states: Collection[MessageState] = ANY_STATE,
) -> None:
    """Remove the first messages enqueued up to a time; replies their numbers, fewer than `count_max` if it was all."""
    pages = [Scan(fragment, states) for fragment in queue.fragments]
    _start(queue, pages, _remove, count_max, now, reply, lambda row: row.enqueued_at <= before)


def claim(
    queue: MessageQueue,
    count_max: int,
    owner: str | None,
    fragment_index: int | None,
    now: Millis,
    reply: Reply[Numbers],
    last_number: int | None = None,
) -> None:
    """Set the first messages aside as if they were received and deferred, and reply their numbers, those of a fragment
    rising. The owner, where there is one, is an annotation of the messages from then on. With `last_number`, of one
    fragment, what came later stays."""
    try:
        queue.settings.check_can_receive()
        queue.expect_claims()
        fragments = _chosen(queue.fragments, fragment_index)
    except MessagingError as error:
        reply(error)
        return

    def defer(decision: Decision, rows: Sequence[StoredMessage]) -> None:
        annotations = None if owner is None else {wire_names.CLAIMED_BY: owner}
        for row in rows:
            decision.alter(row, MessageState.DEFERRED, annotations=annotations)

    def is_wanted(row: StoredMessage) -> bool:
        return row.expires_at > now and (last_number is None or row.sequence_number <= last_number)

    pages = [Scan(fragment, ACTIVE_ONLY, _before_first_free(fragment), last_number) for fragment in fragments]
    _start(queue, pages, defer, count_max, now, reply, is_wanted)


def delete_deferred(queue: MessageQueue, ranges: Iterable[Range], now: Millis, reply: Reply[Numbers]) -> None:
    """Remove the deferred messages with these numbers. Those that are gone already are no error: it may be repeated.

    Who holds a message session does not keep what somebody else has claimed of it.
    """
    _start_numbers(queue, ranges, _remove, now, reply, spares_held_sessions=False)


def undefer(queue: MessageQueue, ranges: Iterable[Range], now: Millis, reply: Reply[Numbers]) -> None:
    """Make the deferred messages with these numbers active again, each in its old place."""
    _start_numbers(queue, ranges, _activate, now, reply)


def undefer_all(queue: MessageQueue, count_max: int, now: Millis, reply: Reply[Numbers]) -> None:
    pages = [Scan(fragment, DEFERRED_ONLY) for fragment in queue.fragments]
    _start(queue, pages, _activate, count_max, now, reply, _any)


def ranges_of(numbers: Iterable[int]) -> list[Range]:
    """The runs that rising numbers make up."""
    ranges: list[Range] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _remove(decision: Decision, rows: Sequence[StoredMessage]) -> None:
    decision.remove(rows)


def _activate(decision: Decision, rows: Sequence[StoredMessage]) -> None:
    for row in rows:
        decision.alter(row, MessageState.ACTIVE)
        decision.free(row)


def _before_first_free(fragment: Fragment) -> int:
    """A number below those of all active messages that nobody holds: what was claimed before lies there too, and to
    read past it costs more with every claim."""
    if fragment.sessions is not None:
        return 0
    ready = fragment.lane.ready
    return ready[0].sequence_number - 1 if ready else fragment.lane.tail


def _any(_: StoredMessage) -> bool:
    return True


def _is_deferred(row: StoredMessage) -> bool:
    return row.state is MessageState.DEFERRED


def _chosen(fragments: Sequence[Fragment], index: int | None) -> Sequence[Fragment]:
    if index is None:
        return fragments
    if not 0 <= index < len(fragments):
        raise ArgumentError(f"There is no fragment {index}: the entity has {len(fragments)}, counted from 0.")
    return [fragments[index]]


def _start_numbers(
    queue: MessageQueue,
    ranges: Iterable[Range],
    alter: Alter,
    now: Millis,
    reply: Reply[Numbers],
    *,
    spares_held_sessions: bool = True,
) -> None:
    by_fragment: dict[int, set[int]] = {}
    left = NUMBERS_MAX
    for first, last in ranges:
        left -= last - first + 1
        if last < first or left < 0:
            text = (
                f"Name at most {NUMBERS_MAX} sequence numbers at a time, in ranges whose last is not below the first."
            )
            reply(ArgumentError(text))
            return
        by_fragment.setdefault(first >> SEQUENCE_BITS, set()).update(range(first, last + 1))
    pages = [
        ByNumber(fragment, sorted(by_fragment[fragment.index]))
        for fragment in queue.fragments
        if fragment.index in by_fragment
    ]
    _start(queue, pages, alter, NUMBERS_MAX, now, reply, _is_deferred, spares_held_sessions=spares_held_sessions)


# How


def _start(
    queue: MessageQueue,
    pages: Sequence[Pages],
    alter: Alter,
    count_max: int,
    now: Millis,
    reply: Reply[Numbers],
    is_wanted: IsWanted,
    *,
    spares_held_sessions: bool = True,
) -> None:
    queue.settings.last_used_at = now
    _Bulk(list(pages), alter, count_max, reply, is_wanted, spares_held_sessions).step()


@dataclass(slots=True)
class _Bulk:
    """One call under way."""

    pages: list[Pages]
    alter: Alter
    count_max: int
    reply: Reply[Numbers]
    is_wanted: IsWanted
    spares_held_sessions: bool
    done: Numbers = field(default_factory=list)
    error: FragmentUnavailable | None = None

    def step(self) -> None:
        while self.pages and len(self.done) < self.count_max:
            read = self.pages[0].next_read(min(STEP_COUNT_MAX, self.count_max - len(self.done)))
            if read is not None:
                self.pages[0].fragment.broker.query(read, self._read)
                return
            self.pages.pop(0)
        self.reply(self.error if self.error is not None and not self.done else self.done)

    def _read(self, answer: Rows | FragmentUnavailable) -> None:
        if isinstance(answer, FragmentUnavailable):
            self._skip(answer)
            return
        pages = self.pages[0]
        pages.found(answer)
        rows = self._free(pages.fragment, answer)
        if not rows:
            self.step()
            return
        lanes = withdraw(pages.fragment, rows)
        decision = Decision(pages.fragment)
        self.alter(decision, rows)
        numbers = [row.sequence_number for row in rows]
        decision.commit(lambda: self._changed(numbers), self._skip)
        for lane in lanes:
            pages.fragment.announce(lane)

    def _free(self, fragment: Fragment, rows: Rows) -> Rows:
        taken, now = fragment.out_of_lane(), fragment.broker.clock.now()
        sessions = fragment.sessions if self.spares_held_sessions else None
        return [
            row
            for row in rows
            if row.sequence_number not in taken
            and self.is_wanted(row)
            and not (sessions is not None and sessions.is_held(row, now))
        ]

    def _changed(self, numbers: Numbers) -> None:
        self.done += numbers
        self.step()

    def _skip(self, error: FragmentUnavailable) -> None:
        self.error = error
        self.pages.pop(0)
        self.step()
