"""How long a start waits for several others: for as long as it takes the first of them, and then while they come one after the other.

On a machine with much else to do, a process that is only slow looks like one that hangs until the first of what it starts is there.
Whoever waits for long says so, and for what: within seconds, and then less and less often.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

log = logging.getLogger(__name__)

FIRST_WAIT_S: Final = 180.0
SAY_FIRST_S: Final = 5.0
SAY_PAUSE_MAX_S: Final = 600.0


class Intervals:
    """When to say again that something takes long: each pause is twice as long as the one before."""

    def __init__(self, now: float) -> None:
        self._pause_s = SAY_FIRST_S
        self._say_at = now + SAY_FIRST_S

    def is_due(self, now: float) -> bool:
        if now < self._say_at:
            return False
        self._pause_s = min(2 * self._pause_s, SAY_PAUSE_MAX_S)
        self._say_at = now + self._pause_s
        return True

    def left_s(self, now: float) -> float:
        return max(self._say_at - now, 0.0)


class Patience:
    """`what`: the event in the log. `missing`: which of them are not there, and why. `next_wait_s`: from one that is there to the next.
    Times are those of any clock that goes on."""

    def __init__(self, what: str, count: int, missing: Callable[[], str], next_wait_s: float, now: float) -> None:
        self._what = what
        self._count = count
        self._missing = missing
        self._next_wait_s = next_wait_s
        self._there_count = 0
        self._began_at = self._since = now
        self._intervals = Intervals(now)

    def is_over(self, there_count: int, now: float) -> bool:
        """`there_count`: how many of them are there, or have failed. To be asked again and again until they are all of them."""
        if there_count != self._there_count:
            self._there_count, self._since = there_count, now
        if self._intervals.is_due(now):
            self._say(now)
        return now - self._since > (self._next_wait_s if self._there_count else FIRST_WAIT_S)

    def _say(self, now: float) -> None:
        fields = {
            "there": self._there_count,
            "of": self._count,
            "seconds": round(now - self._began_at),
            "missing": self._missing(),
        }
        log.warning(self._what, extra={"fields": fields})


@contextmanager
def said_while_it_lasts(what: str, **fields: str) -> Iterator[None]:
    """What is done here may block its thread for as long as a disk hangs: another thread says so."""
    is_over, began_at = threading.Event(), time.monotonic()

    def say() -> None:
        intervals = Intervals(began_at)
        while not is_over.wait(intervals.left_s(time.monotonic())):
            if intervals.is_due(now := time.monotonic()):
                log.warning(what, extra={"fields": {"seconds": round(now - began_at), **fields}})

    threading.Thread(target=say, name=what, daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
