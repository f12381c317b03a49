"""The data source `servicebus` for Spark: `spark.read.format("servicebus")`, `readStream`, `write` and `writeStream`.

Spark imports every top-level module that is called `pyspark_…` when it looks for a format, and one that fails hides
all others; so this one imports next to nothing until it is used. `register` is for sessions where that search has
failed because of another package, and costs nothing where it has not.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource", "register"]


class DefaultSource(DataSource):
    """Created again by planner workers and executors as often as Spark likes, so it holds only its options."""

    @classmethod
    def name(cls) -> str:
        return "servicebus"

    def schema(self) -> Any:
        return self._source().schema()

    def reader(self, schema: "StructType") -> Any:
        return self._source().reader(schema)

    def streamReader(self, schema: "StructType") -> Any:  # noqa: N802 (Spark's name)
        return self._source().streamReader(schema)

    def writer(self, schema: "StructType", overwrite: bool) -> Any:
        from twinbus.pipeline.sink.writers import writer

        return writer(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> Any:  # noqa: N802 (Spark's name)
        from twinbus.pipeline.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _source(self) -> Any:
        from twinbus.pipeline.source import ServiceBusDataSource

        return ServiceBusDataSource(self.options)


def register(spark: "SparkSession") -> None:
    """Make the format known to this session, whatever other packages there are."""
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as refusal:
        # Spark 4.0 has found it by itself, and registers nothing twice.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(refusal):
            raise
