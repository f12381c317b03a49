"""What waits in a backlog queue for which destination: a queue in, counts by destination out, page by page.

Counted when somebody asks, by reading the messages. To count as they come and go, the destination of each would have to be
known when it leaves: memory that grows with the backlog, or work on the way of every message, for a figure that is looked
at now and then. A page is read and counted on the thread of its messaging store, which does what else waits in between.
"""

from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.replies import Reply
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.reads import BacklogPage, BacklogShares, CountedRows

SHARES_COUNT_MAX = 10_000
"""Messages that one request looks at."""

_PAGE_COUNT_MAX = 1_000
_PAGE_BYTES_MAX = 1024 * 1024


def count_shares(
    queue: MessageQueue, from_number: int, count_max: int, now: Millis, reply: Reply[BacklogShares]
) -> None:
    """Of messages in any state, locked ones too, numbered from `from_number` on: at most about `count_max` of them."""
    queue.settings.last_used_at = now
    _Counting(queue, min(count_max, SHARES_COUNT_MAX), now, reply).read(max(0, from_number))


class _Counting:
    """One request under way. Fragments that are ill are left out; if all of them are, the request fails."""

    def __init__(self, queue: MessageQueue, count_max: int, now: Millis, reply: Reply[BacklogShares]) -> None:
        self._fragments = queue.fragments
        self._count_left = count_max
        self._now = now
        self._reply = reply
        self._shares = BacklogShares()

    def read(self, number: int) -> None:
        index = number >> SEQUENCE_BITS
        while index < len(self._fragments) and not self._fragments[index].is_available:
            index, number = index + 1, (index + 1) << SEQUENCE_BITS
        if index >= len(self._fragments):
            self._end()
        elif self._count_left <= 0:
            self._shares.next_number = number
            self._reply(self._shares)
        else:
            fragment = self._fragments[index]
            count_max = min(self._count_left, _PAGE_COUNT_MAX)
            read = BacklogPage(fragment.key, number, count_max, _PAGE_BYTES_MAX, self._now)
            fragment.broker.query(read, self._counted)

    def _counted(self, page: CountedRows | FragmentUnavailable) -> None:
        if isinstance(page, FragmentUnavailable):
            self._reply(page)
            return
        self._count_left -= page.row_count
        for destination, share in page.shares.by_destination.items():
            self._shares.add(destination, share.message_count, share.size_bytes)
        assert page.shares.next_number is not None
        self.read(page.shares.next_number)

    def _end(self) -> None:
        if any(fragment.is_available for fragment in self._fragments):
            self._reply(self._shares)
        else:
            self._reply(self._fragments[0].broker.unavailable())
