"""How much a connection has sent lately: what tells one that fills the stores from one that sends a little now and then."""

from twinbus.clock import Millis

LIGHT_BYTES_PER_MS = 256
"""Who sends less than this on average is never heavy: 256 KB in a second."""
HEAVY_BYTES = 1024 * 1024


class Weight:
    __slots__ = ("_seen_at", "_size", "is_heavy")

    def __init__(self, now: Millis) -> None:
        self.is_heavy = False  # as of what came last: whoever is not read from does not become lighter
        self._size = 0
        self._seen_at = now

    def add(self, size: int, now: Millis) -> None:
        elapsed = max(0, now - self._seen_at)  # clocks are set back, a little without a word
        self._size = max(0, self._size - LIGHT_BYTES_PER_MS * elapsed) + size
        self._seen_at = now
        self.is_heavy = self._size > HEAVY_BYTES

    def clock_stepped(self, by: Millis) -> None:
        self._seen_at += by
