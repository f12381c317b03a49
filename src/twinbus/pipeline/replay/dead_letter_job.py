"""Dead letters back to their entities: the chosen messages in, rounds of Spark tasks until none is left.

A round has one task for each dead-letter queue. What a task cannot do because of something that may pass is tried again
by the next round, after a while; a queue that has nothing more to give is done, whatever was chosen of it.

What is gone then was taken by somebody else, or was moved by a task that was lost with its executor before it could report:
where a task was repeated, the two cannot be told apart, and neither is claimed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twinbus.clock import NEVER, Millis
from twinbus.errors import MessagingError
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.failures import one_line_failures
from twinbus.pipeline.lake import ENTITY, TIME
from twinbus.pipeline.replay.choice import NUMBER
from twinbus.pipeline.replay.dead_letter_task import MovePlan, MoveReport, numbers_in, run_move
from twinbus.pipeline.replay.replay_tally import Tally
from twinbus.pipeline.source.ranges import runs
from twinbus.pipeline.stop_request import StopRequest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BUDGET_S = 10.0
"""Of a round, which is how late the job notices that it is to stop where its tasks cannot see the file that says so."""
BUDGET_S_MAX = 120.0
"""For a queue whose selected messages are behind so many others that a shorter round does not reach them."""
RETRY_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Before each round that follows one in which nothing could be moved; behind the last of them the job fails. A lock is
over in the meantime, unless the entity has longer ones than usual.
"""
SPECULATION = "spark.speculation"
NOT_REACHED = (
    "The selected messages are behind so many others that none was reached. Replay without --where, or replay "
    "earlier messages first."
)


class ReplayFailed(MessagingError):
    """The replay cannot continue; what was replayed before stays replayed."""


@dataclass(slots=True)
class _Queue:
    """`chosen` and `sent` are the numbers that have to be moved, and those that have only to be removed; none of them was enqueued
    after `newest`.
    """

    tally: Tally
    chosen: set[int]
    newest: Millis = NEVER
    is_renaming: bool = False
    sent: set[int] = field(default_factory=set)
    is_drained: bool = False
    may_have_lost_reports: bool = False
    """Stays true: the lost attempt may go on for as long as its round lasts, though the driver does not hear of it."""
    budget_s: float = BUDGET_S

    @property
    def is_done(self) -> bool:
        return self.is_drained or not (self.chosen or self.sent)


@dataclass(slots=True)
class DeadLetterReplay:
    """`show` is called after every round. A job is run once."""

    spark: "SparkSession"
    connection: ConnectionOptions
    stop: StopRequest
    rate: float | None = None
    show: Callable[[], None] = lambda: None
    tallies: list[Tally] = field(default_factory=list)

    def run(self, chosen: "DataFrame", destinations: Mapping[str, str], renamed: Mapping[str, bool]) -> None:
        """`chosen` is what `choice.dead_letters` found; `renamed` is what `message_ids` says about the destinations.

        Raises ReplayFailed.
        """
        queues = self._queues(chosen, destinations, renamed)
        self.tallies = [queue.tally for queue in queues]
        retry = 0
        while not self.stop.is_asked and (waiting := [queue for queue in queues if not queue.is_done]):
            reports = run_round(self.spark, [self._plan(queue, len(waiting)) for queue in waiting])
            has_moved = False
            for queue, report in zip(waiting, reports, strict=True):
                has_moved |= note(queue, report)
            self.show()
            if has_moved or all(queue.is_done for queue in queues):
                retry = 0
            elif retry == len(RETRY_S):
                raise ReplayFailed(f"Nothing could be moved in {retry + 1} rounds: {self._last_error()}")
            else:
                self.stop.wait(RETRY_S[retry])
                retry += 1

    def _queues(
        self, chosen: "DataFrame", destinations: Mapping[str, str], renamed: Mapping[str, bool]
    ) -> list[_Queue]:
        from pyspark.sql import functions as f

        numbers: dict[str, set[int]] = {}
        newest: dict[str, Millis] = {}
        # The report of the attempt that is slower is lost too, whichever of them it is.
        is_speculative = self.spark.conf.get(SPECULATION, "false") == "true"
        with one_line_failures():
            found = chosen.select(ENTITY, NUMBER, f.unix_millis(TIME).alias(TIME)).toArrow()
        for entity, number, time in zip(*(found[name].to_pylist() for name in (ENTITY, NUMBER, TIME)), strict=True):
            numbers.setdefault(entity, set()).add(number)
            newest[entity] = max(time, newest.get(entity, time))
        return [
            _Queue(
                Tally(entity, destinations[entity], len(each)),
                each,
                newest[entity],
                renamed[destinations[entity]],
                may_have_lost_reports=is_speculative,
            )
            for entity, each in sorted(numbers.items())
        ]

    def _plan(self, queue: _Queue, task_count: int) -> MovePlan:
        return MovePlan(
            self.connection,
            queue.tally.entity,
            queue.tally.destination,
            runs(queue.chosen),
            runs(queue.sent),
            queue.is_renaming,
            queue.newest,
            None if self.rate is None else self.rate / task_count,
            queue.budget_s,
            None if self.stop.file is None else str(self.stop.file),
        )

    def _last_error(self) -> str:
        return next((tally.last_error for tally in self.tallies if tally.last_error), "the reason is unknown.")


def note(queue: _Queue, report: MoveReport) -> bool:
    """Put down what became of a queue's messages; whether it was anything. Raises ReplayFailed for what cannot pass."""
    moved, refused, sent = numbers_in(report.moved), numbers_in(report.refused), numbers_in(report.sent)
    queue.chosen -= moved | refused | sent
    queue.sent = sent
    tally = queue.tally
    tally.replayed += len(moved)
    tally.refused += len(refused)
    tally.last_error = report.error or tally.last_error
    queue.may_have_lost_reports |= report.is_repeated
    if report.error is not None and not report.is_transient and not refused:
        raise ReplayFailed(f"'{tally.entity}': {report.error}")
    if report.is_drained:
        queue.is_drained = True
        # The copy of what was sent and is gone was acknowledged, so somebody has it.
        tally.replayed += len(queue.sent)
        if queue.may_have_lost_reports:
            tally.unconfirmed = len(queue.chosen)
        else:
            tally.missing = len(queue.chosen)
    has_moved = bool(moved or refused or sent)
    if not has_moved and not report.is_drained and report.error is None:
        queue.budget_s = min(2 * queue.budget_s, BUDGET_S_MAX)
        tally.last_error = NOT_REACHED
    return has_moved


def run_round(spark: "SparkSession", plans: Sequence[MovePlan]) -> list[MoveReport]:
    """One Spark task for each plan; the reports in the order of the plans. Raises JobFailed."""

    def work(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa
        from pyspark import TaskContext

        from twinbus.clock import SystemClock

        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                report = run_move(plans[number], SystemClock(), attempt)
                yield pa.record_batch({"number": pa.array([number]), "report": pa.array([report.to_json()])})

    frame: Any = spark.range(0, len(plans), 1, len(plans))
    with one_line_failures():
        # Collected once and never kept: a second action would run the tasks again.
        rows = frame.mapInArrow(work, "number bigint, report string").collect()
    return [MoveReport.from_json(row["report"]) for row in sorted(rows, key=lambda row: int(row["number"]))]
