"""What lies in the fragments of a queue, without the messages: where each begins and ends, and what waits for whom."""

from twinbus.broker.commands import SHARES_COUNT_MAX, CountShares, FindTimes, FragmentHead, ListFragments
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import check_any_available
from twinbus.broker.operations.asked_queue import AskedQueue
from twinbus.broker.operations.steps import Steps, read_each, read_one
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, FragmentUnavailable
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.reads import BacklogPage, BacklogShares, NumberedTime, Rows, Scan, TimesFrom

_PAGE_COUNT_MAX = 1_000
_PAGE_BYTES_MAX = 1024 * 1024


def list_fragments(queue: AskedQueue, command: ListFragments, now: Millis) -> Steps[list[FragmentHead]]:
    # The last numbers of now and not of when the answers come: by then the stores have done all that was asked of them
    # before, so that whatever has one of these numbers is in the answer or gone.
    last_numbers = [fragment.tally.last_number for fragment in queue.fragments]
    # Rows that are gone may lie in the tables for a while, and to pass over them costs as much as to read them: so whoever
    # asks passes over each of them once.
    scans = [(fragment, Scan(fragment.key, fragment.tally.spent_number, 1, 1)) for fragment in queue.fragments]
    answers = yield from read_each(scans)
    return [_head(*known) for known in zip(queue.fragments, last_numbers, answers, strict=True)]


def _head(fragment: Fragment, last_number: int, first: Rows | FragmentUnavailable) -> FragmentHead:
    # It may have answered and be lost since, while others were waited for: then its counts are gone.
    if isinstance(first, FragmentUnavailable) or not fragment.is_available:
        return FragmentHead(fragment.index, False, 0, 0, 0, 0, 0, 0, fragment.broker.index)
    first_number = first[0].sequence_number if first else last_number + 1
    tally = fragment.tally
    tally.rows_begin_at(first_number)
    counts = tally.active_count, tally.deferred_count, tally.scheduled_count, tally.size_bytes
    return FragmentHead(fragment.index, True, first_number, last_number, *counts, fragment.broker.index)


def find_times(queue: AskedQueue, command: FindTimes, now: Millis) -> Steps[list[NumberedTime | None]]:
    """One read for each fragment, side by side. Raises FragmentUnavailable."""
    places: dict[int, list[int]] = {}
    for place, number in enumerate(command.numbers):
        places.setdefault(number >> SEQUENCE_BITS, []).append(place)
    if not all(0 <= index < len(queue.fragments) for index in places):
        raise ArgumentError(
            "A sequence number names a fragment that the entity does not have. Use numbers of its own messages."
        )
    reads = [
        (queue.fragments[index], TimesFrom(queue.fragments[index].key, [command.numbers[place] for place in those]))
        for index, those in places.items()
    ]
    found: list[NumberedTime | None] = [None] * len(command.numbers)
    for those, times in zip(places.values(), (yield from read_each(reads)), strict=True):
        if isinstance(times, FragmentUnavailable):
            raise times
        for place, row in zip(those, times, strict=True):
            found[place] = row
    return found


def count_shares(queue: AskedQueue, command: CountShares, now: Millis) -> Steps[BacklogShares]:
    """Counted when somebody asks, by reading the messages. To count as they come and go, the destination of each would
    have to be known when it leaves: memory that grows with the backlog, or work on the way of every message, for a
    figure that is looked at now and then. The store reads and counts page by page, and does other work in between.

    Unavailable fragments are skipped, also the rest of one that is lost meanwhile; if none is available, the command fails.
    """
    found = BacklogShares()
    count_left = min(command.count_max, SHARES_COUNT_MAX)
    number = max(0, command.from_number)
    while (index := number >> SEQUENCE_BITS) < len(queue.fragments):
        fragment = queue.fragments[index]
        if not fragment.is_available:
            number = (index + 1) << SEQUENCE_BITS
            continue
        if count_left <= 0:
            found.next_number = number
            return found
        read = BacklogPage(fragment.key, number, min(count_left, _PAGE_COUNT_MAX), _PAGE_BYTES_MAX, now)
        try:
            page = yield from read_one(fragment, read)
        except FragmentUnavailable:
            number = (index + 1) << SEQUENCE_BITS
            continue
        count_left -= page.row_count
        for destination, share in page.by_destination.items():
            found.add(destination, share.message_count, share.size_bytes)
        number = page.next_number
    check_any_available(queue.fragments)
    return found
