"""How far streams are behind: Spark's progress events in, messages behind by entity and fragment out.

    listener = LagListener(print)
    spark.streams.addListener(listener)
    listener.latest                     # the newest progress of every query, by its id

Spark knows rows and rates; what is still in the entities is in the offsets that our source reports.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from twinbus.pipeline.source.offsets import OLDEST, lag

Lag = dict[str, dict[int, int]]
"""Messages behind, by entity and fragment."""


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """One batch of a query, or a look that found nothing new."""

    query_id: str
    name: str
    batch: int
    rows: int
    rows_per_second: float
    lag: Lag = field(default_factory=dict)
    oldest_age_s: float | None = None
    """Of the oldest message that no batch has yet, when this batch began; None if there is none, or it is not known."""

    @property
    def behind(self) -> int | None:
        """None: not known, because no source has been asked yet. A batch that is repeated after a restart is not asked for."""
        return sum(count for fragments in self.lag.values() for count in fragments.values()) if self.lag else None

    def __str__(self) -> str:
        behind = "" if self.behind is None else f", {self.behind} behind"
        parts = [f"{self.name or self.query_id}: batch {self.batch}, {self.rows} rows{behind}"]
        for entity, fragments in self.lag.items():
            waiting = ", ".join(f"{fragment}: {count}" for fragment, count in sorted(fragments.items()) if count)
            parts.append(f"{entity} ({waiting or 'nothing waiting'})")
        if self.oldest_age_s is not None:
            parts.append(f"the oldest waits {self.oldest_age_s:.0f} s")
        return "; ".join(parts)


class LagListener(StreamingQueryListener):
    """Keeps the newest progress of every query and hands each to `report`. Spark calls it in a thread of its own."""

    def __init__(self, report: Callable[[StreamProgress], object] | None = None) -> None:
        self.latest: dict[str, StreamProgress] = {}
        self._report = report

    def onQueryStarted(self, event: Any) -> None:
        """What there is to know comes with the first progress."""

    def onQueryProgress(self, event: Any) -> None:
        progress = progress_of(event.progress)
        self.latest[progress.query_id] = progress
        if self._report is not None:
            self._report(progress)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing new has come: the newest progress still holds."""

    def onQueryTerminated(self, event: Any) -> None:
        self.latest.pop(str(event.id), None)


def progress_of(progress: Any) -> StreamProgress:
    """Of a `StreamingQueryProgress`, as listeners get it and `query.lastProgress` returns it."""
    return StreamProgress(
        query_id=str(progress.id),
        name=progress.name or "",
        batch=progress.batchId,
        rows=progress.numInputRows,
        rows_per_second=progress.processedRowsPerSecond,
        lag=lag_of(progress.sources),
        oldest_age_s=_oldest_age_s(progress),
    )


def _oldest_age_s(progress: Any) -> float | None:
    found = [_offset(source.latestOffset).get(OLDEST) for source in progress.sources]
    times = [time for time in found if isinstance(time, int)]
    if not times:
        return None
    began = datetime.fromisoformat(progress.timestamp).timestamp()
    return max(0.0, began - min(times) / 1000)


def lag_of(sources: Iterable[Any]) -> Lag:
    """Other kinds of sources are skipped: their offsets name no entity."""
    found: Lag = {}
    for source in sources:
        end, latest = _offset(source.endOffset), _offset(source.latestOffset)
        if "entity" in latest:
            found[latest["entity"]] = lag(end, latest)
    return found


def _offset(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
