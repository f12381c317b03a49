"""How long this process did not get to run: a machine that swaps, a loop that is blocked, a stopped process.

Somebody who sleeps for a short while again and again notices it by waking late. What was lost is lost to every call that
was under way, and no namespace is to blame for it.
"""

from twinbus.clock import NEVER, Clock, Millis

NOTICED_MIN: Millis = 50
"""Waking late by less than this is ordinary."""


class LocalLag:
    """Time that was lost since it was made. `sleeps` is called by the sleeper, `total` by anybody."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.noticed: Millis = 0
        """By the sleeper itself."""
        self._wakes_at: Millis = NEVER

    def sleeps(self, duration: Millis) -> None:
        self._wakes_at = self._clock.now() + duration

    def wakes(self) -> None:
        self.noticed, self._wakes_at = self.total(self._clock.now()), NEVER

    def total(self, now: Millis) -> Millis:
        """Including what the sleeper has not noticed itself yet: after a stop, others may wake before it."""
        late = now - self._wakes_at
        return self.noticed + late if late > NOTICED_MIN else self.noticed
