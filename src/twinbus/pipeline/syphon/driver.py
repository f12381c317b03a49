"""The driver's loop: pairs in, rounds of Spark tasks until nothing is left or somebody asks to stop.

Between rounds the driver probes destinations that were down, looks how much waits, and plans. It reads and writes no
messages.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twinbus.clock import Clock, Millis
from twinbus.errors import MessagingError
from twinbus.pipeline.failures import JobFailed, one_line_failures
from twinbus.pipeline.stop_request import StopRequest
from twinbus.pipeline.syphon.pairs import Depths, PairToSyphon, look_at_depths
from twinbus.pipeline.syphon.probe import probe
from twinbus.pipeline.syphon.reports import SPARK_SCHEMA, LaneReport, LaneStatus, from_row, to_rows
from twinbus.pipeline.syphon.round_metrics import append_metrics, metrics_table
from twinbus.pipeline.syphon.rounds import Situation, TaskPlan, plan_round
from twinbus.pipeline.syphon.standing import PairStanding
from twinbus.pipeline.syphon.syphon_settings import SyphonSettings
from twinbus.pipeline.syphon.task import run_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

IDLE_MIN: Millis = 1_000
IDLE_MAX: Millis = 60_000
FAILURES_MAX = 5
"""In a row: looks at a secondary that does not answer, or rounds that Spark could not run."""

CORES_COUNTED_MAX = 1_024


class SyphonFailed(MessagingError):
    """The job cannot reach its goal and somebody has to act."""


@dataclass(slots=True)
class PairTally:
    """`left`: how often a message was taken and left. `waiting` are those in the backlog by the latest look; None if it could not
    be asked.
    """

    name: str
    queue_count: int
    moved: int = 0
    left: int = 0
    dead_lettered: int = 0
    waiting: int | None = None
    last_error: str | None = None

    def count(self, report: LaneReport) -> None:
        self.moved += report.moved
        self.left += report.left
        self.dead_lettered += report.dead_lettered
        self.last_error = report.error or self.last_error


@dataclass(slots=True)
class SyphonJob:
    """`on_round` hears the reports of each round. A job is run once."""

    spark: "SparkSession"
    pairs: Sequence[PairToSyphon]
    settings: SyphonSettings
    clock: Clock
    stop: StopRequest
    metrics_folder: str | None = None
    on_round: Callable[[Sequence[LaneReport]], None] = lambda _: None
    tallies: list[PairTally] = field(init=False)
    round_count: int = 0
    _standings: list[PairStanding] = field(init=False)
    _idle_after: Millis = IDLE_MIN
    _look_failures: int = 0
    _round_failures: int = 0

    def __post_init__(self) -> None:
        self._standings = [PairStanding() for _ in self.pairs]
        self.tallies = [PairTally(pair.name, len(pair.backlog.queues)) for pair in self.pairs]

    def run(self, *, until_empty: bool) -> None:
        """Until the job is stopped, or with `until_empty` until no backlog queue has a message to take.

        Raises SyphonFailed, with `until_empty`, for a pair whose poison quota was used up once the others are done.
        """
        tasks_max = self.settings.tasks_max or count_cores(self.spark)
        while not self.stop.is_asked:
            self._probe()
            depths = self._look()
            self._check_looks(depths, until_empty=until_empty)
            if until_empty and self._is_done(depths):
                break
            plans = self._plan(depths, tasks_max)
            if plans:
                self._do_round(plans)
                self._idle_after = IDLE_MIN
            else:
                self._idle(depths)
        if self.stop.is_asked:
            self._look()
        if until_empty:
            self._complain_of_poison()

    def _look(self) -> Depths:
        depths = look_at_depths(self.pairs)
        for number, tally in enumerate(self.tallies):
            queues = depths.found.get(number)
            tally.waiting = None if queues is None else sum(queues.values())
        return depths

    def _plan(self, depths: Depths, tasks_max: int) -> list[TaskPlan]:
        stop_file = None if self.stop.file is None else str(self.stop.file)
        places = [pair.places for pair in self.pairs]
        situation = Situation(places, self._standings, depths.found, tasks_max, stop_file, self.settings)
        return plan_round(situation, self.clock.now())

    def _do_round(self, plans: Sequence[TaskPlan]) -> None:
        self.round_count += 1
        try:
            reports = run_round(self.spark, plans)
        except JobFailed as error:
            self._round_failures += 1
            if self._round_failures >= FAILURES_MAX:
                raise SyphonFailed(f"{FAILURES_MAX} rounds in a row failed in Spark: {error}") from error
            for tally in self.tallies:
                tally.last_error = str(error)
            reports = []
        else:
            self._round_failures = 0
        self._require_configured(reports)
        self._rest_lost_lanes(plans, reports)
        for number, standing in enumerate(self._standings):
            standing.round_ended([each for each in reports if each.pair == number], self.clock.now())
        for report in reports:
            self.tallies[report.pair].count(report)
        if self.metrics_folder is not None and reports:
            names = [pair.name for pair in self.pairs]
            append_metrics(self.spark, metrics_table(reports, self.round_count, names), self.metrics_folder)
        self.on_round(reports)

    def _require_configured(self, reports: Sequence[LaneReport]) -> None:
        for report in reports:
            if report.status is LaneStatus.MISCONFIGURED:
                raise SyphonFailed(f"The pair '{self.pairs[report.pair].name}': {report.error}")

    def _rest_lost_lanes(self, plans: Sequence[TaskPlan], reports: Sequence[LaneReport]) -> None:
        """A task that died holds locks: what comes after those messages has to wait until they are free."""
        if not self.settings.keeps_order:
            return
        ended = {(each.pair, each.queue) for each in reports if each.status is not LaneStatus.LOST}
        for plan in plans:
            for each in plan.lanes:
                pair, queue = each.lane.pair, each.lane.queue
                if (pair, queue) not in ended:
                    until = self.clock.now() + self.pairs[pair].lock_duration(queue)
                    self._standings[pair].queue(queue).rest(until)

    def _probe(self) -> None:
        for pair, standing, tally in zip(self.pairs, self._standings, self.tallies, strict=True):
            path = standing.breaker.path
            if path is None or not standing.breaker.is_probe_due(self.clock.now()):
                continue
            error = probe(pair.places.primary.resolve(), path)
            if error is None:
                standing.probe_answered()
            else:
                tally.last_error = str(error)
                standing.breaker.probe_failed(self.clock.now())

    def _check_looks(self, depths: Depths, *, until_empty: bool) -> None:
        for number, error in depths.errors.items():
            self.tallies[number].last_error = str(error)
        self._look_failures = self._look_failures + 1 if depths.errors else 0
        if until_empty and self._look_failures >= FAILURES_MAX:
            raise next(iter(depths.errors.values()))

    def _is_done(self, depths: Depths) -> bool:
        """Pairs that are held do not count: nothing more is going to be taken from them."""
        if depths.errors:
            return False
        return not any(
            depth
            for number, queues in depths.found.items()
            if self._standings[number].held_because is None
            for depth in queues.values()
        )

    def _complain_of_poison(self) -> None:
        for pair, standing in zip(self.pairs, self._standings, strict=True):
            if standing.held_because is not None:
                raise SyphonFailed(
                    f"The poison quota of {self.settings.poison_quota} messages a round is used up for the pair "
                    f"'{pair.name}'; the rest stays in the backlog. Check that its primary is the right one. "
                    f"The last reason: {standing.held_because}"
                )

    def _idle(self, depths: Depths) -> None:
        """Until something is due, and ever longer: each look at a queue is an operation that is paid for."""
        now = self.clock.now()
        pause = min([*(at - now for at in self._due_times(depths) if at > now), self._idle_after])
        self._idle_after = min(IDLE_MAX, 2 * self._idle_after)
        self.stop.wait(pause / 1000)

    def _due_times(self, depths: Depths) -> Iterator[Millis]:
        for number, queues in depths.found.items():
            standing = self._standings[number]
            if standing.breaker.is_open:
                yield standing.breaker.probe_at
            elif any(queues.values()):
                yield standing.held_until
                yield from (standing.queue(queue).rest_until for queue, depth in queues.items() if depth)


def run_round(spark: "SparkSession", plans: Sequence[TaskPlan]) -> list[LaneReport]:
    """One Spark task for each plan. The plans travel in the function, so no row is ever shuffled to place one.

    Raises JobFailed where a task could not be brought to its end.
    """

    def work(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        from pyspark import TaskContext

        from twinbus.clock import SteadyClock

        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield to_rows(run_task(plans[number], attempt, SteadyClock()))

    frame: Any = spark.range(0, len(plans), 1, len(plans))
    with one_line_failures():
        # Collected once and never kept: a second action would run the tasks again.
        return [from_row(row.asDict()) for row in frame.mapInArrow(work, SPARK_SCHEMA).collect()]


def count_cores(spark: "SparkSession") -> int:
    """How many tasks Spark runs at once: it cuts a range into as many pieces. Spark Connect has no other way to ask."""
    from pyspark.sql.functions import spark_partition_id

    # A distinct in Spark would be a shuffle, which is far more work than the rows.
    return len({row[0] for row in spark.range(CORES_COUNTED_MAX).select(spark_partition_id()).collect()})
