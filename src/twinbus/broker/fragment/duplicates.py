"""Duplicate detection: which message ids a fragment took lately (contract A10).

The keys are also rows in the store, written in the commit of their message, so the history survives a restart. All keys
of an entity are kept equally long, so the oldest end first; after a window is changed, older keys keep their ends.
Memory is bounded: a fragment that knows too many keys takes no more messages until the oldest have ended.
"""

from collections.abc import Sequence
from itertools import islice, takewhile

from twinbus.clock import NEVER, Millis
from twinbus.model.partition_key import folded

# Ended keys are dropped together, no more often than this: one small commit in place of many.
PRUNE_INTERVAL: Millis = 10_000

FORGOTTEN_AT_ONCE = 2_000
"""Of those that have ended: a sender can make hundreds of thousands end together, and the fragments of an entity forget in one turn.
The others follow with the next ticks."""

SHORTENED_MAX = 16
"""How often the window may have been made shorter while keys of before are known. After that new keys are kept a little longer."""

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
    """Keys in the order of their ends, which is the order of adding: a dictionary keeps it, and nothing else has to.

    Where the window was made shorter, or the clock set back, new keys end before known ones and begin another dictionary. Behind
    those keys they would be kept as long as they are.
    """

    def __init__(self) -> None:
        self._ends: dict[str, Millis] = {}
        self._latest: Millis = 0  # of these
        self._longer: list[dict[str, Millis]] = []  # of before
        self.next_end: Millis = NEVER

    def __len__(self) -> int:
        count = len(self._ends)
        return count + sum(map(len, self._longer)) if self._longer else count

    def load(self, keys: Sequence[tuple[str, Millis]], *, are_pinned: bool) -> None:
        """`are_pinned`: of a partitioned entity."""
        self._ends, self._latest, self._longer = {}, 0, []
        for key, end in sorted(keys, key=lambda entry: entry[1]):
            self.add(_in_todays_form(key) if are_pinned else key, end)
        self._plan()

    def is_known(self, key: str, now: Millis) -> bool:
        is_known = self._ends.get(key, 0) > now
        if self._longer and not is_known:
            is_known = any(ends.get(key, 0) > now for ends in self._longer)
        return is_known

    def add(self, key: str, end: Millis) -> None:
        # One that ended and was not dropped yet would keep its old place.
        self._ends.pop(key, None)
        for ends in self._longer:
            ends.pop(key, None)
        if end >= self._latest:
            self._latest = end
        elif end < self._latest - PRUNE_INTERVAL and len(self._longer) < SHORTENED_MAX:
            self._begin_shorter(end)
        self._ends[key] = end
        if end < self.next_end - PRUNE_INTERVAL:
            self.next_end = end + PRUNE_INTERVAL

    def forget(self, now: Millis) -> Millis:
        """Drop what ended, or a part of it. Returns until when: the store may drop what ended by then. 0 if there was nothing."""
        left, until = FORGOTTEN_AT_ONCE, 0
        for ends in (*self._longer, self._ends):
            ended = list(islice(takewhile(lambda entry: entry[1] <= now, ends.items()), left))
            for key, end in ended:
                del ends[key]
                until = max(until, end)
            left -= len(ended)
        self._longer = [ends for ends in self._longer if ends]
        self._plan()
        if left:
            return now if until else 0
        self.next_end = now
        return until

    def _begin_shorter(self, end: Millis) -> None:
        if self._ends:
            self._longer.append(self._ends)
            self._ends = {}
        self._latest = end

    def _plan(self) -> None:
        first = min([next(iter(ends.values()), NEVER) for ends in (*self._longer, self._ends)])
        self.next_end = first if first == NEVER else first + PRUNE_INTERVAL
