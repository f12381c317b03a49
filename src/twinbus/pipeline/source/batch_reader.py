"""`read`: the options in, input partitions and record batches out."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.pipeline.source.access.entity_access import EntityAccess, mean_size
from twinbus.pipeline.source.live_entity import LiveEntity
from twinbus.pipeline.source.options import SourceOptions
from twinbus.pipeline.source.partition_reader import read_slices
from twinbus.pipeline.source.planning import MessageSlices, input_partitions, task_count
from twinbus.pipeline.source.ranges import Range, count
from twinbus.pipeline.source.starting_points import (
    chosen_heads,
    lost_counts,
    preflight,
    report_loss,
    starting_positions,
    visible_ends,
)


class EntityPlan(NamedTuple):
    """What is there of one entity."""

    is_own: bool
    ranges: list[Range]
    mean_size: int


class ServiceBusBatchReader(DataSourceReader):
    """Planned once on the driver, read by executors."""

    def __init__(self, options: SourceOptions, names: Sequence[str], now: Millis) -> None:
        self._options = options
        self._names = tuple(names)
        self._now = now

    def partitions(self) -> list[InputPartition]:
        """What is there now: messages that come later are not in this query."""
        options = self._options
        entities = [LiveEntity(options.connection, path) for path in options.paths]
        plans = [entity.call(self._plan) for entity in entities]
        work = [(entity.path, plan.ranges) for entity, plan in zip(entities, plans, strict=True)]
        # Of several entities the one with the largest messages says how many make a task.
        size, total = max(plan.mean_size for plan in plans), sum(count(plan.ranges) for plan in plans)
        tasks = task_count(total, size, options.partitions_min, options.partitions_max)
        return list(input_partitions(work, tasks, is_own=all(plan.is_own for plan in plans)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of its own where there is none.
        if not isinstance(partition, MessageSlices):
            return iter(())
        return read_slices(partition, self._options, self._names)

    async def _plan(self, access: EntityAccess) -> EntityPlan:
        options = self._options
        await preflight(access, options)
        heads = await chosen_heads(access, options)
        lost = [head.fragment for head in heads if not head.is_available]
        if lost:
            # A batch that silently lacks a fragment is wrong; a later try may not lack it.
            raise FragmentUnavailable(f"Fragments {', '.join(map(str, lost))} of '{access.path}' do not answer.")
        first = await starting_positions(access, heads, options)
        report_loss(access.path, lost_counts(first, heads), fails=options.fails_on_data_loss)
        ends = {head.fragment: head.end for head in heads}
        if options.ending is not None:
            ends = {fragment: min(end, options.ending.get(fragment, end)) for fragment, end in ends.items()}
        if options.visibility_lag_s:
            ends = await visible_ends(access, first, ends, self._now - options.visibility_lag_s * 1000)
        ranges = [(first[fragment], end) for fragment, end in ends.items() if first[fragment] < end]
        return EntityPlan(access.is_own, ranges, mean_size(heads))
