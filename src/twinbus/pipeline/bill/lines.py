"""Lines of the bill, by Spark: counts and prices of hours in; operations and money by hour, day and month out.

<out>/hourly/date=YYYY-MM-DD/*.parquet      <out>/daily/date=YYYY-MM-DD/*.parquet      <out>/monthly/month=YYYY-MM/*.parquet
<out>/causes/date=YYYY-MM-DD/*.parquet      by hour, without entities and fragments
<out>/csv/daily-YYYY-MM.csv, monthly-YYYY-MM.csv

Days that are priced replace what was there of them, and so do their months. Money of a line is rounded at ten decimals;
totals of a namespace and month are exact and come from `month_to_date`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.cost import operation_columns as columns
from twinbus.cost.month_to_date import HourCount, HourPrice
from twinbus.pipeline.bill.counts import DATE, HOUR, KEYS, SUMS, file_url

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

MONTH, OPERATIONS_MONEY, BANDWIDTH_MONEY = "month", "operations_money", "bandwidth_money"
UNIT_PRICE, BYTE_PRICE = "unit_price", "byte_price"
MONEYS = (OPERATIONS_MONEY, BANDWIDTH_MONEY)
CAUSE_KEYS = (columns.NAMESPACE, columns.CAUSE, columns.PATH)
LINE = (*KEYS, *SUMS, *MONEYS)

# Digits of a product have to stay within Spark's 38, or it drops decimals by itself.
UNITS_DIGITS, UNIT_PRICE_DIGITS, UNIT_PRICE_SCALE = 15, 22, 16
BYTES_DIGITS, BYTE_PRICE_DIGITS, BYTE_PRICE_SCALE = 17, 20, 20
MONEY_TYPE = "decimal(28,10)"
LINE_SCHEMA = (
    "namespace string, entity string, entity_type string, fragment smallint, cause string, path string, "
    "operations bigint, messages bigint, bytes bigint, units bigint, "
    f"operations_money {MONEY_TYPE}, bandwidth_money {MONEY_TYPE}"
)


def hour_counts(counts: "DataFrame") -> list[HourCount]:
    """Charged operations and bytes of each namespace and hour; as many rows as there were hours."""
    from pyspark.sql import functions as f

    hour = f.col(HOUR).cast("int").alias(HOUR)
    sums = (f.sum(columns.UNITS).alias(columns.UNITS), f.sum(_charged_bytes()).alias(columns.BYTES))
    rows = counts.groupBy(columns.NAMESPACE, DATE, hour).agg(*sums).collect()
    return [HourCount(row.namespace, row.date, row.hour, row.units, row["bytes"]) for row in rows]


def priced_hours(counts: "DataFrame", prices: Sequence[HourPrice], spark: "SparkSession") -> "DataFrame":
    """Lines of hours with money: one row for each hour, entity, fragment, cause and path."""
    from pyspark.sql import functions as f

    table = f.broadcast(spark.createDataFrame(_price_table(prices)))
    hourly = counts.withColumn(HOUR, f.col(HOUR).cast("int")).groupBy(DATE, HOUR, *KEYS)
    summed = hourly.agg(*(f.sum(name).alias(name) for name in SUMS))
    joined = summed.join(table, [columns.NAMESPACE, DATE, HOUR])
    return joined.select(
        DATE,
        HOUR,
        *KEYS,
        *SUMS,
        _money(f.col(columns.UNITS), UNITS_DIGITS, UNIT_PRICE).alias(OPERATIONS_MONEY),
        _money(_charged_bytes(), BYTES_DIGITS, BYTE_PRICE).alias(BANDWIDTH_MONEY),
    )


def write_lines(hourly: "DataFrame", months: Sequence[str], out: Path, spark: "SparkSession") -> None:
    """Replace the days that `hourly` has, and the months they are in, which are `months`."""
    from pyspark.sql import functions as f

    # Sums are few, and Spark joins their partitions by itself; lines of hours may be many.
    _replace(hourly.repartition(DATE), out / "hourly", DATE)
    _replace(_summed(hourly, (DATE, HOUR, *CAUSE_KEYS)), out / "causes", DATE)
    _replace(_summed(hourly, (DATE, *KEYS)), out / "daily", DATE)
    month = f.substring(DATE, 1, 7).alias(MONTH)
    daily = spark.read.schema(f"{LINE_SCHEMA}, {DATE} string").parquet(file_url(out / "daily"))
    of_months = daily.where(f.substring(DATE, 1, 7).isin(list(months))).select(month, *LINE)
    _replace(_summed(of_months, (MONTH, *KEYS)), out / "monthly", MONTH)
    for each in months:
        _write_csv(out / "daily", f"{DATE}={each}-*", out / "csv" / f"daily-{each}.csv")
        _write_csv(out / "monthly", f"{MONTH}={each}", out / "csv" / f"monthly-{each}.csv")


def _summed(lines: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    from pyspark.sql import functions as f

    sums = [f.sum(name).alias(name) for name in SUMS]
    moneys = [f.sum(name).cast(MONEY_TYPE).alias(name) for name in MONEYS]
    return lines.groupBy(*keys).agg(*sums, *moneys)


def _replace(lines: "DataFrame", folder: Path, period: str) -> None:
    writer = lines.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").option("compression", "zstd")
    writer.partitionBy(period).parquet(file_url(folder))


def _write_csv(folder: Path, periods: str, file: Path) -> None:
    """One file for a person's spreadsheet, written by the driver: Spark would make a folder of parts."""
    from pyarrow import csv

    lines = read_parts(folder, periods)
    period = next(name for name in (DATE, MONTH) if name in lines.column_names)
    lines = lines.select([period, *LINE]).sort_by([(name, "ascending") for name in (period, *KEYS)])
    for name in MONEYS:
        plain = [f"{amount:f}" for amount in lines[name].to_pylist()]
        lines = lines.set_column(lines.column_names.index(name), name, [plain])
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"_tmp-{file.name}")
    csv.write_csv(lines, draft, csv.WriteOptions(quoting_style="needed"))
    draft.rename(file)


def read_parts(folder: Path, periods: str) -> "pa.Table":
    """Lines of the periods that a pattern matches, such as date=2026-11-*, read by the driver itself."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    parts = sorted(str(path) for path in folder.glob(f"{periods}/*.parquet"))
    hive = ds.partitioning(pa.schema([(periods.partition("=")[0], pa.string())]), flavor="hive")
    return ds.dataset(parts, partition_base_dir=str(folder), partitioning=hive, format="parquet").to_table()


def _charged_bytes() -> "Column":
    """What is not billed, such as a settlement, moves no message: its bytes say of which size the message was."""
    from pyspark.sql import functions as f

    return f.when(f.col(columns.UNITS) > 0, f.col(columns.BYTES)).otherwise(0)


def _money(count: "Column", digits: int, price: str) -> "Column":
    from pyspark.sql import functions as f

    return (count.cast(f"decimal({digits},0)") * f.col(price)).cast(MONEY_TYPE)


def _price_table(prices: Sequence[HourPrice]) -> "pa.Table":
    import pyarrow as pa

    unit_type = pa.decimal128(UNIT_PRICE_DIGITS, UNIT_PRICE_SCALE)
    byte_type = pa.decimal128(BYTE_PRICE_DIGITS, BYTE_PRICE_SCALE)
    return pa.table(
        {
            columns.NAMESPACE: pa.array([price.namespace for price in prices], pa.string()),
            DATE: pa.array([price.date for price in prices], pa.string()),
            HOUR: pa.array([price.hour for price in prices], pa.int32()),
            UNIT_PRICE: pa.array([round(price.unit_price, UNIT_PRICE_SCALE) for price in prices], unit_type),
            BYTE_PRICE: pa.array([round(price.byte_price, BYTE_PRICE_SCALE) for price in prices], byte_type),
        }
    )
