"""TimeIndex: things sorted by time, where most are added nearly in order and many are gone before their time comes."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from twinbus.clock import Millis

Thing = TypeVar("Thing", int, str)


class TimeIndex(Generic[Thing]):
    """Pairs of time and thing, sorted when they are read.

    A pair stays when its thing is gone: the reader says which pairs still hold, and those at the front that do not are
    dropped then.
    """

    __slots__ = ("_is_sorted", "_pairs")

    def __init__(self) -> None:
        self._pairs: list[tuple[Millis, Thing]] = []
        self._is_sorted = True

    def add(self, at: Millis, thing: Thing) -> None:
        self._pairs.append((at, thing))
        self._is_sorted = False

    def in_order(self, holds: Callable[[Millis, Thing], bool]) -> Iterator[tuple[Millis, Thing]]:
        """The pairs that hold, each once, earliest first."""
        self._sort()
        self._drop_front(holds)
        previous = None
        for pair in self._pairs:
            # The same pair is added twice when a row leaves a state and comes back to it.
            if pair != previous and holds(*pair):
                yield pair
            previous = pair

    def take_until(self, until: Millis) -> list[Thing]:
        """Remove and return every thing with a time at or before `until`, whether it holds or not."""
        self._sort()
        taken = [thing for at, thing in self._leading(until)]
        del self._pairs[: len(taken)]
        return taken

    def _sort(self) -> None:
        if not self._is_sorted:
            self._pairs.sort()
            self._is_sorted = True

    def _drop_front(self, holds: Callable[[Millis, Thing], bool]) -> None:
        gone = 0
        for pair in self._pairs:
            if holds(*pair):
                break
            gone += 1
        del self._pairs[:gone]

    def _leading(self, until: Millis) -> Iterator[tuple[Millis, Thing]]:
        for pair in self._pairs:
            if pair[0] > until:
                return
            yield pair
