"""The data source `servicebus`: options in, readers and writers out.

Spark makes one in every process that needs something of it, so it holds its options and nothing else.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from twinbus.clock import SystemClock
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.source.batch_reader import ServiceBusBatchReader
from twinbus.pipeline.source.engine import SAYS_START, ReadLimit, SupportsTriggerAvailableNow
from twinbus.pipeline.source.live_entity import LiveEntity
from twinbus.pipeline.source.option_table import BATCH, STREAM
from twinbus.pipeline.source.options import SourceOptions
from twinbus.pipeline.source.rows.columns import chosen, ddl
from twinbus.pipeline.source.starting_points import preflight
from twinbus.pipeline.source.stream_reader import ServiceBusStreamReader
from twinbus.pipeline.source.unbounded_stream_reader import UnboundedStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ServiceBusDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "servicebus"

    def schema(self) -> str:
        """Driver, when a query is defined: wrong options, a missing entity and missing rights are reported here, not when
        the query runs."""
        options = SourceOptions.from_options(self.options)
        for path in options.paths:
            LiveEntity(options.connection, path).call(lambda access: preflight(access, options))
        return ddl()

    def reader(self, schema: "StructType") -> DataSourceReader:
        options = SourceOptions.from_options(self.options, BATCH)
        return ServiceBusBatchReader(options, _names(schema), SystemClock().now())

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        # Spark hides what is raised here behind an error of its own: it stops a reader that it never got.
        try:
            options = SourceOptions.from_options(self.options, STREAM)
            return (ServiceBusStreamReader if SAYS_START else UnboundedStreamReader)(options, _names(schema))
        except OptionError as wrong:
            return RefusedStreamReader(wrong)

    def writer(self, schema: "StructType", overwrite: bool) -> Any:
        from twinbus.pipeline.sink.writers import writer

        return writer(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> Any:
        from twinbus.pipeline.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _names(schema: "StructType") -> tuple[str, ...]:
    """The columns wanted: all, or those of a schema that the user gave."""
    return chosen([(field.name, field.dataType.simpleString()) for field in schema.fields])


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Looks like a reader that can do everything, so that Spark complains of nothing else before it asks."""

    def __init__(self, reason: OptionError) -> None:
        self._reason = reason

    def initialOffset(self) -> NoReturn:
        raise self._reason

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        raise self._reason

    def getDefaultReadLimit(self) -> NoReturn:
        raise self._reason

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> NoReturn:
        raise self._reason

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        raise self._reason

    def read(self, partition: object) -> NoReturn:
        raise self._reason
