"""Peek over the fragments of a queue: one after the other, or merged in the order of arrival (contract A12)."""

from collections.abc import Mapping, Sequence

from twinbus.broker.browse import PEEK_BYTES_MAX, PEEK_COUNT_MAX, Rows, peek
from twinbus.broker.fragment import Fragment
from twinbus.broker.replies import Reply
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.store.changes import SEQUENCE_BITS


class PeekPages:
    """One page for one request. Fragments that are ill are left out."""

    def __init__(self, fragments: Sequence[Fragment], count_max: int, now: Millis, reply: Reply[Rows]) -> None:
        self._fragments = fragments
        self._count_max = min(count_max, PEEK_COUNT_MAX)
        self._now = now
        self._reply = reply
        self._found: Rows = []
        self._open_count = 0

    def from_number(self, number: int, session_id: str | None) -> None:
        """The sequence of all numbers is fragment after fragment, so a reader who goes on behind the last number it
        saw comes past every message. A page never holds messages of two fragments."""
        index = max(0, number) >> SEQUENCE_BITS
        while index < len(self._fragments) and not self._fragments[index].is_available:
            index, number = index + 1, 0
        if index >= len(self._fragments):
            self._reply([])
            return

        def read(rows: Rows | FragmentUnavailable) -> None:
            if isinstance(rows, list) and rows:
                self._reply(rows)
            else:
                self.from_number(index + 1 << SEQUENCE_BITS, session_id)

        peek(self._fragments[index], number, self._count_max, session_id, self._now, read)

    def merged(self, positions: Mapping[int, int]) -> None:
        asked = [fragment for fragment in self._fragments if fragment.is_available]
        self._open_count = len(asked)
        if not asked:
            self._reply([])
        for fragment in asked:
            number = positions.get(fragment.index, 0)
            peek(fragment, number, self._count_max, None, self._now, self._collect)

    def _collect(self, rows: Rows | FragmentUnavailable) -> None:
        if isinstance(rows, list):
            self._found += rows
        self._open_count -= 1
        if self._open_count == 0:
            self._found.sort(key=lambda row: (row.enqueued_at, row.sequence_number))
            self._reply(_page(self._found[: self._count_max]))


def _page(rows: Rows) -> Rows:
    """As many as fit, and always the first."""
    size_bytes = 0
    for place, row in enumerate(rows):
        size_bytes += len(row.content)
        if size_bytes > PEEK_BYTES_MAX and place:
            return rows[:place]
    return rows
