"""Peek for who reads by the thousand: a range of numbers of one fragment in, rows of it out, in large pages.

Unlike the service's peek, which goes from fragment to fragment, a page here says whether the range has more: readers of
different ranges go on side by side, and none of them asks once too often.
"""

from collections.abc import Collection
from typing import NamedTuple

from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.operations.browse import shown
from twinbus.broker.replies import Reply
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, FragmentUnavailable
from twinbus.model.request_limits import RANGE_COUNT_MAX
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.reads import Rows, Scan

RANGE_BYTES_MAX = 1024 * 1024


class RangePage(NamedTuple):
    rows: Rows
    next_number: int | None  # where to go on; None: there is nothing more in the range


def peek_range(
    queue: MessageQueue,
    first: int,
    last: int,
    count_max: int,
    states: Collection[MessageState],
    now: Millis,
    reply: Reply[RangePage],
) -> None:
    """Rows in those states numbered `first` to `last`, lowest first; without rows only where there are none."""
    queue.settings.last_used_at = now
    index = first >> SEQUENCE_BITS
    if last < first or last >> SEQUENCE_BITS != index or not 0 <= index < len(queue.fragments):
        reply(
            ArgumentError(
                "A range has to be within one fragment of the entity, and its last number not below its first."
            )
        )
        return
    fragment = queue.fragments[index]
    _Range(fragment, last, min(count_max, RANGE_COUNT_MAX), states, now, reply).read(first)


class _Range:
    """One request under way."""

    def __init__(
        self,
        fragment: Fragment,
        last: int,
        count_max: int,
        states: Collection[MessageState],
        now: Millis,
        reply: Reply[RangePage],
    ) -> None:
        self._fragment = fragment
        self._last = last
        self._count_max = count_max
        self._states = states
        self._now = now
        self._reply = reply

    def read(self, first: int) -> None:
        key, count_max, states = self._fragment.key, self._count_max, self._states
        self._fragment.broker.query(Scan(key, first - 1, count_max, RANGE_BYTES_MAX, states), self._found)

    def _found(self, rows: Rows | FragmentUnavailable) -> None:
        if isinstance(rows, FragmentUnavailable):
            self._reply(rows)
            return
        following = rows[-1].sequence_number + 1 if rows else self._last + 1
        visible = shown([row for row in rows if row.sequence_number <= self._last], self._now)
        if following > self._last:
            self._reply(RangePage(visible, None))
        elif visible:
            self._reply(RangePage(visible, following))
        else:
            self.read(following)
