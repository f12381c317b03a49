"""Duplicate detection: which message ids a fragment took lately (contract A10).

The keys are also rows in the store, written in the commit of their message, so the history survives a restart. All keys
of an entity are kept equally long, so the oldest end first; after a window is shortened, older keys still run out.
Memory is bounded: a fragment that knows too many keys takes no more messages until the oldest have ended.
"""

from collections.abc import Sequence
from itertools import takewhile

from twinbus.clock import NEVER, Millis
from twinbus.model.partition_key import folded

# Ended keys are dropped together, no more often than this: one small commit in place of many.
PRUNE_INTERVAL: Millis = 10_000

KEYS_MAX = 1_000_000
"""Of one fragment at a time. All of them are in memory, some 200 bytes each."""


def duplicate_key(message_id: str, pinning_key: str | None) -> str:
    """On a partitioned entity the id counts within its key, which has no case; on others there is no key."""
    if pinning_key is None or pinning_key == message_id:
        return message_id
    pin = folded(pinning_key)
    if pin == folded(message_id):
        return message_id
    # A key has no control characters in practice, and if it has, the lengths keep two pairs apart.
    return f"{len(pin)}\x00{pin}\x00{message_id}"


def _in_todays_form(key: str) -> str:
    """Of a partitioned entity, as it may have been stored when keys had a case."""
    length, separator, rest = key.partition("\x00")
    size = int(length) if separator and length.isdecimal() and len(length) < 4 else len(rest)
    return duplicate_key(rest[size + 1 :], rest[:size]) if rest[size : size + 1] == "\x00" else key


class DuplicateHistory:
    """Keys in the order of their ends, which is the order of adding: a dictionary keeps it, and nothing else has to."""

    def __init__(self) -> None:
        self._ends: dict[str, Millis] = {}
        self.next_end: Millis = NEVER

    def __len__(self) -> int:
        return len(self._ends)

    def load(self, keys: Sequence[tuple[str, Millis]], *, are_pinned: bool) -> None:
        """`are_pinned`: of a partitioned entity."""
        self._ends = {}
        for key, end in sorted(keys, key=lambda entry: entry[1]):
            self.add(_in_todays_form(key) if are_pinned else key, end)
        self._plan()

    def is_known(self, key: str, now: Millis) -> bool:
        return self._ends.get(key, 0) > now

    def add(self, key: str, end: Millis) -> None:
        # One that ended and was not dropped yet would keep its old place.
        self._ends.pop(key, None)
        self._ends[key] = end
        if self.next_end == NEVER:
            self._plan()

    def forget(self, now: Millis) -> bool:
        """Drop what ended; true if there was anything."""
        ended = list(takewhile(lambda key: self._ends[key] <= now, self._ends))
        for key in ended:
            del self._ends[key]
        self._plan()
        return bool(ended)

    def _plan(self) -> None:
        first = next(iter(self._ends.values()), NEVER)
        self.next_end = first if first == NEVER else first + PRUNE_INTERVAL
