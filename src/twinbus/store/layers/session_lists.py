"""Lists of message sessions, made in steps and kept while they are asked for: page after page of the same list.

To make the list of a hundred thousand sessions takes most of a second, and whoever commits meanwhile would wait. So whoever wants
one asks for it to be prepared, again and again, and each time the store does a step of some milliseconds. What a list shows is the
store as it was at its first step. It serves until something changes; one of very many serves on for some times as long as it took
to make: it may be a few seconds old, and somebody who asks for it again and again takes a small part of the store's time.
"""

import time
from collections.abc import Callable, Generator, Sequence
from heapq import merge
from typing import Any, NamedTuple, TypeAlias, TypeVar

from twinbus.model.session_key import session_key
from twinbus.store.changes import FragmentKey
from twinbus.store.messaging_store import SessionList, SessionSummary, by_load, by_name

STEP_S = 0.004
RUN = 1_000
"""Sessions that are looked at without looking at the time."""
MANY = 5_000
KEPT_MAX = 300_000
"""Sessions, over all lists."""
SERVES_TIMES = 10

T = TypeVar("T")

Making: TypeAlias = Generator[None, None, T]
"""Yields where it may be interrupted."""


class _Kept(NamedTuple):
    sequence: int
    serves_until: float
    sessions: SessionList


class _Begun:
    __slots__ = ("making", "sequence", "took_s")

    def __init__(self, sequence: int, making: Making[SessionList]) -> None:
        self.sequence = sequence
        self.making = making
        self.took_s = 0.0


class SessionLists:
    """Of one store."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: dict[FragmentKey, _Kept] = {}  # those that were made last come last
        self._begun: dict[FragmentKey, _Begun] = {}

    def prepare(
        self, fragment: FragmentKey, sequence: int, begin: Callable[[], Making[Sequence[SessionSummary]]]
    ) -> bool:
        """Do a step of it; True once there is a list. `sequence`: while it stays the same, so does everything in the store."""
        if self._fresh(fragment, sequence) is not None:
            return True
        begun = self._begun.get(fragment)
        if begun is None:
            begun = self._begun[fragment] = _Begun(sequence, _listed(begin()))
        return self._step(fragment, begun, STEP_S)

    def get(
        self, fragment: FragmentKey, sequence: int, begin: Callable[[], Making[Sequence[SessionSummary]]]
    ) -> SessionList:
        """All of it at once, if it is not there."""
        sessions = self._fresh(fragment, sequence)
        if sessions is None:
            self._end(fragment)
            begun = self._begun[fragment] = _Begun(sequence, _listed(begin()))
            self._step(fragment, begun, None)
            sessions = self._kept[fragment].sessions
        return sessions

    def forget(self, fragment: FragmentKey) -> None:
        self._kept.pop(fragment, None)
        self._end(fragment)

    def forget_all(self) -> None:
        self._kept.clear()
        for fragment in list(self._begun):
            self._end(fragment)

    def _fresh(self, fragment: FragmentKey, sequence: int) -> SessionList | None:
        kept = self._kept.get(fragment)
        if kept is None:
            return None
        if kept.sequence == sequence or (len(kept.sessions.by_name) > MANY and self._now() < kept.serves_until):
            return kept.sessions
        return None

    def _step(self, fragment: FragmentKey, begun: _Begun, step_s: float | None) -> bool:
        """True at its end."""
        since = self._now()
        try:
            while step_s is None or self._now() - since < step_s:
                next(begun.making)
        except StopIteration as end:
            del self._begun[fragment]
            now = self._now()
            self._keep(fragment, _Kept(begun.sequence, now + SERVES_TIMES * (begun.took_s + now - since), end.value))
            return True
        except BaseException:
            self._end(fragment)
            raise
        begun.took_s += self._now() - since
        return False

    def _keep(self, fragment: FragmentKey, made: _Kept) -> None:
        self._kept.pop(fragment, None)
        self._kept[fragment] = made
        while sum([len(each.sessions.by_name) for each in self._kept.values()]) > KEPT_MAX and len(self._kept) > 1:
            del self._kept[next(iter(self._kept))]

    def _end(self, fragment: FragmentKey) -> None:
        begun = self._begun.pop(fragment, None)
        if begun is not None:
            begun.making.close()


def _listed(reading: Making[Sequence[SessionSummary]]) -> Making[SessionList]:
    found = yield from reading
    names = yield from _sorted(found, by_name)
    busiest = yield from _sorted([each for each in found if each.active_count], by_load)
    with_state, keys, active_count = list[SessionSummary](), set[str](), 0
    for start in range(0, len(names), RUN):
        with_state += [each for each in names[start : start + RUN] if each.state_updated_at is not None]
        yield
    for start in range(0, len(busiest), RUN):
        some = busiest[start : start + RUN]
        keys.update([session_key(each.session_id) for each in some])
        active_count += sum([each.active_count for each in some])
        yield
    return SessionList(names, with_state, busiest, keys, active_count)


def _sorted(items: Sequence[T], key: Callable[[T], Any]) -> Making[list[T]]:
    runs = list[list[T]]()
    for start in range(0, len(items), RUN):
        runs.append(sorted(items[start : start + RUN], key=key))
        yield
    in_order = list[T]()
    for place, each in enumerate(merge(*runs, key=key)):
        in_order.append(each)
        if place % RUN == 0:
            yield
    return in_order
