"""Second tries: which messages a fragment took lately whose sender may ask again (contract A4.6).

Where the first try of a message without a key has an unknown outcome, the second one has a name. The fragment writes the name, and the
number that the message has, in the commit of the message. Whoever sends it here again under that name gets the number, and it is not
stored again: over another line, after a restart, or at the next node that has the store.

The rows are those of duplicate detection, and no fragment has both: where duplicates are detected every message is pinned, and what
is sent via such an entity goes to fragments that detect none. Unlike those, names are read when the first named message comes. Second
tries are rare, there may be a hundred thousand fragments, and a store that is taken over is to be served soon. Names that nobody reads
any more stay in the store until the next second try there.

A name is known for a duration, from when it was written or read here. Its end in the store is a time of the clock as that was, which
may have been set since, or be another machine's: it counts only when rows are dropped, and no row of a known name is.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

from twinbus.broker.fragment.duplicates import KEYS_MAX, PRUNE_INTERVAL
from twinbus.broker.message_broker import MessageBroker
from twinbus.clock import NEVER, Millis
from twinbus.errors import FragmentUnavailable, ServerBusy
from twinbus.store.changes import DuplicatesSeen, FragmentKey
from twinbus.store.reads import KeysSeen

NAMES_KEPT: Millis = 10 * 60_000
"""Many times as long as anybody asks again."""

_NUMBER = "="


class SecondTry(NamedTuple):
    """Messages that are to be in the fragment with this index, each at most once, under its name."""

    fragment: int
    names: Sequence[str]


class Names:
    """Of one fragment while it is loaded."""

    def __init__(self, key: FragmentKey, broker: MessageBroker) -> None:
        self.next_end: Millis = NEVER
        self._key = key
        self._broker = broker
        self._numbers: dict[str, int] = {}
        self._ends: dict[str, Millis] = {}  # the first one ends first
        self._ends_stored: dict[str, Millis] = {}
        self._is_asked = self._is_read = False
        self._waiting: list[Callable[[Millis], None]] = []

    def when_read(self, now: Millis, call: Callable[[Millis], None]) -> None:
        """Only while the fragment takes messages. Also called if the store is lost meanwhile: then nothing is taken under a name."""
        if self._is_read:
            call(now)
            return
        self._waiting.append(call)
        if not self._is_asked:
            self._is_asked = True
            self._broker.query(KeysSeen(self._key), self._answered)

    def _answered(self, answer: Sequence[tuple[str, Millis]] | FragmentUnavailable, now: Millis) -> None:
        if not isinstance(answer, FragmentUnavailable):
            for key, end in answer:
                name, _, number = key.rpartition(_NUMBER)
                self._numbers[name], self._ends[name], self._ends_stored[name] = int(number), now + NAMES_KEPT, end
            self._is_read = True
            self._plan()
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call(now)

    def fresh(self, names: Sequence[str]) -> list[int]:
        """The places of those that are not known. Raises FragmentUnavailable or ServerBusy where nothing can be taken."""
        if not self._is_read:
            raise self._broker.unavailable()
        places = [place for place, name in enumerate(names) if name not in self._numbers]
        if len(self._numbers) + len(places) > KEYS_MAX:
            raise ServerBusy("The fragment took as many messages after a lost answer as it remembers. Try again later.")
        return places

    def take(self, names: Sequence[str], numbers: Sequence[int], now: Millis) -> DuplicatesSeen:
        """These are known from now on. Returns what is to be in the same commit."""
        end = now + NAMES_KEPT
        self._numbers.update(zip(names, numbers, strict=True))
        self._ends.update(dict.fromkeys(names, end))
        self._ends_stored.update(dict.fromkeys(names, end))
        self._plan()
        return DuplicatesSeen(self._key, [(f"{name}{_NUMBER}{self._numbers[name]}", end) for name in names])

    def numbers(self, names: Sequence[str]) -> list[int]:
        return [self._numbers[name] for name in names]

    def forget(self, now: Millis) -> Millis:
        """Drop what ended. Returns until when: the store may drop what ended by then, of its own times. 0 if there was nothing."""
        until: Millis = 0
        for name in list(takewhile(lambda each: self._ends[each] <= now, self._ends)):
            until = max(until, self._ends_stored.pop(name))
            del self._ends[name], self._numbers[name]
        self._plan()
        return min(until, min(self._ends_stored.values(), default=NEVER) - 1)

    def clock_stepped(self, by: Millis) -> None:
        self._ends = {name: end + by for name, end in self._ends.items()}
        self._plan()

    def _plan(self) -> None:
        first = next(iter(self._ends.values()), NEVER)
        self.next_end = first if first == NEVER else first + PRUNE_INTERVAL
