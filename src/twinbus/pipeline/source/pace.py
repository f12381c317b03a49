"""When a stream asks its namespace again: at once after it found something, else after a while.

Spark asks an idle source 70 times a second, and requests to a namespace are billed.
"""

from collections.abc import Callable


class PollPace:
    def __init__(self, interval_s: float, now: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._now = now
        self._next = float("-inf")

    def is_due(self) -> bool:
        return self._now() >= self._next

    def asked(self, *, found_some: bool) -> None:
        self._next = float("-inf") if found_some else self._now() + self._interval_s
