"""The numbers that a fragment gives out, and how many rows of each state it has: what its store would sum up.

The one place that knows what a row counts for. A `Decision` counts when it is taken, not when it is durable, so the
next decision sees what this one has left.
"""

from collections.abc import Sequence

from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.changes import SharedRows, StoredMessage
from twinbus.store.messaging_store import FragmentSummary


class Tally:
    __slots__ = ("active_count", "deferred_count", "last_number", "scheduled_count", "size_bytes", "spent_number")

    def __init__(self, index: int, summary: FragmentSummary | None = None) -> None:
        """`index`: of the fragment, which its numbers have in their upper bits."""
        self.last_number = self.spent_number = index << SEQUENCE_BITS
        """The highest that was given; and one up to which no row is left, as far as somebody has looked."""
        self.active_count = self.deferred_count = self.scheduled_count = self.size_bytes = 0
        if summary is not None:
            self.last_number = max(self.last_number, summary.last_sequence_number)
            self.active_count = summary.active_count
            self.deferred_count = summary.deferred_count
            self.scheduled_count = summary.scheduled_count
            self.size_bytes = summary.size_bytes

    def rows_begin_at(self, number: int) -> None:
        """Somebody has looked: no row has a lower number, and none will, since numbers rise."""
        self.spent_number = number - 1

    def take_numbers(self, count: int) -> int:
        """The first of this many new sequence numbers.

        A store refuses numbers that do not rise, so they are committed in the order they are taken in: by the decision
        that takes them, before anybody else can take some.
        """
        first = self.last_number + 1
        self.last_number += count
        return first

    def add_active(self, rows: Sequence[StoredMessage]) -> int:
        """Returns their size in bytes."""
        size_bytes = sum([len(row.content) for row in rows])
        self.active_count += len(rows)
        self.size_bytes += size_bytes
        return size_bytes

    def add_copies(self, rows: SharedRows) -> int:
        """Active rows; returns the first of their numbers."""
        self.active_count += len(rows)
        self.size_bytes += rows.size_bytes
        return self.take_numbers(len(rows))

    def add_scheduled(self, rows: Sequence[StoredMessage]) -> None:
        self.scheduled_count += len(rows)
        self.size_bytes += sum([len(row.content) for row in rows])

    def change_state(self, before: MessageState, after: MessageState) -> None:
        self._count(before, -1)
        self._count(after, 1)

    def activate(self, count: int) -> int:
        """This many scheduled rows are active from now on; returns the first of their new numbers."""
        self.scheduled_count -= count
        self.active_count += count
        return self.take_numbers(count)

    def defer(self, count: int) -> None:
        """This many active rows are deferred from now on."""
        self.active_count -= count
        self.deferred_count += count

    def resize(self, row: StoredMessage, content: bytes) -> None:
        """The row is about to get this content."""
        self.size_bytes += len(content) - len(row.content)

    def remove(self, rows: Sequence[StoredMessage]) -> None:
        for row in rows:
            self._count(row.state, -1)
        self.size_bytes -= sum([len(row.content) for row in rows])

    def remove_active(self, rows: Sequence[StoredMessage]) -> None:
        """As `remove`, of rows that are all active: completing is the hot path."""
        self.active_count -= len(rows)
        self.size_bytes -= sum([len(row.content) for row in rows])

    def remove_deferred(self, count: int, size_bytes: int) -> None:
        self.deferred_count -= count
        self.size_bytes -= size_bytes

    def _count(self, state: MessageState, sign: int) -> None:
        if state is MessageState.ACTIVE:
            self.active_count += sign
        elif state is MessageState.DEFERRED:
            self.deferred_count += sign
        else:
            self.scheduled_count += sign
