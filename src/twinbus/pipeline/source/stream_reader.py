"""`readStream`: Spark's calls in, offsets and record batches out.

Everything but `read` runs in one process that Spark keeps for a query, `read` in executors, on a copy that was taken
elsewhere and pickled: what it needs is in the input partition and in the options.
"""

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from twinbus.clock import SystemClock
from twinbus.pipeline.source.access.connections import Detect
from twinbus.pipeline.source.browse_stream import BrowseStream
from twinbus.pipeline.source.consume_stream import ConsumeStream
from twinbus.pipeline.source.engine import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from twinbus.pipeline.source.live_entity import LiveEntity, detected
from twinbus.pipeline.source.offsets import NEW_QUERY, JsonOffset
from twinbus.pipeline.source.options import Mode, SourceOptions
from twinbus.pipeline.source.partition_reader import read_slices
from twinbus.pipeline.source.planning import BatchLimit, MessageSlices


class ServiceBusStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made cheaply, and often: it connects when it is first asked for something."""

    def __init__(self, options: SourceOptions, names: Sequence[str], detect: Detect = detected) -> None:
        self._options = options
        self._names = tuple(names)
        self._detect = detect

    def __getstate__(self) -> dict[str, Any]:
        """To executors go the options and the columns, no stream and no connection."""
        return {"_options": self._options, "_names": self._names}

    @cached_property
    def _stream(self) -> BrowseStream | ConsumeStream:
        entity = LiveEntity(self._options.connection, self._options.path, detect=self._detect)
        if self._options.mode is Mode.CONSUME:
            return ConsumeStream(self._options, entity, monotonic=time.monotonic, new_owner=_new_owner)
        return BrowseStream(self._options, entity, monotonic=time.monotonic, wall=SystemClock().now)

    def initialOffset(self) -> JsonOffset:
        """Asked for again whenever a query starts again, so always the same."""
        return dict(NEW_QUERY)

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.entity.set_target()

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._options)

    def latestOffset(self, start: JsonOffset | None = None, limit: ReadLimit | None = None) -> JsonOffset:
        """Everything up to `start` is committed when Spark calls this: here is where it can be removed."""
        return self._stream.latest(dict(NEW_QUERY) if start is None else start, batch_limit(limit, self._options))

    def reportLatestOffset(self) -> JsonOffset | None:
        """As of the last question to the namespace; this one asks nothing."""
        return self._stream.entity.reported

    def partitions(self, start: JsonOffset, end: JsonOffset) -> list[MessageSlices]:
        """From `end` alone: a batch that is run again, maybe years later, is the same batch."""
        return self._stream.partitions(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, MessageSlices)
        return read_slices(partition, self._options, self._names)

    def commit(self, end: JsonOffset) -> None:
        """Spark commits a batch here only when the next one has data, so nothing is left to this."""

    def stop(self) -> None:
        """Spark ends the process first; what is claimed stays so for the next run."""


def _new_owner() -> str:
    return f"spark-{uuid4().hex[:16]}"


def default_limit(options: SourceOptions) -> ReadLimit:
    """Spark has no limit of both kinds: it gets the limit of rows, and the limit of bytes is kept anyway."""
    if options.count_max is not None:
        return ReadMaxRows(options.count_max)
    return ReadAllAvailable() if options.bytes_max is None else ReadMaxBytes(options.bytes_max)


def batch_limit(limit: Any, options: SourceOptions) -> BatchLimit:
    """What Spark asks for counts; where it asks for all there is, or says nothing that we know, see below."""
    if isinstance(limit, ReadMaxRows):
        return BatchLimit(limit.max_rows, options.bytes_max)
    if isinstance(limit, ReadMaxBytes):
        return BatchLimit(None, limit.max_bytes)
    if isinstance(limit, ReadAllAvailable):
        return BatchLimit(None, None)  # regardless of the options, says Spark
    return BatchLimit(options.count_max, options.bytes_max)
