"""A cap on messages per second, shared by all pumps, so that live traffic keeps its share."""

import threading
from collections.abc import Mapping
from typing import Protocol

from twinbus.clock import Millis


class Pace(Protocol):
    """How fast a pump may go."""

    def reserve(self, counts: Mapping[str, int], now: Millis) -> Millis:
        """How long to wait before sending this many messages to each destination."""
        ...


class RateCap:
    """Hands out time slots one after the other; a burst waits for the slots it took."""

    def __init__(self, per_second: float | None) -> None:
        self._per_second = per_second
        self._free_at: float = 0
        self._lock = threading.Lock()

    def reserve(self, counts: Mapping[str, int], now: Millis) -> Millis:
        """The first ones after a pause go at once."""
        if self._per_second is None:
            return 0
        with self._lock:
            start = max(self._free_at, now)
            self._free_at = start + sum(counts.values()) * 1000 / self._per_second
            return int(start - now)
