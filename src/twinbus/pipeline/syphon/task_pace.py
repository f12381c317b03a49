"""How fast the pumps of one pair may go in one task: its plan and the pumps' events in, pauses out.

A destination that was down, or that says it is busy, gets a token bucket. Its rate rises by a fixed step a second while it is used
and is halved whenever the destination throttles; at the top the bucket is removed. Rates and steps are those of the whole job:
each task works with its share of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinbus.clock import Millis
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.stock.failures import FailureKind, classify
from twinbus.pairing.syphon.rate_cap import RateCap

START_RATE = 1_000.0
STEP_RATE = 1_000.0
RATE_MIN = 10.0
FREE_RATE = 20_000.0
"""A destination that takes this many messages a second is not limited any more."""

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
        """How long to wait before sending `count` messages, which count as sent."""
        filled = self._tokens + max(0, now - self._filled_at) * self.rate / 1000
        self._tokens = min(filled, self.rate * BURST_S) - count
        self._filled_at = now
        return 0 if self._tokens >= 0 else int(-self._tokens * 1000 / self.rate) + 1

    def acknowledged(self, count: int) -> None:
        """The step is for a second of work at the current rate, so each message adds its part of it."""
        self.rate += STEP_RATE * self.share * count / self.rate
        if self.ceiling is not None:
            self.rate = min(self.rate, self.ceiling)

    def throttled(self) -> None:
        self.rate = max(RATE_MIN * self.share, self.rate / 2)

    @property
    def is_over(self) -> bool:
        return self.ceiling is None and self.rate >= FREE_RATE * self.share


@dataclass(frozen=True, slots=True)
class PacePlan:
    """All rates are this task's share of the job's. `rates` has the destinations that are on a ramp already, `start_rate` is
    where new ones begin; None does not limit them.
    """

    share: float = 1.0
    rate: float | None = None
    destination_rate: float | None = None
    start_rate: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)


class TaskPace:
    def __init__(self, plan: PacePlan, now: Millis) -> None:
        self._plan = plan
        self._cap = RateCap(plan.rate)
        self._ramps = {path: self._ramp(rate) for path, rate in plan.rates.items()}
        self._moved: dict[str, int] = {}
        self._started_at = now

    def reserve(self, counts: Mapping[str, int], now: Millis) -> Millis:
        pause = self._cap.reserve(counts, now)
        for path, count in counts.items():
            ramp = self._ramp_of(path)
            if ramp is not None:
                pause = max(pause, ramp.reserve(count, now))
        return pause

    def observe(self, event: PairingEvent) -> None:
        path = event.path
        if path is None:
            return
        if event.kind is EventKind.SYPHON_MOVED:
            self._acknowledged(path, event.count)
        elif event.error is not None and classify(event.error) is FailureKind.BUSY:
            self._throttled(path, event.at)

    def rates(self) -> dict[str, float]:
        """Of the destinations that are still limited."""
        return {path: ramp.rate for path, ramp in self._ramps.items()}

    def _acknowledged(self, path: str, count: int) -> None:
        self._moved[path] = self._moved.get(path, 0) + count
        ramp = self._ramps.get(path)
        if ramp is None:
            return
        ramp.acknowledged(count)
        if ramp.is_over:
            del self._ramps[path]

    def _throttled(self, path: str, now: Millis) -> None:
        ramp = self._ramps.get(path)
        if ramp is None:
            # It was not limited until now, so the rate it reached is halved.
            seconds = max(1.0, (now - self._started_at) / 1000)
            ramp = self._ramps[path] = self._ramp(max(1.0, self._moved.get(path, 0) / seconds))
        ramp.throttled()

    def _ramp_of(self, path: str) -> Ramp | None:
        ramp = self._ramps.get(path)
        start = self._plan.start_rate if self._plan.start_rate is not None else self._plan.destination_rate
        # A destination that left its ramp in this task has received messages, and does not start again.
        if ramp is None and start is not None and path not in self._moved:
            ramp = self._ramps[path] = self._ramp(start)
        return ramp

    def _ramp(self, rate: float) -> Ramp:
        ceiling = self._plan.destination_rate
        return Ramp(rate if ceiling is None else min(rate, ceiling), self._plan.share, ceiling)
