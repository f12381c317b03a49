"""Duplicate detection: which message ids a fragment took lately (contract A10).

The keys are also rows in the store, written in the commit of their message, so the history survives a restart. All keys
of an entity count equally long, so the oldest end first; a window that was made shorter lets the old keys run out.
"""

from collections import deque
from collections.abc import Sequence

from twinbus.clock import NEVER, Millis

# Ended keys are dropped together, no more often than this: one small commit in place of many.
PRUNE_INTERVAL: Millis = 10_000


def duplicate_key(message_id: str, pinning_key: str | None) -> str:
    """On a partitioned entity the id counts within its key; on others there is no key."""
    if pinning_key is None or pinning_key == message_id:
        return message_id
    # A key has no control characters in practice, and if it has, the lengths keep two pairs apart.
    return f"{len(pinning_key)}\x00{pinning_key}\x00{message_id}"


class DuplicateHistory:
    def __init__(self) -> None:
        self._ends: dict[str, Millis] = {}
        self._order: deque[tuple[Millis, str]] = deque()
        self.next_end: Millis = NEVER

    def __len__(self) -> int:
        return len(self._ends)

    def load(self, keys: Sequence[tuple[str, Millis]]) -> None:
        self._ends = dict(keys)
        self._order = deque(sorted((end, key) for key, end in keys))
        self._plan()

    def is_known(self, key: str, now: Millis) -> bool:
        return self._ends.get(key, 0) > now

    def add(self, key: str, end: Millis) -> None:
        self._ends[key] = end
        self._order.append((end, key))
        if self.next_end == NEVER:
            self._plan()

    def forget(self, now: Millis) -> bool:
        """Drop what ended; true if there was anything."""
        order, ends = self._order, self._ends
        before = len(order)
        while order and order[0][0] <= now:
            end, key = order.popleft()
            if ends.get(key) == end:
                del ends[key]
        self._plan()
        return len(order) < before

    def _plan(self) -> None:
        self.next_end = self._order[0][0] + PRUNE_INTERVAL if self._order else NEVER
