"""The lake: captured messages as Parquet, one folder for an entity and an hour; or in tables of Delta or Iceberg (`table_formats`).

    <lake>/entity=<path, quoted>/date=YYYY-MM-DD/hour=HH/batch=<capture>-<number>/*.parquet
    <lake>/_checkpoints/<path, quoted>/
    <lake>/_locks/<path, quoted>          held by a capture while it runs

Rows have the columns of the source; date and hour are those of `enqueuedTime` in UTC, whatever zone the session is in.
Names that begin with `_` or `.` are not data to Spark and similar readers, so `spark.read.parquet(lake)` reads the messages and
nothing else.

A batch of a capture replaces the folders of its own number, and a message is always of the same hour: so it is in the lake
once, however often its batch was written. Spark repeats a batch after a crash, without what somebody else has taken from the
entity since: a message that was written once stays.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from twinbus.clock import Millis
from twinbus.model.paths import path_key
from twinbus.pipeline.table_formats import TableFormat, iceberg_table, replace_partitions, written_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ENTITY, DATE, HOUR, BATCH = "entity", "date", "hour", "batch"
CHECKPOINTS, LOCKS = "_checkpoints", "_locks"
TIME, NUMBER = "enqueuedTime", "sequenceNumber"
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_STAGING = ".spark-staging-*"


def entity_folder(lake: str, entity: str) -> str:
    return f"{lake.rstrip('/')}/{ENTITY}={quote_entity(entity)}"


def checkpoint_folder(lake: str, entity: str) -> str:
    """Where a capture of the entity keeps its progress, unless it is given another place."""
    return f"{lake.rstrip('/')}/{CHECKPOINTS}/{quote_entity(entity)}"


def lock_file(spark: "SparkSession", lake: str, entity: str) -> Path | None:
    """None where the lake is not in a file system of this machine: others have no locks."""
    path, files = _in_file_system(spark, f"{lake.rstrip('/')}/{LOCKS}/{quote_entity(entity)}")
    return Path(files.makeQualified(path).toUri().getPath()) if files.getUri().getScheme() == "file" else None


def quote_entity(entity: str) -> str:
    """A path as the name of one folder, which Spark turns back into the path."""
    return quote(entity, safe="")


def write_batch(
    messages: "DataFrame",
    lake: str,
    entity: str,
    batch: str,
    table_format: TableFormat = TableFormat.PARQUET,
    *,
    is_repeated: bool = False,
) -> None:
    """Write the messages as this batch of the entity, in place of what was written under the same name.

    `is_repeated`: what was written may have messages that are no longer in the entity; they stay.
    """
    from pyspark.sql import functions as f

    place = table_place(lake, entity, table_format)
    found = messages.drop(ENTITY)
    if is_repeated and _is_written(messages.sparkSession, table_format, place):
        found = _with_earlier(found, table_format, place, batch)
    micros = f.unix_micros(f.col(TIME))
    placed = (
        found.withColumn(DATE, f.date_from_unix_date(_whole(micros / _DAY_US)))
        .withColumn(HOUR, f.lpad(_whole(micros / _HOUR_US % 24).cast("string"), 2, "0"))
        .withColumn(BATCH, f.lit(batch))
    )
    replace_partitions(placed, table_format, place, (DATE, HOUR, BATCH))


def _with_earlier(found: "DataFrame", table_format: TableFormat, place: str, batch: str) -> "DataFrame":
    """The messages and what was written as this batch before, each once."""
    from pyspark.sql import functions as f

    earlier = written_rows(found, table_format, place, BATCH, batch)
    # The numbers of an entity that is created again start over.
    known = f.broadcast(earlier.select(NUMBER, TIME))
    return found.join(known, [NUMBER, TIME], "left_anti").select(*found.columns).unionByName(earlier)


def _is_written(spark: "SparkSession", table_format: TableFormat, place: str) -> bool:
    return spark.catalog.tableExists(place) if table_format is TableFormat.ICEBERG else bool(file_names(spark, place))


def table_place(lake: str, entity: str, table_format: TableFormat) -> str:
    """A folder, or the name of a table of Iceberg."""
    if table_format is TableFormat.ICEBERG:
        return iceberg_table(quote_entity(entity))
    return entity_folder(lake, entity)


def read_lake(spark: "SparkSession", lake: str) -> "DataFrame":
    """All messages: the columns of the source, and `date`, `hour` and `batch`, by which whole folders are skipped."""
    from twinbus.pipeline.source.rows.columns import NAMES, ddl

    columns = ddl([name for name in NAMES if name != ENTITY])
    # Given, not inferred: an entity called 2024 is not a number, and an empty lake has its columns too.
    schema = f"{columns}, {ENTITY} string, {DATE} date, {HOUR} int, {BATCH} string"
    return spark.read.schema(schema).parquet(lake)


def known_spelling(spark: "SparkSession", lake: str, entity: str) -> str:
    """The entity as an earlier capture spelt it: names are looked up without their case, but folders are not, and under
    another one all messages would be captured once more."""
    names = [unquote(name) for name in file_names(spark, f"{lake.rstrip('/')}/{CHECKPOINTS}")]
    return next((name for name in names if path_key(name) == path_key(entity)), entity)


def clear_unfinished(spark: "SparkSession", lake: str, entity: str, before: Millis) -> None:
    """Remove what captures of this entity began to write before this time and did not finish, as they were killed. Nobody reads
    it; but a capture that still writes would lose a part of its batch and not notice."""
    pattern, files = _in_file_system(spark, f"{entity_folder(lake, entity)}/{_STAGING}")
    for found in files.globStatus(pattern) or ():
        if found.getModificationTime() < before:
            files.delete(found.getPath(), True)


def file_names(spark: "SparkSession", folder: str) -> list[str]:
    """Of what is in a folder, none if there is no such folder."""
    path, files = _in_file_system(spark, folder)
    return [found.getPath().getName() for found in files.listStatus(path)] if files.exists(path) else []


def file_text(spark: "SparkSession", place: str) -> str:
    path, files = _in_file_system(spark, place)
    stream = files.open(path)
    try:
        return str(spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))  # type: ignore[union-attr]
    finally:
        stream.close()


def _in_file_system(spark: "SparkSession", place: str) -> tuple[Any, Any]:
    """A path of Hadoop, and what it is in: a lake is wherever Spark can write."""
    jvm = spark._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(place)
    return path, path.getFileSystem(spark._jsc.hadoopConfiguration())


def _whole(number: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.floor(number).cast("int")
