"""Ramp-up: acknowledged and throttled sends in, how fast a destination may be sent to out.

A destination that was down, or that says it is busy, gets a token bucket. Its rate rises by a fixed step a second while
it is used and is halved whenever the destination throttles; at the top the bucket is taken away. Rates and steps are
those of the whole job: each task works with its share of them.
"""

from dataclasses import dataclass

from twinbus.clock import Millis

START_RATE = 1_000.0
STEP_RATE = 1_000.0
RATE_MIN = 10.0
FREE_RATE = 20_000.0
"""A destination that takes so many messages a second is not held back any more."""

BURST_S = 0.1


@dataclass(slots=True)
class Ramp:
    """Of one destination in one task, whose share of the job is `share`. `ceiling` is the user's cap, if any."""

    rate: float
    share: float = 1.0
    ceiling: float | None = None
    _tokens: float = 0.0
    _filled_at: Millis = 0

    def reserve(self, count: int, now: Millis) -> Millis:
        """How long to wait before `count` messages are sent; they are as good as sent."""
        filled = self._tokens + max(0, now - self._filled_at) * self.rate / 1000
        self._tokens = min(filled, self.rate * BURST_S) - count
        self._filled_at = now
        return 0 if self._tokens >= 0 else int(-self._tokens * 1000 / self.rate) + 1

    def acknowledged(self, count: int) -> None:
        """The step is for a second of work at the present rate, so each message brings its part of it."""
        self.rate += STEP_RATE * self.share * count / self.rate
        if self.ceiling is not None:
            self.rate = min(self.rate, self.ceiling)

    def throttled(self) -> None:
        self.rate = max(RATE_MIN * self.share, self.rate / 2)

    @property
    def is_over(self) -> bool:
        return self.ceiling is None and self.rate >= FREE_RATE * self.share
