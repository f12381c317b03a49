"""Looking at messages without taking them (contract A12)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

from twinbus.broker.commands import Peek, PeekMerged, PeekPacked, PeekRange, RangePage
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import check_any_available
from twinbus.broker.operations.asked_queue import AskedQueue
from twinbus.broker.operations.steps import Steps, read_each, read_one
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, FragmentUnavailable
from twinbus.model.message_limits import PEEK_COUNT_MAX, RANGE_COUNT_MAX
from twinbus.model.rules.compiled import compile_test
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import (
    FirstUnexpired,
    PackedRows,
    PackedScan,
    Rows,
    Scan,
    Unexpired,
    hide_hops,
    matching,
    unexpired,
)

PEEK_BYTES_MAX = 256 * 1024
RANGE_BYTES_MAX = 1024 * 1024
SCANS_MAX = 20
"""Reads of one request whose filter finds nothing: an answer without messages is better than none in time."""


def peek(queue: AskedQueue, command: Peek, now: Millis) -> Steps[Rows]:
    """The sequence of all numbers is fragment after fragment, so a reader that continues after the last number it saw comes
    past every message. Of several fragments those that are not available are skipped; if none is, the command fails."""
    number, session_id = command.from_number, command.session_id
    if session_id is not None and queue.requires_session:
        return (yield from _page(queue.sessions().place(session_id), command, number, now))
    if len(queue.fragments) == 1:
        return (yield from _page(queue.fragments[0], command, number, now))
    for fragment in queue.fragments[max(0, number) >> SEQUENCE_BITS :]:
        if fragment.is_available:
            with suppress(FragmentUnavailable):
                rows = yield from _page(fragment, command, number, now)
                if rows:
                    return rows
        number = 0
    check_any_available(queue.fragments)
    return []


def _page(fragment: Fragment, command: Peek, number: int, now: Millis) -> Steps[Rows]:
    """Empty if there is nothing in the fragment from this number on."""
    count_max = min(command.count_max, PEEK_COUNT_MAX)
    while True:
        scan = Scan(fragment.key, number - 1, count_max, PEEK_BYTES_MAX, session_id=command.session_id)
        rows = yield from read_one(fragment, scan)
        shown = unexpired(rows, now)
        if shown or not rows:
            return hide_hops(shown)
        number = rows[-1].sequence_number + 1


def peek_merged(queue: AskedQueue, command: PeekMerged, now: Millis) -> Steps[Rows]:
    """A reader continues after the last number it saw of each fragment, and so passes every message."""
    check_any_available(queue.fragments)
    count_max = min(command.count_max, PEEK_COUNT_MAX)
    answers = yield from read_each(
        [
            (
                fragment,
                FirstUnexpired(fragment.key, command.positions.get(fragment.index, 0), count_max, PEEK_BYTES_MAX, now),
            )
            for fragment in queue.fragments
            if fragment.is_available
        ]
    )
    check_any_available(queue.fragments)
    return hide_hops(_merge([answer for answer in answers if isinstance(answer, Unexpired)], count_max))


def _merge(runs: Sequence[Unexpired], count_max: int) -> Rows:
    """The oldest first, those of a fragment by number. Ends where a fragment has more that is not here, for that might
    be next; but never before the first."""
    page: Rows = []
    size_bytes = 0
    heads = [(iter(rows), has_more) for rows, has_more in runs]
    waiting: list[tuple[StoredMessage, int]] = []
    for place, (rows, _) in enumerate(heads):
        waiting += [(row, place) for row in [next(rows, None)] if row is not None]
    while waiting and len(page) < count_max:
        row, place = min(waiting, key=lambda head: (head[0].enqueued_at, head[0].sequence_number))
        size_bytes += len(row.content)
        if size_bytes > PEEK_BYTES_MAX and page:
            break
        page.append(row)
        waiting.remove((row, place))
        rows, has_more = heads[place]
        following = next(rows, None)
        if following is not None:
            waiting.append((following, place))
        elif has_more:
            break
    return page


def peek_range(queue: AskedQueue, command: PeekRange, now: Millis) -> Steps[RangePage]:
    """For readers of thousands of messages. A page says whether the range has more: readers of different ranges go on
    side by side, and none of them asks once too often."""
    first, last = command.first, command.last
    fragment, count_max = _fragment_of_range(queue, first, last), min(command.count_max, RANGE_COUNT_MAX)
    test = None if command.filter is None else compile_test(command.filter)
    for _ in range(SCANS_MAX) if test is not None else count():
        scan = Scan(
            fragment.key, first - 1, count_max, RANGE_BYTES_MAX, command.states, with_bodies=command.with_bodies
        )
        rows = yield from read_one(fragment, scan)
        first = rows[-1].sequence_number + 1 if rows else last + 1
        shown = hide_hops(unexpired([row for row in rows if row.sequence_number <= last], now))
        if test is not None:
            shown = matching(test, shown)
        if first > last:
            return RangePage(shown, None)
        if shown:
            return RangePage(shown, first)
    return RangePage([], first)


def peek_packed(queue: AskedQueue, command: PeekPacked, now: Millis) -> Steps[PackedRows]:
    """Rows that nobody has to look at here stay in the store, which encodes them."""
    first, last = command.first, command.last
    fragment, count_max = _fragment_of_range(queue, first, last), min(command.count_max, RANGE_COUNT_MAX)
    if command.filter is not None:
        compile_test(command.filter)  # what is wrong with it is the asker's fault, not the store's
    scan = PackedScan(
        fragment.key,
        first - 1,
        last,
        count_max,
        RANGE_BYTES_MAX,
        now,
        command.states,
        with_bodies=command.with_bodies,
        filter=command.filter,
    )
    for _ in range(SCANS_MAX) if command.filter is not None else count():
        page = yield from read_one(fragment, scan)
        if page.sizes or page.next_number is None:
            break
        scan = replace(scan, after=page.next_number - 1)
    return page


def _fragment_of_range(queue: AskedQueue, first: int, last: int) -> Fragment:
    index = first >> SEQUENCE_BITS
    if last < first or last >> SEQUENCE_BITS != index or not 0 <= index < len(queue.fragments):
        raise ArgumentError(
            "A range has to be within one fragment of the entity, and its last number not below its first."
        )
    return queue.fragments[index]
