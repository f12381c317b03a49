"""What a task reports of its lanes: the events of pumps in, reports and Arrow rows out, and back again on the driver.

A task whose executor dies reports nothing, so the numbers may be too low; only the namespaces know the truth.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from twinbus.clock import Millis
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.stock.failures import FailureKind, classify
from twinbus.pairing.syphon.broker_clock import BrokerClock
from twinbus.pairing.syphon.destinations import Cut, Destination, Lock, PumpMemory
from twinbus.pairing.syphon.pump import LockTooShort

if TYPE_CHECKING:
    import pyarrow as pa

ERROR_LENGTH_MAX = 500
SPARK_SCHEMA = (
    "task int, attempt int, pair int, queue string, lane int, status string, started_at bigint, finished_at bigint, "
    "destinations array<struct<path: string, moved: bigint, left: bigint, dead_lettered: bigint, throttled: bigint, "
    "outages: bigint, rate: double>>, error string, worker string, memory string"
)


class LaneStatus(StrEnum):
    """Why a lane ended. None of these is an exception: a round in which everything is down is a normal round."""

    EMPTY = "empty"
    BUDGET = "budget"
    STOPPED = "stopped"
    DESTINATION_DOWN = "destination-down"
    BACKLOG_DOWN = "backlog-down"
    POISON_QUOTA = "poison-quota"
    STUCK = "stuck"
    LOST = "lost"
    """The task was repeated, and nothing is known about its first attempt."""
    MISCONFIGURED = "misconfigured"


@dataclass(slots=True)
class DestinationTally:
    """A message that was left counts each time. `rate` is what the task's ramp allows, None without one."""

    moved: int = 0
    left: int = 0
    dead_lettered: int = 0
    throttled: int = 0
    outages: int = 0
    rate: float | None = None


@dataclass(slots=True)
class LaneReport:
    """`destinations` has an entry None for messages without a destination."""

    task: int
    attempt: int
    pair: int
    queue: str
    lane: int
    status: LaneStatus
    started_at: Millis
    finished_at: Millis
    destinations: dict[str | None, DestinationTally] = field(default_factory=dict)
    error: str | None = None
    worker: str = ""
    memory: PumpMemory = field(default_factory=PumpMemory)

    @property
    def moved(self) -> int:
        return sum(each.moved for each in self.destinations.values())

    @property
    def left(self) -> int:
        return sum(each.left for each in self.destinations.values())

    @property
    def dead_lettered(self) -> int:
        return sum(each.dead_lettered for each in self.destinations.values())

    @property
    def failed_path(self) -> str | None:
        """A destination that was down, or too busy for anything."""
        return next(
            (path for path, each in self.destinations.items() if path is not None and (each.outages or each.throttled)),
            None,
        )


def to_rows(reports: Sequence[LaneReport]) -> "pa.RecordBatch":
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([_row(report) for report in reports], schema=_arrow_schema())


def from_row(row: Mapping[str, Any]) -> LaneReport:
    fields = dict(row)
    fields["status"] = LaneStatus(fields["status"])
    fields["memory"] = _read_memory(fields["memory"])
    fields["destinations"] = {
        each["path"]: DestinationTally(**{name: value for name, value in each.items() if name != "path"})
        for each in (_plain(entry) for entry in fields["destinations"])
    }
    return LaneReport(**fields)


def _row(report: LaneReport) -> dict[str, Any]:
    row = {name: getattr(report, name) for name in _arrow_schema().names}
    row["status"] = report.status.value
    row["memory"] = _write_memory(report.memory)
    row["destinations"] = [{"path": path, **asdict(each)} for path, each in report.destinations.items()]
    return row


def _arrow_schema() -> "pa.Schema":
    import pyarrow as pa

    counts = [(name, pa.int64()) for name in ("moved", "left", "dead_lettered", "throttled", "outages")]
    destination = pa.struct([("path", pa.string()), *counts, ("rate", pa.float64())])
    return pa.schema(
        [
            ("task", pa.int32()),
            ("attempt", pa.int32()),
            ("pair", pa.int32()),
            ("queue", pa.string()),
            ("lane", pa.int32()),
            ("status", pa.string()),
            ("started_at", pa.int64()),
            ("finished_at", pa.int64()),
            ("destinations", pa.list_(destination)),
            ("error", pa.string()),
            ("worker", pa.string()),
            ("memory", pa.string()),
        ]
    )


def _plain(entry: Any) -> dict[str, Any]:
    """A struct as Spark hands it over, or as Arrow does."""
    return dict(entry) if isinstance(entry, Mapping) else dict(entry.asDict())


def _write_memory(memory: PumpMemory) -> str:
    destinations = {
        path: [
            int(each.next_cut),
            each.paused_until,
            each.retry_after,
            [[number, lock.until, lock.token.hex()] for number, lock in each.left.items()],
            [[session, list(numbers.items())] for session, numbers in each.following.items()],
        ]
        for path, each in memory.destinations.items()
    }
    clock = memory.broker_clock
    return json.dumps([memory.lock_duration, [clock.ahead, clock.late_passes], destinations])


def _read_memory(text: str) -> PumpMemory:
    lock_duration, clock, destinations = json.loads(text)
    return PumpMemory(
        {
            path: Destination(
                Cut(cut),
                paused_until,
                retry_after,
                {number: Lock(until, bytes.fromhex(token)) for number, until, token in left},
                {session: dict(numbers) for session, numbers in following},
            )
            for path, (cut, paused_until, retry_after, left, following) in destinations.items()
        },
        lock_duration,
        BrokerClock(*clock),
    )


class LaneTally:
    """What the pump of one lane did, from its events: in total for the report, and in the current pass for the lane."""

    def __init__(self) -> None:
        self.destinations: dict[str | None, DestinationTally] = {}
        self.error: str | None = None
        self.moved = 0
        self.begin_pass()

    def begin_pass(self) -> None:
        self.moved_in_pass = 0
        self.has_outage = False
        self.is_backlog_down = False

    def count(self, event: PairingEvent) -> None:
        if event.error is not None:
            self.error = str(event.error)[:ERROR_LENGTH_MAX]
        if event.kind is EventKind.SYPHON_SKIPPED and event.path is None and event.count == 0:
            self.is_backlog_down = True
            return
        each = self.destinations.setdefault(event.path, DestinationTally())
        if event.kind is EventKind.SYPHON_MOVED:
            each.moved += event.count
            self.moved += event.count
            self.moved_in_pass += event.count
        elif event.kind is EventKind.SYPHON_DEAD_LETTERED:
            each.dead_lettered += event.count
        elif event.kind is EventKind.SYPHON_SKIPPED:
            each.left += event.count
            self._count_failure(each, event.error)

    def _count_failure(self, each: DestinationTally, error: BaseException | None) -> None:
        if error is None or isinstance(error, LockTooShort):
            return
        kind = classify(error)
        if kind.is_outage:
            each.outages += 1
            self.has_outage = True
        elif kind is FailureKind.BUSY:
            each.throttled += 1
