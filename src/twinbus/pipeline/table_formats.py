"""What a lake is made of: rows of one batch in, a table that has them once out.

Whatever the format, a batch replaces what was written under its own number, as one change that readers see completely or not at
all: Parquet by folders, Delta and Iceberg by a commit to their own log. Those two are packages that Spark loads
(`spark.jars.packages`), built for one version of Spark each.

    parquet   <lake>/entity=<path, quoted>/date=…/hour=…/batch=…
    delta     <lake>/entity=<path, quoted>        one Delta table for each entity
    iceberg   <lake>/captured/<path, quoted>      one Iceberg table for each entity, in a catalog whose warehouse is the lake
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CATALOG, NAMESPACE = "twinbus_lake", "captured"


class TableFormat(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


def session_settings(table_format: TableFormat, lake: str) -> dict[str, str]:
    """What a session needs to write the format, besides its package."""
    if table_format is TableFormat.DELTA:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    if table_format is TableFormat.ICEBERG:
        return {
            f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{CATALOG}.type": "hadoop",
            f"spark.sql.catalog.{CATALOG}.warehouse": lake,
        }
    return {}


def iceberg_table(quoted_entity: str) -> str:
    return f"{CATALOG}.{NAMESPACE}.`{quoted_entity}`"


def replace_partitions(rows: "DataFrame", table_format: TableFormat, place: str, columns: Sequence[str]) -> None:
    """Replace the partitions that the rows belong to, by these columns; the others stay. `place`: a folder, or the name of
    a table of Iceberg."""
    if table_format is TableFormat.ICEBERG:
        _replace_in_iceberg(rows, place, columns)
        return
    writer = rows.write.format(table_format.value).mode("overwrite").partitionBy(*columns)
    writer = writer.option("partitionOverwriteMode", "dynamic").option("compression", "zstd")
    writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").save(place)


def written_rows(like: "DataFrame", table_format: TableFormat, place: str, column: str, value: str) -> "DataFrame":
    """Rows with the columns of `like` that are there, where the column of partitions has this value. The place must exist."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    spark = like.sparkSession
    match table_format:
        case TableFormat.PARQUET:
            # Not inferred: a folder may have no rows, or rows of a release that had fewer columns.
            schema = StructType([*like.schema.fields, StructField(column, StringType())])
            written = spark.read.schema(schema).parquet(place)
        case TableFormat.DELTA:
            written = spark.read.format("delta").load(place)
        case TableFormat.ICEBERG:
            written = spark.table(place)
    return written.where(f.col(column) == value).select(*like.columns)


def _replace_in_iceberg(rows: "DataFrame", table: str, columns: Sequence[str]) -> None:
    from pyspark.sql import functions as f

    spark: SparkSession = rows.sparkSession
    if not spark.catalog.tableExists(table):
        first, *others = (f.col(column) for column in columns)
        rows.limit(0).writeTo(table).using("iceberg").partitionedBy(first, *others).create()
    rows.writeTo(table).overwritePartitions()
