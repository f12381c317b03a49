"""`readStream` on Spark 4.0 and 4.1: a batch ends where the entity ends.

These versions ask where a batch may end and do not say where it starts, after a restart least of all. So a batch has all
there is, and an offset has nothing but ends: whatever else it said would differ after a restart, and Spark takes a
different offset for new data. Where a batch starts is where the one before it ended, which Spark says when it plans.
"""

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from twinbus.clock import SystemClock
from twinbus.errors import FragmentUnavailable
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.source import option_table as names
from twinbus.pipeline.source.access.entity_access import EntityAccess, creation_time, was_created_again
from twinbus.pipeline.source.engine import VERSION
from twinbus.pipeline.source.live_entity import LiveEntity
from twinbus.pipeline.source.offsets import NEW_QUERY, BrowseOffset, JsonOffset, Positions
from twinbus.pipeline.source.options import Edge, Mode, SourceOptions
from twinbus.pipeline.source.partition_reader import read_slices
from twinbus.pipeline.source.planning import MessageSlices
from twinbus.pipeline.source.ranges import Range
from twinbus.pipeline.source.starting_points import (
    chosen_heads,
    lost_counts,
    report_loss,
    starting_positions,
    visible_ends,
)
from twinbus.pipeline.source.streamed_entity import StreamedEntity


def check_options(options: SourceOptions) -> None:
    """Raises OptionError for what cannot be done without knowing where a batch starts."""
    needs = {
        f"{names.MODE}=consume": options.mode is Mode.CONSUME,
        f"{names.STARTING_OFFSETS}=latest": options.start is Edge.LATEST,
        names.MAX_MESSAGES: options.count_max is not None,
        names.MAX_BYTES: options.bytes_max is not None,
    }
    for name, is_asked_for in needs.items():
        if is_asked_for:
            raise OptionError(f"{name} needs Spark 4.2 or later for streams; this is Spark {VERSION}.")


class UnboundedStreamReader(DataSourceStreamReader):
    """As `ServiceBusStreamReader`: made cheaply and often, and pickled for `read`."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        """Raises OptionError."""
        check_options(options)
        self._options = options
        self._columns = tuple(columns)
        self._last: JsonOffset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_columns": self._columns}

    @cached_property
    def _entity(self) -> StreamedEntity:
        return StreamedEntity(self._options, LiveEntity(self._options.connection, self._options.path), time.monotonic)

    def initialOffset(self) -> JsonOffset:
        return dict(NEW_QUERY)

    def latestOffset(self) -> JsonOffset:  # type: ignore[override]  # what has no parameters is asked as of old
        self._entity.check()
        if self._last is None or self._entity.is_poll_due():
            found = self._entity.call(self._ends).to_json()
            self._entity.polled(found_some=found != self._last)
            self._last = found
        return self._last

    def partitions(self, start: JsonOffset, end: JsonOffset) -> list[MessageSlices]:
        before = BrowseOffset.from_json(start, self._options.path)
        to = BrowseOffset.from_json(end, self._options.path)
        if to is None:
            return []
        is_other = before is not None and was_created_again(before.created_at, to.created_at)
        reached = {} if before is None or is_other else before.end
        return self._entity.partitions(
            self._entity.call(lambda access: self._ranges(access, reached, to.end)), to.tasks
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of its own where there is none.
        if not isinstance(partition, MessageSlices):
            return iter(())
        return read_slices(partition, self._options, self._columns)

    def commit(self, end: JsonOffset) -> None:
        """Nothing is removed, so there is nothing to do."""

    async def _ends(self, access: EntityAccess) -> BrowseOffset:
        """Of all fragments: one that is left out now would be read again from its start later.

        Raises FragmentUnavailable.
        """
        heads = await chosen_heads(access, self._options)
        lost = [str(head.fragment) for head in heads if not head.is_available]
        if lost:
            raise FragmentUnavailable(f"Fragments {', '.join(lost)} of '{access.path}' do not answer.")
        ends = {head.fragment: head.end for head in heads}
        if self._options.visibility_lag_s:
            firsts = {head.fragment: head.first for head in heads}
            young = SystemClock().now() - self._options.visibility_lag_s * 1000
            ends = await visible_ends(access, firsts, ends, young)
        return BrowseOffset(access.path, {}, ends, created_at=creation_time(heads))

    async def _ranges(self, access: EntityAccess, reached: Positions, ends: Positions) -> list[Range]:
        """A fragment that ends before where the query was has been created again, and is read from its start."""
        known = {fragment: number for fragment, number in reached.items() if number <= ends.get(fragment, number)}
        heads = await chosen_heads(access, self._options)
        starts = await starting_positions(access, heads, self._options) | known
        report_loss(access.path, lost_counts(starts, heads), fails=self._options.fails_on_data_loss)
        return [(starts[each], end) for each, end in sorted(ends.items()) if starts.get(each, end) < end]
