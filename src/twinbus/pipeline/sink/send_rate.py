"""A cap on the rate: how many were sent in, how long to wait before the next out."""

from dataclasses import dataclass

STEP_S = 0.5
"""So much of a second's messages go out together, which is as even as anybody notices."""


@dataclass(slots=True)
class SendRate:
    """`rate` is in messages a second. Time is any clock that only goes forward, in seconds."""

    rate: float
    _free_at: float | None = None

    @property
    def count_max(self) -> int:
        """Of messages to be sent together."""
        return max(1, int(self.rate * STEP_S))

    def wait_s(self, count: int, now: float) -> float:
        """Before `count` more are sent. Time in which nothing was sent is not made up for."""
        start = now if self._free_at is None else max(now, self._free_at)
        self._free_at = start + count / self.rate
        return start - now
