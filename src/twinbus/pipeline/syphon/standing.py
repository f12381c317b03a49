"""The state of pairs and their backlog queues between rounds: reports in, who may take part in the next round out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from twinbus.clock import Millis
from twinbus.pairing.syphon.destinations import PumpMemory
from twinbus.pipeline.syphon.reports import LaneReport, LaneStatus

PROBE_AFTER_MIN: Millis = 1_000
PROBE_AFTER_MAX: Millis = 30_000
REST_MIN: Millis = 1_000
REST_MAX: Millis = 60_000
HOLD_MIN: Millis = 60_000
HOLD_MAX: Millis = 3_600_000


@dataclass(slots=True)
class Breaker:
    """Of one primary: the results of rounds in, whether the next one may try out.

        closed --a round met failures and moved nothing--> open --a probe is answered--> closed
                                                           '---a probe fails: the next one later---'

    While it is open nothing is taken from the backlog: each message that is taken and left has its delivery count raised, and a
    queue with a low maximum would dead-letter good messages. A probe takes nothing.
    """

    path: str | None = None
    """The destination that failed and is to be probed; None while the breaker is closed."""
    probe_at: Millis = 0
    _probe_after: Millis = PROBE_AFTER_MIN

    @property
    def is_open(self) -> bool:
        return self.path is not None

    def round_ended(self, moved: int, failed_path: str | None, now: Millis) -> None:
        """`failed_path` is a destination that was down or busy; a moved message shows that the namespace is available."""
        if failed_path is None or moved:
            return
        self.path = failed_path
        self._probe_after = PROBE_AFTER_MIN
        self.probe_at = now + self._probe_after

    def is_probe_due(self, now: Millis) -> bool:
        return self.is_open and now >= self.probe_at

    def probe_failed(self, now: Millis) -> None:
        self._probe_after = min(PROBE_AFTER_MAX, 2 * self._probe_after)
        self.probe_at = now + self._probe_after

    def probe_answered(self) -> None:
        self.path = None


@dataclass(slots=True)
class QueueStanding:
    """A queue rests after a round that got nothing from it, longer each time: others hold its messages, or they were left and
    their locks have to end first.
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
            self.rest_until = min(max(_wakes_at(self.memory, now), now + REST_MIN), now + REST_MAX)
        elif LaneStatus.BACKLOG_DOWN in statuses or (LaneStatus.EMPTY in statuses and not did_settle):
            self.rest_until = now + self._rest_after
            self._rest_after = min(REST_MAX, 2 * self._rest_after)
        if LaneStatus.BACKLOG_DOWN in statuses and did_settle:
            # A link that breaks leaves its prefetched messages locked: later messages would overtake them.
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


def _wakes_at(memory: PumpMemory, now: Millis) -> Millis:
    """When the first message that was left can come again and its destination may be tried."""
    return min((each.next_try_at(now) for each in memory.destinations.values() if each.left), default=0)
