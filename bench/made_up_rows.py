"""A data source that makes rows up: what Spark itself takes for rows of the schema of messages, whoever brings them.

No rate of a source in Python can be above its rate: Spark moves the rows of both from a Python worker into the JVM.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from twinbus.pipeline.source.rows.columns import arrow_schema, ddl
from twinbus.pipeline.source.rows.shaped_rows import BATCH_BYTES_MAX, BATCH_ROWS_MAX

TASKS = 16
FACTS_SIZE = 200
"""What a row has besides its body, about."""


class MadeUpRows(DataSource):
    """Options: `count`, and `size` of the bodies, 0 for none."""

    @classmethod
    def name(cls) -> str:
        return "made-up-rows"

    def schema(self) -> str:
        return ddl()

    def reader(self, schema: Any) -> DataSourceReader:
        return MadeUpReader(int(self.options["count"]), int(self.options["size"]))


class MadeUpReader(DataSourceReader):
    def __init__(self, count: int, size: int) -> None:
        self._count = count
        self._size = size

    def partitions(self) -> list[InputPartition]:
        ends = [self._count * place // TASKS for place in range(TASKS + 1)]
        return [InputPartition(end - first) for first, end in pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left: int = partition.value
        rows = min(BATCH_ROWS_MAX, BATCH_BYTES_MAX // (self._size + FACTS_SIZE))
        batch = made_up(rows, self._size)
        while left:
            yield batch.slice(0, min(left, rows))
            left -= min(left, rows)


def made_up(count: int, size: int) -> pa.RecordBatch:
    """Columns as those of messages that have an id, a partition key and a body; without a size, no body."""
    schema = arrow_schema()
    texts = [str(number) for number in range(count)]
    given: dict[str, list[Any]] = {
        "messageId": texts,
        "sequenceNumber": list(range(count)),
        "fragment": [3] * count,
        "enqueuedTime": list(range(count)),
        "partitionKey": [f"k{number % 400}" for number in range(count)],
        "deliveryCount": [0] * count,
        "state": ["active"] * count,
        "properties": [[] for _ in range(count)],
        "entity": ["queue"] * count,
    }
    if size:
        given["body"] = [bytes(size)] * count
    arrays = [pa.array(given.get(field.name, [None] * count), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
