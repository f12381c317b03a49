"""Counts of hours, by Spark: files of the operations log in, one row for each hour, entity, fragment, cause and path out.

<out>/counts/log=<log>/date=YYYY-MM-DD/hour=HH/*.parquet

Hours that are counted replace what was there of them, and no other hour is touched.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.meter import log_format
from twinbus.pipeline.bill.hours import Hour
from twinbus.pipeline.session import QUICK_START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = (
    log_format.NAMESPACE,
    log_format.ENTITY,
    log_format.ENTITY_TYPE,
    log_format.FRAGMENT,
    log_format.CAUSE,
    log_format.PATH,
)
SUMS = (log_format.OPERATIONS, log_format.MESSAGES, log_format.BYTES, log_format.UNITS)
LOG, DATE, HOUR = "log", "date", "hour"
LOG_SCHEMA = (
    "op_id string, namespace string, entity string, entity_type string, fragment smallint, cause string, path string, "
    "operations bigint, messages bigint, bytes bigint, units bigint, date string, hour string"
)
COUNTS_SCHEMA = (
    "namespace string, entity string, entity_type string, fragment smallint, cause string, path string, "
    "operations bigint, messages bigint, bytes bigint, units bigint, log string, date string, hour string"
)
FILES_A_STEP_MAX = 4_000
WRITERS_MAX = 8
SETTINGS = {
    # Listing files is work for the driver: a job of its own for it takes longer for any number we hand over.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # What is shuffled are sums of hours, not operations: a few million short rows in the largest step.
    "spark.sql.shuffle.partitions": "2",
    # Plans are right as they are, and every stage that is planned again is another job.
    "spark.sql.adaptive.enabled": "false",
}

JVM_SETTINGS = {
    # A run is over within a minute: the second compiler costs more than it gives, with ten million operations too.
    "spark.driver.extraJavaOptions": QUICK_START["spark.driver.extraJavaOptions"],
}
"""For a master that starts a JVM here; a Connect server has its own."""


def log_name(log: Path) -> str:
    """How the counts call a log: readable, and different for every folder."""
    place = str(log.absolute())
    readable = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(log.absolute().parts[-2:])).strip("-").lower()
    return f"{readable}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def steps(hours: Sequence[Hour]) -> Iterator[list[Hour]]:
    """Hours in portions that one Spark job can list."""
    step: list[Hour] = []
    files = 0
    for hour in hours:
        if step and files + len(hour.files) > FILES_A_STEP_MAX:
            yield step
            step, files = [], 0
        step.append(hour)
        files += len(hour.files)
    if step:
        yield step


def count_hours(spark: "SparkSession", log: Path, hours: Sequence[Hour], folder: Path) -> None:
    """Count these hours and put them below `folder`; fails as a whole if a file cannot be read."""
    from pyspark.sql import functions as f

    operations = _operations(spark, log, hours).groupBy(DATE, HOUR, *KEYS)
    counted = operations.agg(*(f.sum(name).alias(name) for name in SUMS))
    # One file for an hour: every run reads them all.
    if len(hours) == 1:
        counted = counted.coalesce(1)
    else:
        counted = counted.repartition(min(len(hours), WRITERS_MAX), DATE, HOUR)
    writer = counted.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").option("compression", "zstd")
    writer.partitionBy(DATE, HOUR).parquet(file_url(folder / f"{LOG}={log_name(log)}"))


def read_counts(spark: "SparkSession", folder: Path) -> "DataFrame":
    return spark.read.schema(COUNTS_SCHEMA).parquet(file_url(folder))


def file_url(path: Path) -> str:
    """On a cluster a bare path may mean another file system."""
    return f"file://{path.absolute()}"


def _operations(spark: "SparkSession", log: Path, hours: Sequence[Hour]) -> "DataFrame":
    """Rows of all files, each operation once."""
    wanted = [*KEYS, *SUMS, DATE, HOUR]
    single = [log / file.name for hour in hours for file in hour.single]
    twice = [log / file.name for hour in hours for file in hour.repeating]
    frames = [_read(spark, log, single).select(wanted)] if single else []
    if twice:
        frames.append(_read(spark, log, twice).dropDuplicates([log_format.OP_ID]).select(wanted))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _read(spark: "SparkSession", log: Path, files: Sequence[Path]) -> "DataFrame":
    reader = spark.read.schema(LOG_SCHEMA).option("basePath", file_url(log))
    reader = reader.option("parquet.page.verify-checksum.enabled", "true")
    return reader.parquet(*(file_url(file) for file in files))
