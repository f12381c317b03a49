"""Which messages are replayed: a place and a filter in, a DataFrame with the source's columns out, and what is in it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import translate
from typing import TYPE_CHECKING, Any

from twinbus.errors import ArgumentError, EntityNotFound
from twinbus.pipeline.captured_entities import source_options
from twinbus.pipeline.failures import reason_of
from twinbus.pipeline.lake import ENTITY, TIME, read_lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NUMBER = "sequenceNumber"
SAMPLE_COLUMNS = (ENTITY, NUMBER, TIME, "messageId", "subject", "deadLetterReason", "body")
BODY_SHOWN_MAX = 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BODY = re.compile(r"\bbody\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class EntityCount:
    """What of one entity is chosen."""

    entity: str
    messages: int
    first: datetime | None
    last: datetime | None


def dead_letters(
    spark: "SparkSession", options: Mapping[str, str], paths: Sequence[str], where: str | None, *, with_bodies: bool
) -> "DataFrame":
    """The messages in these dead-letter queues that the filter lets through; they are only looked at.

    Bodies do not leave the namespace where nobody asks for them. Raises ArgumentError for a filter that is none.
    """
    has_bodies = with_bodies or _BODY.search(where or "") is not None
    more = {**options, "includeBody": str(has_bodies).lower()}
    frames = [spark.read.format("servicebus").options(**more, **source_options(path)).load() for path in paths]
    found = frames[0]
    for frame in frames[1:]:
        found = found.unionAll(frame)
    return filtered(found, where)


def captured(spark: "SparkSession", lake: str, patterns: Sequence[str], where: str | None) -> "DataFrame":
    """The messages of the lake, of entities that match or of all.

    Raises EntityNotFound for a pattern that nothing matches, and ArgumentError for a filter that is none.
    """
    found = read_lake(spark, lake)
    if patterns:
        for pattern in patterns:
            # Entities are folders: what does not match is not even listed, and of what does one row is enough.
            if found.where(_matches([pattern])).isEmpty():
                raise EntityNotFound(f"The lake {lake} has no messages of '{pattern}'. Check the spelling.")
        found = found.where(_matches(patterns))
    return filtered(found, where)


def _matches(patterns: Sequence[str]) -> "Column":
    from pyspark.sql import functions as f

    wanted = "|".join(translate(pattern.lower()) for pattern in patterns)
    return f.lower(ENTITY).rlike(f"^(?:{wanted})")


def filtered(frame: "DataFrame", where: str | None) -> "DataFrame":
    from pyspark.errors import AnalysisException

    if where is None:
        return frame
    try:
        chosen = frame.where(where)
        _ = chosen.schema  # Spark Connect looks at a filter no sooner than this
    except AnalysisException as wrong:
        raise ArgumentError(f"--where: {reason_of(wrong).text}") from None
    return chosen


def counts_of(chosen: "DataFrame") -> list[EntityCount]:
    from pyspark.sql import functions as f

    times = f.unix_micros(TIME)
    grouped = chosen.groupBy(ENTITY).agg(f.count(f.lit(1)), f.min(times), f.max(times)).orderBy(ENTITY)
    return [EntityCount(entity, count, _time(first), _time(last)) for entity, count, first, last in grouped.collect()]


def sample_of(chosen: "DataFrame", count: int) -> list[dict[str, Any]]:
    """The first ones of them, with the beginnings of their bodies."""
    from pyspark.sql import functions as f

    first = chosen.select(*SAMPLE_COLUMNS).orderBy(ENTITY, TIME, NUMBER).limit(count)
    rows = first.withColumn(TIME, f.unix_micros(TIME)).collect()
    return [{**row.asDict(), TIME: _time(row[TIME]), "body": _shown(row["body"])} for row in rows]


def _time(micros: int | None) -> datetime | None:
    """In UTC, with its zone: Spark returns times in the zone of this machine without saying so, and such a time in a filter
    would select other messages than were shown."""
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def _shown(body: bytes | None) -> str | None:
    if body is None:
        return None
    text = bytes(body[: 4 * BODY_SHOWN_MAX]).decode(errors="replace")
    return text if len(text) <= BODY_SHOWN_MAX and len(body) == len(text.encode()) else text[:BODY_SHOWN_MAX] + "…"
