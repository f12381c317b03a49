"""How connections share the one thread: what each has sent in, who is worked for in this turn of the loop out.

A turn is one round of the event loop: sockets that are ready are read, timers fire, answers are written. What a connection
sends is worked on in slices, one in each turn at most, and the rest waits with reading paused. So no client is felt by another
for longer than a turn, whatever it sends:

    known        connections with a valid token have KNOWN_TURN_S of a turn together. One that used little lately is
                 worked for at once; the others wait in a line when the time is used up, and each turn takes from its front.
    strangers    connections without a valid token have STRANGERS_TURN_S of a turn together.

A slice is measured in bytes (`Share.size`, where a frame that costs more than its bytes counts more), because nothing in it reads a
clock. Its length follows the time that slices of this connection have taken: about SLICE_S. Time is that of the thread, so a machine
that is busy with other things does not count against the clients.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from twinbus.broker.telling import tell

SLICE_S = 0.005
SHARE_MIN = 2 * 1024
SHARE_FIRST = 64 * 1024
SHARE_MAX = 256 * 1024
STRANGER_SHARE = 8 * 1024

KNOWN_TURN_S = 0.010
STRANGERS_TURN_S = 0.002

MODEST_S = 0.005
MODEST_FRACTION = 0.1
"""Who used less than this part of the time lately is modest: its debt is below MODEST_S."""


class Taker(Protocol):
    """A connection that waits for its turn."""

    def take_turn(self) -> None: ...


class Share:
    """What one connection gets of a turn, and what it used."""

    __slots__ = ("_debt_s", "_seen_at", "_size", "is_stranger")

    def __init__(self) -> None:
        self.is_stranger = True
        self._size = SHARE_FIRST
        self._debt_s = 0.0
        self._seen_at = 0.0

    @property
    def size(self) -> int:
        """Of the next slice, in bytes."""
        return min(self._size, STRANGER_SHARE) if self.is_stranger else self._size

    @property
    def is_modest(self) -> bool:
        return self._debt_s < MODEST_S

    def used(self, seconds: float, now: float, *, is_behind: bool) -> None:
        """A slice took this long; `is_behind`: it would have been longer without its limit."""
        self._debt_s = max(0.0, self._debt_s - MODEST_FRACTION * (now - self._seen_at)) + seconds
        self._seen_at = now
        if seconds > SLICE_S:
            self._size = max(SHARE_MIN, self._size // 2)
        elif is_behind and seconds < SLICE_S / 4:
            self._size = min(SHARE_MAX, self._size * 2)


class _Line:
    """Connections of one kind: those that wait, and the time that all of them used in this turn."""

    __slots__ = ("limit_s", "spent_s", "waiting")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.spent_s = 0.0
        self.waiting: deque[Taker] = deque()

    def serve(self) -> None:
        """Each of those that wait once at most, while there is time; the first in any case."""
        self.spent_s = 0.0
        for _ in range(len(self.waiting)):
            tell(self.waiting.popleft().take_turn)
            if self.spent_s >= self.limit_s:
                break


class Turns:
    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        time: Callable[[], float],
        work_time: Callable[[], float],
    ) -> None:
        """`call_soon` calls in the next turn of the loop. `work_time` is the time that this thread has worked."""
        self._call_soon = call_soon
        self._time = time
        self.work_time = work_time
        self._known = _Line(KNOWN_TURN_S)
        self._strangers = _Line(STRANGERS_TURN_S)
        self._is_next_due = False

    def is_open_to(self, share: Share) -> bool:
        """Whether this connection may work at once; if not, it has to `wait`."""
        line = self._strangers if share.is_stranger else self._known
        return line.spent_s < line.limit_s or (share.is_modest and not share.is_stranger)

    def used(self, share: Share, seconds: float, *, is_behind: bool) -> None:
        """Called after every slice."""
        share.used(seconds, self._time(), is_behind=is_behind)
        line = self._strangers if share.is_stranger else self._known
        line.spent_s += seconds
        # A turn in which next to nothing happens need not be followed by another one at once.
        if line.spent_s >= line.limit_s / 4:
            self._begin_next()

    def wait(self, share: Share, taker: Taker) -> None:
        """Call `take_turn` once, in a later turn of the loop, after those that wait already."""
        line = self._strangers if share.is_stranger else self._known
        line.waiting.append(taker)
        self._begin_next()

    def _begin_next(self) -> None:
        if not self._is_next_due:
            self._is_next_due = True
            self._call_soon(self._next)

    def _next(self) -> None:
        self._is_next_due = False
        self._known.serve()
        self._strangers.serve()
        if self._known.waiting or self._strangers.waiting:
            self._begin_next()
