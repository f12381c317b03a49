"""How fast the pumps of one pair may go in one task: its plan and the pumps' events in, pauses out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinbus.clock import Millis
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.failures import FailureKind, classify
from twinbus.pairing.syphon.rate_cap import RateCap
from twinbus.pipeline.syphon.ramp import Ramp


@dataclass(frozen=True, slots=True)
class PacePlan:
    """All rates are this task's share of the job's. `rates` has the destinations that are on a ramp already,
    `start_rate` is where those begin that are met first now; None lets them go at once.
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
        """Of the destinations that are still held back."""
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
            # It went as fast as it could until now, so that is what is halved.
            seconds = max(1.0, (now - self._started_at) / 1000)
            ramp = self._ramps[path] = self._ramp(max(1.0, self._moved.get(path, 0) / seconds))
        ramp.throttled()

    def _ramp_of(self, path: str) -> Ramp | None:
        ramp = self._ramps.get(path)
        start = self._plan.start_rate if self._plan.start_rate is not None else self._plan.destination_rate
        # One that left its ramp in this task has been moved to, and does not start again.
        if ramp is None and start is not None and path not in self._moved:
            ramp = self._ramps[path] = self._ramp(start)
        return ramp

    def _ramp(self, rate: float) -> Ramp:
        ceiling = self._plan.destination_rate
        return Ramp(rate if ceiling is None else min(rate, ceiling), self._plan.share, ceiling)
