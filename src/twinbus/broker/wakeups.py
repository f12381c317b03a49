"""Calls at a time: a heap that the server's timer drives through `MessageBroker.tick`."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from twinbus.broker.telling import tell
from twinbus.clock import NEVER, Millis


class Wakeups:
    """A call cannot be cancelled: the function that is woken checks again whether there is anything to do."""

    def __init__(self) -> None:
        self._heap: list[tuple[Millis, int, Callable[[Millis], None]]] = []
        self._order = count()

    def at(self, when: Millis, call: Callable[[Millis], None]) -> None:
        if when < NEVER:
            heappush(self._heap, (when, next(self._order), call))

    def run(self, now: Millis) -> Millis:
        """Call what is due, and what that made due, once each; returns when the next one is."""
        heap = self._heap
        due = []
        while heap and heap[0][0] <= now:
            due.append(heappop(heap)[2])
        for call in due:
            tell(call, now)
        return heap[0][0] if heap else NEVER


class Deadlines:
    """Calls that are all due the same time after they are added, and are mostly cancelled before: one wakeup for all."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._due: dict[Callable[[Millis], None], Millis] = {}
        self._is_planned = False

    def __len__(self) -> int:
        return len(self._due)

    def add(self, when: Millis, call: Callable[[Millis], None]) -> None:
        self._due[call] = when
        self._plan()

    def discard(self, call: Callable[[Millis], None]) -> None:
        self._due.pop(call, None)

    def _plan(self) -> None:
        if self._due and not self._is_planned:
            self._is_planned = True
            self._wakeups.at(next(iter(self._due.values())), self._run)

    def _run(self, now: Millis) -> None:
        self._is_planned = False
        due = [call for call, when in self._due.items() if when <= now]
        for call in due:
            del self._due[call]
            tell(call, now)
        self._plan()
