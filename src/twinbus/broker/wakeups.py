"""Calls at a time: a heap that the server's timer drives through `MessageBroker.tick`; calls one after the other; and long work in
steps."""

import logging
from collections import deque
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from twinbus.broker.telling import tell
from twinbus.clock import NEVER, Clock, Millis

log = logging.getLogger(__name__)


class Wakeups:
    """A call cannot be cancelled: the function that is woken checks again whether there is anything to do."""

    def __init__(self) -> None:
        self._heap: list[tuple[Millis, int, Callable[[Millis], None]]] = []
        self._order = count()

    def at(self, when: Millis, call: Callable[[Millis], None]) -> None:
        if when < NEVER:
            heappush(self._heap, (when, next(self._order), call))

    def clock_stepped(self, by: Millis) -> None:
        """What was to be called after a while still is. Whoever waits for a time of day asks again."""
        self._heap = [(when + by, order, call) for when, order, call in self._heap]

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

    def is_due(self, call: Callable[[Millis], None], now: Millis) -> bool:
        return self._due.get(call, NEVER) <= now

    def clock_stepped(self, by: Millis) -> None:
        """Its wakeup moves with all others."""
        self._due = {call: when + by for call, when in self._due.items()}

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


LongSteps: TypeAlias = Generator[None, Millis, None]
"""Yields where it may be interrupted, and gets the time it goes on at. Whatever it has looked at may be different then."""


class LongWork:
    """Work that would hold everybody up if it were done at once: a namespace does one step of it in each turn of its loop.

    `later` calls in the next turn. A step takes a few milliseconds at most, and which work it belongs to goes round.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object], clock: Clock) -> None:
        self._later = later
        self._clock = clock
        self._waiting: deque[LongSteps] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, steps: LongSteps) -> None:
        """Begin in a later turn."""
        # It is at its first `yield` then, and takes the time.
        next(steps)
        self._waiting.append(steps)
        if len(self._waiting) == 1:
            self._later(self._step)

    def _step(self) -> None:
        steps = self._waiting[0]
        try:
            steps.send(self._clock.now())
        except StopIteration:
            self._waiting.popleft()
        except Exception:
            log.exception("long_work_broken")
            self._waiting.popleft()
        else:
            self._waiting.rotate(-1)
        if self._waiting:
            self._later(self._step)


class OneByOne:
    """Work in the background that takes several turns of the loop: one piece at a time, in the order it was asked for.

    A fragment with a million messages that are due asks for its next piece when it has its last one, and stands behind the others
    then. Without this, all fragments of a store would work in the same turn, and every client would wait for all of them.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_busy = self._is_starting = False

    def add(self, begin: Callable[[], None]) -> None:
        """`begin` is called when it is its turn, and leads to one call of `done`, sooner or later."""
        self._waiting.append(begin)
        self._start()

    def done(self) -> None:
        self._is_busy = False
        self._start()

    def _start(self) -> None:
        # Not from inside: pieces that end at once, as all do when the store is lost, would be calls within calls.
        if self._is_starting:
            return
        self._is_starting = True
        while self._waiting and not self._is_busy:
            self._is_busy = True
            tell(self._begin, self._waiting.popleft())
        self._is_starting = False

    def _begin(self, begin: Callable[[], None]) -> None:
        try:
            begin()
        except BaseException:
            self._is_busy = False
            raise
