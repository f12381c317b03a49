"""How pairs and their backlog queues stand between rounds: reports in, who may take part in the next round out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from twinbus.clock import Millis
from twinbus.pairing.syphon.destinations import PumpMemory
from twinbus.pipeline.syphon.breaker import Breaker
from twinbus.pipeline.syphon.reports import LaneReport, LaneStatus

REST_MIN: Millis = 1_000
REST_MAX: Millis = 60_000
HOLD_MIN: Millis = 60_000
HOLD_MAX: Millis = 3_600_000


@dataclass(slots=True)
class QueueStanding:
    """A queue rests after a round that got nothing out of it, each time longer: others hold its messages, or they
    were left and their locks have to end first.
    """

    memory: PumpMemory | None = None
    rest_until: Millis = 0
    _rest_after: Millis = REST_MIN

    def may_run(self, now: Millis) -> bool:
        return now >= self.rest_until

    def lanes_ended(self, reports: Sequence[LaneReport], now: Millis) -> None:
        """With the reports of all its lanes. Memory is used only where a queue has one lane."""
        self.memory = reports[-1].memory
        statuses = {each.status for each in reports}
        did_settle = any(each.moved or each.dead_lettered for each in reports)
        if did_settle:
            self._rest_after = REST_MIN
        if LaneStatus.STUCK in statuses:
            self.rest_until = min(max(_wakes_at(self.memory), now + REST_MIN), now + REST_MAX)
        elif LaneStatus.BACKLOG_DOWN in statuses or (LaneStatus.EMPTY in statuses and not did_settle):
            self.rest_until = now + self._rest_after
            self._rest_after = min(REST_MAX, 2 * self._rest_after)
        if LaneStatus.BACKLOG_DOWN in statuses and did_settle:
            # A link that breaks leaves behind what it had in advance, locked: later messages would overtake it.
            self.rest(now + self.memory.lock_duration)

    def rest(self, until: Millis) -> None:
        self.rest_until = max(self.rest_until, until)


@dataclass(slots=True)
class PairStanding:
    """`rates` are those of destinations on a ramp, for the whole job. A pair is held once its poison quota is used up."""

    breaker: Breaker = field(default_factory=Breaker)
    rates: dict[str, float] = field(default_factory=dict)
    is_recovering: bool = False
    held_until: Millis = 0
    held_because: str | None = None
    queues: dict[str, QueueStanding] = field(default_factory=dict)
    _hold_after: Millis = HOLD_MIN

    def queue(self, name: str) -> QueueStanding:
        return self.queues.setdefault(name, QueueStanding())

    def may_run(self, now: Millis) -> bool:
        return not self.breaker.is_open and now >= self.held_until

    def probe_answered(self) -> None:
        self.breaker.probe_answered()
        self.is_recovering = True

    def round_ended(self, reports: Sequence[LaneReport], now: Millis) -> None:
        """With all reports of this pair. Lanes that were lost report nothing of what they did."""
        ended = [each for each in reports if each.status is not LaneStatus.LOST]
        if not ended:
            return
        self.is_recovering = False
        self.rates = _rates(ended)
        for queue in {each.queue for each in ended}:
            self.queue(queue).lanes_ended([each for each in ended if each.queue == queue], now)
        failed_path = next((each.failed_path for each in reports if each.failed_path is not None), None)
        self.breaker.round_ended(sum(each.moved for each in reports), failed_path, now)
        poisoned = [each for each in reports if each.status is LaneStatus.POISON_QUOTA]
        self.held_because = next((each.error for each in poisoned if each.error), "") if poisoned else None
        if poisoned:
            self.held_until = now + self._hold_after
            self._hold_after = min(HOLD_MAX, 2 * self._hold_after)


def _rates(reports: Sequence[LaneReport]) -> dict[str, float]:
    """Each task has its share of a destination's rate, and all lanes of a task have the same one."""
    shares = {
        (path, report.task): each.rate
        for report in reports
        for path, each in report.destinations.items()
        if path is not None and each.rate is not None
    }
    totals: dict[str, float] = {}
    for (path, _), rate in shares.items():
        totals[path] = totals.get(path, 0.0) + rate
    return totals


def _wakes_at(memory: PumpMemory) -> Millis:
    """When the first message that was left can come again and its destination may be tried."""
    times = [max(each.paused_until, min(each.left.values())) for each in memory.destinations.values() if each.left]
    return min(times, default=0)
