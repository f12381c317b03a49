"""Spark's loop of micro-batches around a stream reader, without Spark: it can die between any two of its steps.

    latestOffset > write the log > commit of the batch before > partitions > read > sink > write the commit > latestOffset …

A batch that is in the log and not committed is run again when the query starts again, as Spark does it.
"""

import json
from collections.abc import Callable
from typing import Any

from tests.pipeline.source.bus import bodies, rows
from twinbus.pipeline.source.stream_reader import ServiceBusStreamReader

STEPS = ("planned", "logged", "read", "written", "committed")


class Died(Exception):
    """The process was killed here."""


def nothing(_: str) -> None:
    """Nobody dies."""


class Query:
    """What is durable: the log of offsets, the commits, and a sink that keeps one version of each batch."""

    def __init__(self, make_reader: Callable[[], ServiceBusStreamReader]) -> None:
        self._make_reader = make_reader
        self.log: list[str] = []
        self.commit_count = 0
        self.sink: dict[int, list[str]] = {}
        self.written: list[str] = []
        """Everything that ever reached the sink, as one without batch ids would keep it."""

    @property
    def kept(self) -> list[str]:
        return [body for batch in self.sink.values() for body in batch]

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.sink.values()]

    def run(self, step: Callable[[str], None] = nothing, batches_max: int = 1_000) -> None:
        """One run with Trigger.AvailableNow; `step` is told where it is and may raise Died."""
        reader = self._make_reader()
        reader.prepareForTriggerAvailableNow()
        limit = reader.getDefaultReadLimit()
        initial = reader.initialOffset()
        if self.commit_count < len(self.log):
            self._batch(reader, step)
        for _ in range(batches_max):
            start = self._offset(self.commit_count - 1) or initial
            end = reader.latestOffset(start, limit)
            step("planned")
            if end == start:
                return
            self.log.append(json.dumps(end))
            step("logged")
            if self.commit_count:
                reader.commit(start)
            self._batch(reader, step)

    def _batch(self, reader: ServiceBusStreamReader, step: Callable[[str], None]) -> None:
        number = self.commit_count
        end = self._offset(number)
        assert end is not None
        start = self._offset(number - 1) or reader.initialOffset()
        found = bodies(rows(reader, reader.partitions(start, end)))
        step("read")
        self.sink[number] = found
        self.written += found
        step("written")
        self.commit_count += 1
        step("committed")

    def _offset(self, number: int) -> dict[str, Any] | None:
        if number < 0:
            return None
        found: dict[str, Any] = json.loads(self.log[number])
        return found
