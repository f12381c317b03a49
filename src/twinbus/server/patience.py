"""How long a start waits for several others: for as long as it takes the first of them, and then while they come one after the other.

On a machine with much else to do, a process that is only slow looks like one that hangs until the first of what it starts is there.
Whoever waits for long says so.
"""

import logging
from typing import Final

log = logging.getLogger(__name__)

FIRST_WAIT_S: Final = 180.0
SAY_EVERY_S: Final = 10.0


class Patience:
    """`what`: the event in the log. `next_wait_s`: from one that is there to the next. Times are those of any clock that goes on."""

    def __init__(self, what: str, count: int, next_wait_s: float, now: float) -> None:
        self._what = what
        self._count = count
        self._next_wait_s = next_wait_s
        self._there_count = 0
        self._began_at = self._since = now
        self._say_at = now + SAY_EVERY_S

    def is_over(self, there_count: int, now: float) -> bool:
        """`there_count`: how many of them are there, or have failed. To be asked again and again until they are all of them."""
        if there_count != self._there_count:
            self._there_count, self._since = there_count, now
        if now >= self._say_at:
            self._say_at = now + SAY_EVERY_S
            waited_s = round(now - self._began_at)
            fields = {"there": there_count, "of": self._count, "seconds": waited_s}
            log.warning(self._what, extra={"fields": fields})
        return now - self._since > (self._next_wait_s if self._there_count else FIRST_WAIT_S)
