"""Captured messages back to entities: rows of the lake in, written by the sink, the oldest hours first.

An hour is one round, or several slices of time if it is large: between rounds the job can stop, and what was sent in one
round is older than what is sent in the next. Within a round, messages of one key are written by one task in their old
order.

Message ids are those of the lake, unless new ones are asked for: a destination that detects duplicates drops what it has
had within its window, and the lake keeps it. New ids are made of what is in the lake. Either way a replay that was stopped, or failed, can be run again from its start: a
destination that detects duplicates keeps each message once, as long as its window reaches back to the first attempt. One
that does not has the messages twice; for it the tallies say from which time to continue, which repeats one round at most.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, NamedTuple

from twinbus.pipeline.copy_ids import COPY_OF, DIGEST_LENGTH, PREFIX
from twinbus.pipeline.failures import one_line_failures
from twinbus.pipeline.lake import BATCH, DATE, ENTITY, HOUR, TIME
from twinbus.pipeline.replay.choice import NUMBER
from twinbus.pipeline.replay.copies import DEAD_LETTER_PROPERTIES
from twinbus.pipeline.replay.replay_tally import Tally
from twinbus.pipeline.stop_request import StopRequest
from twinbus.pipeline.syphon.driver import count_cores

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROUND_COUNT_MAX = 200_000
ROUND_S_MAX = 20.0
"""At a capped rate a round takes about this long, which is how late the job notices that it is to stop."""
_HOUR_US = 3_600_000_000


class Hour(NamedTuple):
    date: date
    hour: int
    counts: Mapping[str, int]
    """By entity."""

    @property
    def start(self) -> datetime:
        return datetime.combine(self.date, time(self.hour), UTC)

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(slots=True)
class LakeReplay:
    """`options` are the sink's, without a target: where the namespace is. A job is run once."""

    spark: "SparkSession"
    options: Mapping[str, str] = field(repr=False)
    stop: StopRequest
    rate: float | None = None
    is_renaming: bool = False
    show: Callable[[], None] = lambda: None
    tallies: list[Tally] = field(default_factory=list)

    def run(self, chosen: "DataFrame", hours: Sequence[Hour], destinations: Mapping[str, str]) -> None:
        """`chosen` is what `choice.captured` found, `hours` what is in it; what is captured later is left alone.

        Raises JobFailed; the round that failed may be sent in part, and the tallies say where it starts.
        """
        self.tallies = [
            Tally(entity, to, sum(hour.counts.get(entity, 0) for hour in hours)) for entity, to in destinations.items()
        ]
        task_count = count_cores(self.spark)
        for hour in hours:
            spans = list(slices(hour.total, self.rate))
            for span in spans:
                self._go_on_from(hour.start + timedelta(microseconds=span[0]))
                if self.stop.is_asked:
                    return
                part = part_of(chosen, hour, *span)
                counts = hour.counts if len(spans) == 1 else counts_in(part)
                if counts:
                    self._write(prepared(part, destinations, is_renaming=self.is_renaming), task_count)
                self._note(counts)

    def _go_on_from(self, start: datetime) -> None:
        for tally in self.tallies:
            tally.go_on_from = start if tally.left else None

    def _write(self, part: "DataFrame", task_count: int) -> None:
        from pyspark.sql import functions as f

        options = {**self.options, "idempotent": "true"}
        if self.rate is not None:
            options["maxMessagesPerSecond"] = repr(self.rate / task_count)
        key = f.coalesce("sessionId", "partitionKey", "messageId")
        placed = part.repartition(task_count, f.col(ENTITY), key).sortWithinPartitions(TIME, NUMBER)
        with one_line_failures():
            placed.write.format("servicebus").options(**options).mode("append").save()

    def _note(self, counts: Mapping[str, int]) -> None:
        for tally in self.tallies:
            tally.replayed += counts.get(tally.entity, 0)
            tally.go_on_from = tally.go_on_from if tally.left else None
        self.show()


def entities_in(hours: Iterable[Hour]) -> list[str]:
    return sorted({entity for hour in hours for entity in hour.counts})


def hours_of(chosen: "DataFrame") -> list[Hour]:
    """The oldest first."""
    with one_line_failures():
        rows = chosen.groupBy(DATE, HOUR, ENTITY).count().collect()
    found: dict[tuple[date, int], dict[str, int]] = {}
    for day, hour, entity, count in rows:
        found.setdefault((day, hour), {})[entity] = count
    return [Hour(day, hour, counts) for (day, hour), counts in sorted(found.items())]


def counts_in(part: "DataFrame") -> dict[str, int]:
    with one_line_failures():
        return {row[ENTITY]: row["count"] for row in part.groupBy(ENTITY).count().collect()}


def slices(total: int, rate: float | None) -> Iterator[tuple[int, int]]:
    """An hour cut into spans of equal length, in microseconds of it, so that one holds about what a round may."""
    count_max = ROUND_COUNT_MAX if rate is None else max(1, min(ROUND_COUNT_MAX, int(rate * ROUND_S_MAX)))
    count = min(3_600, -(-total // count_max))
    for number in range(count):
        yield number * _HOUR_US // count, (number + 1) * _HOUR_US // count


def prepared(part: "DataFrame", destinations: Mapping[str, str], *, is_renaming: bool = False) -> "DataFrame":
    """With destinations as entities, an id in every row, and without the columns of dead letters and of the lake.

    `is_renaming`: every row gets an id of its own, as `copy_ids` describes it.
    """
    from pyspark.sql import functions as f

    to = f.create_map(*(f.lit(text) for pair in destinations.items() for text in pair))
    given = f.nullif("messageId", f.lit(""))
    kept = f.map_filter("properties", lambda name, _: ~name.isin(*DEAD_LETTER_PROPERTIES))
    if is_renaming:
        named, kept = _new_id(given), _with_original(kept, given)
    else:
        named = f.coalesce(given, f.md5(f.concat_ws("/", *_place())))
    return (
        part.where(f.col(ENTITY).isin(*destinations))
        .withColumn("properties", kept)  # first: it may hold the id that is replaced
        .withColumn("messageId", named)
        .withColumn(ENTITY, to[f.col(ENTITY)])
        .drop(DATE, HOUR, BATCH)
    )


def _new_id(given: "Column") -> "Column":
    from pyspark.sql import functions as f

    # A path has no line break, and a number has none; the id is the last.
    facts = f.concat_ws("\n", *_place(), given)
    return f.concat(f.lit(PREFIX), f.substring(f.sha2(facts, 256), 1, DIGEST_LENGTH))


def _place() -> "list[Column]":
    """Where a message was, as texts. With its time: an entity that is created again gives the same numbers again."""
    from pyspark.sql import functions as f

    return [f.lower(ENTITY), f.col(NUMBER).cast("string"), f.unix_micros(TIME).cast("string")]


def _with_original(properties: "Column", given: "Column") -> "Column":
    """Values are JSON, as the sink reads them; a copy of a copy keeps the id of the first original."""
    from pyspark.sql import functions as f

    known = f.coalesce(properties, f.create_map().cast("map<string,string>"))
    # There is JSON of arrays and not of texts: the brackets go.
    text = f.to_json(f.array(given))
    added = f.map_concat(known, f.create_map(f.lit(COPY_OF), f.substring(text, 2, f.length(text) - 2)))
    return f.when(given.isNull() | f.map_contains_key(known, COPY_OF), known).otherwise(added)


def part_of(chosen: "DataFrame", hour: Hour, first_us: int, end_us: int) -> "DataFrame":
    from pyspark.sql import functions as f

    place = f.unix_micros(TIME) % _HOUR_US
    in_hour = chosen.where((f.col(DATE) == f.lit(hour.date)) & (f.col(HOUR) == hour.hour))
    return in_hour.where((place >= first_us) & (place < end_us))
