"""The data source `servicebus`: options in, readers and writers out.

Spark makes one in every process that needs something of it, so it holds its options and nothing else.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from twinbus.pipeline.source.columns import ddl

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ServiceBusDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "servicebus"

    def schema(self) -> str:
        """Driver, when a query is written down: what the options say wrongly is told here."""
        return ddl()

    def writer(self, schema: "StructType", overwrite: bool) -> Any:
        from twinbus.pipeline.sink.writers import writer

        return writer(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> Any:
        from twinbus.pipeline.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)
