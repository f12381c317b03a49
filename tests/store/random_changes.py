"""Commits drawn from a seed that make sense for the store they are committed to."""

from random import Random

from twinbus.clock import NEVER
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import (
    Activated,
    ActivatedTogether,
    Altered,
    AlteredTogether,
    Change,
    Copied,
    DuplicatesForgotten,
    DuplicatesSeen,
    Enqueued,
    FragmentCreated,
    FragmentDeleted,
    FragmentKey,
    Removed,
    SessionStateSet,
    SharedRows,
    StoredMessage,
    fragment_key,
)

FRAGMENTS = (fragment_key(1, 0), fragment_key(1, 2), fragment_key(9, 0))
SESSIONS = (None, None, "a", "A", "b\x00", "B\x00", "\ud800 unpaired", "ö", "Ö", "")
KEYS = ("k", "l", 'm"', "n\x00", "ö")
TIMES = (*range(100, 120), NEVER)


class RandomChanges:
    """Keeps count of numbers itself, so that it can also name rows that are gone."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next: dict[FragmentKey, int] = {}

    def commit(self) -> list[Change]:
        changes = [self._change() for _ in range(self._random.choice((1, 1, 2, 5)))]
        if self._random.random() < 0.1:
            changes += self._copies()
        return changes

    def _copies(self) -> list[Change]:
        """The same rows for every fragment, as a topic copies a batch."""
        count = self._random.randrange(1, 6)
        rows = SharedRows([self._content(0) for _ in range(count)])
        copies = list[Change]()
        for fragment in self._next:
            copies.append(Copied(fragment, self._next[fragment], rows))
            self._next[fragment] += count
        return copies

    def _change(self) -> Change:
        random = self._random
        fragment = random.choice(FRAGMENTS)
        if fragment not in self._next or random.random() < 0.02:
            return self._create(fragment)
        kind = random.random()
        if kind < 0.35:
            return Enqueued(fragment, [self._message(fragment) for _ in range(random.randrange(6))])
        if kind < 0.55:
            return Removed(fragment, [self._number(fragment) for _ in range(random.randrange(6))])
        if kind < 0.75:
            return self._altered(fragment)
        if kind < 0.85:
            return Activated(
                fragment, self._number(fragment), self._take(fragment), random.choice(TIMES[:-1]), random.choice(TIMES)
            )
        if kind < 0.88:
            return self._activated_together(fragment)
        if kind < 0.93:
            state = random.choice((None, b"", b"state"))
            return SessionStateSet(fragment, random.choice(("a", "A", "b\x00", "c", "C")), state, random.choice(TIMES))
        if kind < 0.96:
            return DuplicatesSeen(fragment, [(key, random.choice(TIMES)) for key in random.sample(KEYS, 2)])
        if kind < 0.985:
            return DuplicatesForgotten(fragment, random.choice(TIMES[:-1]))
        del self._next[fragment]
        return FragmentDeleted(fragment)

    def _activated_together(self, fragment: FragmentKey) -> Change:
        random, first = self._random, self._next[fragment]
        numbers = list({self._number(fragment): None for _ in range(random.randrange(6))})
        expiries = [random.choice(TIMES) for _ in numbers]
        self._next[fragment] += len(numbers)
        return ActivatedTogether(fragment, numbers, first, random.choice(TIMES[:-1]), expiries)

    def _create(self, fragment: FragmentKey) -> Change:
        self._next.setdefault(fragment, ((fragment >> 2 & 63) << 48) + 1)
        return FragmentCreated(fragment)

    def _take(self, fragment: FragmentKey) -> int:
        number = self._next[fragment]
        self._next[fragment] += 1
        return number

    def _number(self, fragment: FragmentKey) -> int:
        """One that exists or existed, the newer the likelier."""
        base = (fragment >> 2 & 63) << 48
        count = self._next[fragment] - base
        return base + max(1, count - int(self._random.expovariate(1 / 12)))

    def _message(self, fragment: FragmentKey) -> StoredMessage:
        return self._content(self._take(fragment))

    def _content(self, number: int) -> StoredMessage:
        random = self._random
        return StoredMessage(
            number,
            random.randbytes(random.choice((0, 1, 10, 300))),
            random.choice(TIMES[:-1]),
            random.choice(TIMES),
            random.choice((MessageState.ACTIVE, MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED)),
            random.choice(TIMES[:-1]),
            random.randrange(3),
            random.choice(SESSIONS),
            random.choice((0, 2**62)),
        )

    def _altered(self, fragment: FragmentKey) -> Change:
        random = self._random
        if random.random() < 0.3:
            numbers = [self._number(fragment) for _ in range(random.randrange(6))]
            return AlteredTogether(fragment, numbers, random.choice(tuple(MessageState)), random.choice(TIMES[:-1]))
        return Altered(
            fragment,
            self._number(fragment),
            random.choice(tuple(MessageState)),
            random.randrange(5),
            random.choice(TIMES[:-1]),
            random.choice(TIMES),
            random.choice((None, None, b"", random.randbytes(50))),
        )
