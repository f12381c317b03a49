"""Lists of message sessions by name, kept while they are asked for: page after page of the same list.

To make the list of a hundred thousand sessions keeps a store busy for most of a second, and whoever commits meanwhile waits. So a
list serves until something changes. One of very many serves on for some times as long as it took to make: it may be a few seconds
old, and somebody who asks for it again and again takes a small part of the store's time.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from twinbus.store.changes import FragmentKey
from twinbus.store.messaging_store import SessionSummary

MANY = 5_000
KEPT_MAX = 300_000
"""Sessions, over all lists."""
SERVES_TIMES = 10


class _List(NamedTuple):
    sequence: int
    serves_until: float
    sessions: Sequence[SessionSummary]


class SessionLists:
    """Of one store."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lists: dict[FragmentKey, _List] = {}  # those that were made last come last

    def get(
        self, fragment: FragmentKey, sequence: int, read: Callable[[], list[SessionSummary]]
    ) -> Sequence[SessionSummary]:
        """`sequence`: while it stays the same, so does everything in the store."""
        kept, begun = self._lists.get(fragment), self._now()
        if kept is not None and (
            kept.sequence == sequence or (len(kept.sessions) > MANY and begun < kept.serves_until)
        ):
            return kept.sessions
        self._lists.pop(fragment, None)
        sessions = sorted(read(), key=lambda each: each.session_id)
        ended = self._now()
        self._lists[fragment] = _List(sequence, ended + SERVES_TIMES * (ended - begun), sessions)
        while sum([len(each.sessions) for each in self._lists.values()]) > KEPT_MAX and len(self._lists) > 1:
            del self._lists[next(iter(self._lists))]
        return sessions

    def forget(self) -> None:
        self._lists.clear()
