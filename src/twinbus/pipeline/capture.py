"""Capture: the messages of entities to the lake, each of them once; one streaming query for each entity.

    source --> batch of the stream --> folders of the lake with the batch's number
                 ^ the checkpoint has what is in it        ^ written again after a crash: replaced

Browsing leaves the messages where they are; consuming removes those that are in the lake. A capture that was stopped or
killed continues where it stopped, by the checkpoint beside its messages.

A capture sends nothing, so nothing of it can be dropped as a duplicate, and it tells messages apart by their sequence
numbers: two messages with one id are both in the lake.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from twinbus.clock import NEVER, Millis, SystemClock
from twinbus.pipeline.capture_lock import CaptureLock, CaptureRuns
from twinbus.pipeline.captured_entities import source_options
from twinbus.pipeline.completeness import Complete, committed_offset, complete_fragments, unfinished_batch
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.failures import JobFailed, Reason, one_line_failures, reason_of
from twinbus.pipeline.lake import checkpoint_folder, clear_unfinished, known_spelling, lock_file, write_batch
from twinbus.pipeline.listener import progress_of
from twinbus.pipeline.source.engine import SAYS_START
from twinbus.pipeline.source.option_table import MAX_MESSAGES
from twinbus.pipeline.table_formats import TableFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger(__name__)

AT_ONCE_DEFAULT = 4
"""How many queries run at a time with --available-now; each has its own process for its source."""
LOOK_EVERY_S = 0.2
FINISH_WAIT_S = 60.0
RETRY_FIRST_S = 1.0
RETRY_MOST_S = 30.0
WRITING_MS_MAX = 24 * 3_600_000
"""No batch takes longer to write, where nothing says whether somebody still does."""


class CaptureMode(StrEnum):
    BROWSE = "browse"
    CONSUME = "consume"


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """`options` are the source's, without the entity: where the namespace is, and how much a batch may hold.

    `interval_s` is the time between batches; None ends the capture when all that was there at its start is in the lake.
    """

    lake: str
    mode: CaptureMode
    options: Mapping[str, str] = field(repr=False)
    interval_s: float | None = None
    table_format: TableFormat = TableFormat.PARQUET

    @property
    def is_endless(self) -> bool:
        return self.interval_s is not None


class CaptureState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    RETRYING = "retrying"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


OVER = frozenset({CaptureState.DONE, CaptureState.STOPPED, CaptureState.FAILED})


@dataclass(slots=True)
class Tally:
    """What one capture has done in this run; `behind` is what waits to be read, as far as the namespace says.

    `per_second` is since the run began, `left_s` what is behind at that rate, and `oldest_age_s` the age of the oldest
    message that is not captured yet. `complete` is of all runs together: up to which number the lake has everything, by fragment. Known at the end.
    """

    entity: str
    state: CaptureState = CaptureState.WAITING
    messages: int = 0
    batches: int = 0
    behind: int | None = None
    behind_by_fragment: dict[int, int] = field(default_factory=dict)
    per_second: float | None = None
    left_s: float | None = None
    oldest_age_s: float | None = None
    complete: list[Complete] | None = None
    last_error: str | None = None


class Capture:
    """One entity. `look` is called every now and then, by one thread; Spark's threads do the work."""

    def __init__(self, spark: "SparkSession", entity: str, settings: CaptureSettings) -> None:
        self.tally = Tally(entity)
        self._spark = spark
        self._settings = settings
        self._query: StreamingQuery | None = None
        self._lock: CaptureLock | None = None
        self._counted_until = ""  # a time as Spark writes it, which sorts as text
        self._began_s = time.monotonic()
        self._retry_at = 0.0
        self._retry_s = RETRY_FIRST_S

    @property
    def is_over(self) -> bool:
        return self.tally.state in OVER

    def start(self, now_s: float) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if self.tally.state is CaptureState.WAITING:
            self._began_s = now_s
        spark, lake = self._spark, self._settings.lake
        try:
            entity = self.tally.entity = known_spelling(spark, lake, self.tally.entity)
            file = lock_file(spark, lake, entity)
            self._lock = None if file is None else CaptureLock.take(file)
            clear_unfinished(spark, lake, entity, self._unfinished_before())
            repeated = unfinished_batch(spark, checkpoint_folder(lake, entity))
            batches = BatchWriter(lake, entity, self._settings.table_format, repeated)
            self._query = self._writer(batches).start()
        except (PySparkException, Py4JError) as failure:
            self._failed(reason_of(failure), now_s)
            return
        except (CaptureRuns, OSError) as failure:
            self._failed(Reason(str(failure), isinstance(failure, CaptureRuns)), now_s)
            return
        batches.belong_to(str(self._query.id))
        self.tally.state = CaptureState.RUNNING

    def look(self, now_s: float) -> None:
        """Notice the end of the query. One that failed for a reason that may pass is started again after a while."""
        if self.tally.state is CaptureState.RETRYING and now_s >= self._retry_at:
            self.start(now_s)
        if self._query is None or self.tally.state is not CaptureState.RUNNING:
            return
        is_active = self._query.isActive  # asked first: what is said after the end is final
        self._count(self._query)
        if is_active:
            return
        failure = self._query.exception()
        if failure is None:
            self._unlock()
            self.tally.state = CaptureState.DONE
            # The last that was said is from before its last batch.
            self.tally.behind, self.tally.left_s, self.tally.oldest_age_s = 0, None, None
            self.tally.behind_by_fragment = {}
            self._find_complete()
        else:
            self._failed(reason_of(failure), now_s)

    def _count(self, query: "StreamingQuery") -> None:
        """Add up what has been committed since the last look. Spark keeps the newest hundred batches."""
        last = query.lastProgress
        if last is None or last.timestamp == self._counted_until:
            return
        recent = query.recentProgress
        for progress in recent:
            if progress.timestamp > self._counted_until and progress.numInputRows:
                self.tally.messages += progress.numInputRows
                self.tally.batches += 1
                self._retry_s = RETRY_FIRST_S
        self._counted_until = recent[-1].timestamp
        newest = progress_of(recent[-1])
        self.tally.behind, self.tally.oldest_age_s = newest.behind, newest.oldest_age_s
        self.tally.behind_by_fragment = {
            fragment: count for fragments in newest.lag.values() for fragment, count in fragments.items()
        }
        self._estimate(time.monotonic())

    def _estimate(self, now_s: float) -> None:
        tally, elapsed_s = self.tally, now_s - self._began_s
        if tally.messages and elapsed_s > 0:
            tally.per_second = round(tally.messages / elapsed_s, 1)
            tally.left_s = None if tally.behind is None else round(tally.behind / (tally.messages / elapsed_s), 1)

    def revive(self) -> None:
        """The entity exists again after it was deleted: start its capture again."""
        if self.is_over:
            self.tally.state = CaptureState.WAITING

    def stop(self) -> None:
        """The batch that is being written is finished; if that takes too long, it will be written again next time.

        So will one that has begun since: a capture that is behind has batch after batch, and never rests.
        """
        if self._query is not None and self.tally.state is CaptureState.RUNNING:
            deadline = time.monotonic() + FINISH_WAIT_S
            under_way = _last_batch(self._query)
            while self._query.isActive and self._query.status["isTriggerActive"] and time.monotonic() < deadline:
                if _last_batch(self._query) != under_way:
                    break
                time.sleep(LOOK_EVERY_S)
            self._count(self._query)
            self._query.stop()
        self._unlock()
        if not self.is_over:
            self.tally.state = CaptureState.STOPPED
            self._find_complete()

    def _find_complete(self) -> None:
        """From what is on the disk and in the namespace: what this run saw is not all that was captured."""
        settings, entity = self._settings, self.tally.entity
        try:
            with one_line_failures():
                committed = committed_offset(self._spark, checkpoint_folder(settings.lake, entity))
        except JobFailed as failure:  # its checkpoint is damaged
            log.warning("Cannot determine up to which number '%s' is captured: %s", entity, failure)
        else:
            options = ConnectionOptions.from_options(settings.options)
            self.tally.complete = complete_fragments(options, entity, committed)

    def _failed(self, reason: Reason, now_s: float) -> None:
        self._unlock()
        self.tally.last_error = reason.text
        log.warning("The capture of '%s' failed: %s", self.tally.entity, reason.text)
        if not (reason.is_transient and self._settings.is_endless):
            self.tally.state = CaptureState.FAILED
            if self._query is not None:
                self._find_complete()
            return
        self.tally.state = CaptureState.RETRYING
        self._retry_at = now_s + self._retry_s
        self._retry_s = min(self._retry_s * 2, RETRY_MOST_S)

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _unfinished_before(self) -> Millis:
        """From when on what is not finished may be what another capture writes now."""
        return NEVER if self._lock is not None else SystemClock().now() - WRITING_MS_MAX

    def _writer(self, batches: "BatchWriter") -> "DataStreamWriter":
        settings, entity = self._settings, self.tally.entity
        options = {**settings.options, **source_options(entity), "mode": settings.mode.value}
        if settings.mode is CaptureMode.BROWSE:
            # A message that is deferred before it is read would be missing for good: its number is passed then.
            options["includeStates"] = "active,deferred"
        if not SAYS_START:
            # An older Spark has no limits for streams: what is there is one batch.
            options.pop(MAX_MESSAGES, None)
        writer = self._spark.readStream.format("servicebus").options(**options).load().writeStream
        writer = writer.queryName(f"capture of {entity}").foreachBatch(batches)
        writer = writer.option("checkpointLocation", checkpoint_folder(settings.lake, entity))
        if settings.interval_s is None:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{int(settings.interval_s * 1000)} milliseconds")


def _last_batch(query: "StreamingQuery") -> int | None:
    """The number of the last batch that is committed."""
    last = query.lastProgress
    return None if last is None else last.batchId


class BatchWriter:
    """Writes the batches of one query to the lake. Spark calls it in a thread of its own, a batch at a time."""

    def __init__(self, lake: str, entity: str, table_format: TableFormat, repeated: int | None) -> None:
        """`repeated`: the number of the batch that an earlier run began and did not finish."""
        self._lake = lake
        self._entity = entity
        self._table_format = table_format
        self._repeated = repeated
        self._capture = ""
        self._is_named = threading.Event()

    def belong_to(self, query_id: str) -> None:
        """The query's id is known once it runs, and stays the same for as long as there is the checkpoint.

        Numbers of batches start over with a new checkpoint; without the id they would replace older ones.
        """
        self._capture = query_id
        self._is_named.set()

    def __call__(self, messages: "DataFrame", number: int) -> None:
        self._is_named.wait()
        write_batch(
            messages,
            self._lake,
            self._entity,
            f"{self._capture}-{number:010}",
            self._table_format,
            is_repeated=number == self._repeated,
        )


def run_captures(
    captures: list[Capture],
    stop: threading.Event,
    show: Callable[[], None],
    at_once: int | None = None,
    newcomers: Callable[[float], Sequence[Capture]] = lambda now_s: (),
) -> None:
    """Until all are over or `stop` is set. `show` is called whenever there may be something new to see.

    `at_once`: how many run at the same time, all if None. What `newcomers` finds joins the captures.
    """
    try:
        while not stop.is_set() and not all(capture.is_over for capture in captures):
            now_s = time.monotonic()
            captures += newcomers(now_s)
            waiting = [capture for capture in captures if capture.tally.state is CaptureState.WAITING]
            running = sum(capture.tally.state is CaptureState.RUNNING for capture in captures)
            for capture in waiting[: None if at_once is None else max(0, at_once - running)]:
                capture.start(now_s)
            for capture in captures:
                capture.look(now_s)
            show()
            stop.wait(LOOK_EVERY_S)
    finally:
        for capture in captures:
            capture.stop()
        show()
