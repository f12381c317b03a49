"""`df.write.format("servicebus")` and `df.writeStream.format("servicebus")`: options and schema in, Spark's writers out.

writer(), stream_writer()   in a planning process on the driver's host; the stream's again for every batch, so it is cheap
write()                     in a Python worker of an executor, once for each attempt of a task
commit(), abort()           on the driver's host; there is nothing to do: a message that was acknowledged is sent

A task that fails is run again by Spark, a batch of a stream is run again after a restart; what was sent before is sent
again with the same message ids (`message_ids`). So delivery is at least once, and each message is kept once where the
entity detects duplicates.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.sink.columns import SchemaError, check_destination, find_columns
from twinbus.pipeline.sink.message_ids import place_in_job, place_in_query
from twinbus.pipeline.sink.options import SinkOptions
from twinbus.pipeline.sink.target_check import check_targets
from twinbus.pipeline.sink.writing import Writing

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    # Spark 4.0 has none, and gives rows to what is none: see `RowStreamWriter`.
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)

ROWS_TOGETHER = 2_000


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "ServiceBusWriter":
    """Raises OptionError or SchemaError: while the write is planned, before any task is started."""
    if overwrite:
        raise OptionError("The content of an entity cannot be overwritten. Write with mode('append').")
    writing = _writing(options, schema)
    if writing.options.is_idempotent and "messageId" not in writing.places:
        raise SchemaError(
            "idempotent = true needs a column 'messageId' in a batch write: only then are the ids the same when the job "
            "is repeated."
        )
    check_targets(writing.options)
    return ServiceBusWriter(writing, uuid4().hex)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> "ServiceBusStreamWriter | RowStreamWriter":
    """As `writer`. `overwrite` is set by the output mode complete, which would send all messages again in every batch."""
    if overwrite:
        raise OptionError("The content of an entity cannot be overwritten. Use outputMode('append') or 'update'.")
    arrow = ServiceBusStreamWriter(_writing(options, schema), uuid4().hex)
    return arrow if hasattr(datasource, "DataSourceStreamArrowWriter") else RowStreamWriter(arrow, schema)


class WrittenMessages(WriterCommitMessage):
    """How many messages one task has sent, and how many of them without their bodies."""

    def __init__(self, messages: int, set_aside: int) -> None:
        self.messages = messages
        self.set_aside = set_aside


class ServiceBusWriter(DataSourceArrowWriter):
    def __init__(self, writing: Writing, job: str) -> None:
        """`job` goes into the ids of messages that have none."""
        self._writing = writing
        self._job = job

    def write(self, iterator: Iterator["RecordBatch"]) -> WrittenMessages:
        needs_ids = self._writing.options.is_idempotent
        return WrittenMessages(*self._writing.write(iterator, place_in_job(self._job), needs_ids=needs_ids))


class ServiceBusStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, writing: Writing, job: str) -> None:
        """`job` stands in for the query where Spark does not say which one it is."""
        self._writing = writing
        self._job = job

    def write(self, iterator: Iterator["RecordBatch"]) -> WrittenMessages:
        return WrittenMessages(*self._writing.write(iterator, place_in_query(self._job)))


class RowStreamWriter(DataSourceStreamWriter):
    """For Spark 4.0, whose stream writers get rows."""

    def __init__(self, writer: ServiceBusStreamWriter, schema: StructType) -> None:
        self._writer = writer
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WrittenMessages:
        return self._writer.write(self._batches(iterator))

    def _batches(self, rows: Iterator[Any]) -> Iterator["RecordBatch"]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema)
        while piece := [row.asDict(recursive=True) for row in islice(rows, ROWS_TOGETHER)]:
            yield pa.RecordBatch.from_pylist(piece, schema)


def _writing(options: Mapping[str, str], schema: StructType) -> Writing:
    parsed = SinkOptions.from_options(options)
    places = find_columns(schema)
    check_destination(places, parsed.target)
    return Writing(parsed, places)
