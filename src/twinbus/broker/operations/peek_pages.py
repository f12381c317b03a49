"""Peek over the fragments of a queue: one after the other, or merged in the order of arrival (contract A12)."""

from collections.abc import Mapping, Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.operations.browse import PEEK_BYTES_MAX, peek, without_hops_shown
from twinbus.broker.replies import Reply
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.model.request_limits import PEEK_COUNT_MAX
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import FirstUnexpired, Rows, Unexpired


class PeekPages:
    """One page for one request. Fragments that are ill are left out; if all of them are, the request fails."""

    def __init__(self, fragments: Sequence[Fragment], count_max: int, now: Millis, reply: Reply[Rows]) -> None:
        self._fragments = fragments
        self._count_max = min(count_max, PEEK_COUNT_MAX)
        self._now = now
        self._reply = reply
        self._runs: list[Unexpired] = []
        self._open_count = 0

    def from_number(self, number: int, session_id: str | None) -> None:
        """The sequence of all numbers is fragment after fragment, so a reader who goes on behind the last number it
        saw comes past every message. A page never holds messages of two fragments."""
        index = max(0, number) >> SEQUENCE_BITS
        while index < len(self._fragments) and not self._fragments[index].is_available:
            index, number = index + 1, 0
        if index >= len(self._fragments):
            self._reply(self._nobody_there() or [])
            return

        def read(rows: Rows | FragmentUnavailable) -> None:
            if isinstance(rows, list) and rows:
                self._reply(rows)
            else:
                self.from_number(index + 1 << SEQUENCE_BITS, session_id)

        peek(self._fragments[index], number, self._count_max, session_id, self._now, read)

    def merged(self, positions: Mapping[int, int]) -> None:
        """A reader goes on behind the last number it saw of each fragment, and so comes past every message."""
        asked = [fragment for fragment in self._fragments if fragment.is_available]
        self._open_count = len(asked)
        if not asked:
            self._reply(self._nobody_there() or [])
        for fragment in asked:
            number = positions.get(fragment.index, 0)
            read = FirstUnexpired(fragment.key, number, self._count_max, PEEK_BYTES_MAX, self._now)
            fragment.broker.query(read, self._collect)

    def _nobody_there(self) -> FragmentUnavailable | None:
        if any(fragment.is_available for fragment in self._fragments):
            return None
        return self._fragments[0].broker.unavailable()

    def _collect(self, run: Unexpired | FragmentUnavailable) -> None:
        if not isinstance(run, FragmentUnavailable):
            self._runs.append(Unexpired(without_hops_shown(run.rows), run.has_more))
        self._open_count -= 1
        if self._open_count == 0:
            self._reply(self._nobody_there() or _merge(self._runs, self._count_max))


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
