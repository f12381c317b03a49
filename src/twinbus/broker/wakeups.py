"""Calls at a time: a heap that the server's timer drives through `MessageBroker.tick`; calls one after the other; and long work in
steps."""

import logging
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TypeAlias

from twinbus.broker.telling import tell
from twinbus.clock import NEVER, Clock, Millis

log = logging.getLogger(__name__)


STALE_COUNT_MAX = 1_024
"""Places of cancelled calls that are kept even if most are."""


class Wakeup:
    """A call that is to come."""

    __slots__ = ("_call", "_owner")

    def __init__(self, owner: "Wakeups", call: Callable[[Millis], object]) -> None:
        self._owner = owner
        self._call: Callable[[Millis], object] | None = call

    @property
    def is_cancelled(self) -> bool:
        return self._call is None

    def cancel(self) -> None:
        """It does not come any more. Afterwards, or after it has come, this does nothing."""
        if self._call is not None:
            self._call = None
            self._owner.dropped_one()

    def take(self) -> Callable[[Millis], object] | None:
        """The call, which is made now; None if it was cancelled."""
        call, self._call = self._call, None
        return call


class Wakeups:
    """What is cancelled is let go of at once, and its place in the heap with others: a client decides how far ahead a call is, and can
    ask for thousands of them in a second and cancel each."""

    def __init__(self) -> None:
        self._heap: list[tuple[Millis, int, Wakeup]] = []
        self._order = count()
        self._stale_count = 0

    def __len__(self) -> int:
        """Calls that are to come, and places of cancelled ones."""
        return len(self._heap)

    def at(self, when: Millis, call: Callable[[Millis], object]) -> Wakeup:
        wakeup = Wakeup(self, call)
        if when < NEVER:
            heappush(self._heap, (when, next(self._order), wakeup))
        return wakeup

    def clock_stepped(self, by: Millis) -> None:
        """What was to be called after a while still is. Whoever waits for a time of day asks again."""
        self._heap = [(when + by, order, wakeup) for when, order, wakeup in self._heap]

    def dropped_one(self) -> None:
        """One of the calls was cancelled."""
        self._stale_count += 1
        if self._stale_count > STALE_COUNT_MAX + len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if not entry[2].is_cancelled]
            heapify(self._heap)
            self._stale_count = 0

    def run(self, now: Millis) -> Millis:
        """Call what is due, and what that made due, once each; returns when the next one is."""
        heap = self._heap
        due = []
        while heap and heap[0][0] <= now:
            due.append(heappop(heap)[2])
        for wakeup in due:
            call = wakeup.take()
            if call is not None:
                tell(call, now)
        return self._heap[0][0] if self._heap else NEVER


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
Wait: TypeAlias = Callable[[Callable[[], None]], None]
"""Called at once, with what is to be called when the work may go on: once, sooner or later."""
WaitingSteps: TypeAlias = Generator[Wait | None, Millis, None]
"""As `LongSteps`; also yields what it waits for."""


class LongWork:
    """Work that would hold everybody up if it were done at once: a namespace does one step of it in each turn of its loop.

    `later` calls in the next turn. A step takes a few milliseconds at most, and which work it belongs to goes round.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object], clock: Clock) -> None:
        self._later = later
        self._clock = clock
        self._ready: deque[WaitingSteps] = deque()
        self._waiting_count = 0

    def __len__(self) -> int:
        return len(self._ready) + self._waiting_count

    def add(self, steps: WaitingSteps) -> None:
        """Begin in a later turn."""
        # It is at its first `yield` then, and takes the time.
        next(steps)
        self._put(steps)

    def _put(self, steps: WaitingSteps) -> None:
        self._ready.append(steps)
        if len(self._ready) == 1:
            self._later(self._step)

    def _step(self) -> None:
        steps = self._ready[0]
        wait: Wait | None = None
        try:
            wait = steps.send(self._clock.now())
        except StopIteration:
            self._ready.popleft()
        except Exception:
            log.exception("long_work_broken")
            self._ready.popleft()
        else:
            if wait is None:
                self._ready.rotate(-1)
            else:
                self._ready.popleft()
        if self._ready:
            self._later(self._step)
        if wait is not None:
            self._waiting_count += 1
            tell(wait, partial(self._go_on, steps))

    def _go_on(self, steps: WaitingSteps) -> None:
        self._waiting_count -= 1
        self._put(steps)


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
