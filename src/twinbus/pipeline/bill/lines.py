"""Lines of the bill, by Spark: counts and prices of hours in, operations and money by hour and by day out.

<out>/hourly/date=YYYY-MM-DD/*.parquet      <out>/daily/date=YYYY-MM-DD/*.parquet

Days that are priced replace what was there of them. Money of a line is rounded at ten decimals; totals of a namespace and
month are exact and come from `month_to_date`. What is summed further is few enough for the driver (`line_sums`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.cost.month_to_date import HourPrice
from twinbus.meter import log_format
from twinbus.pipeline.bill.counts import DATE, HOUR, KEYS, SUMS, WRITERS_MAX, file_url

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

OPERATIONS_MONEY, BANDWIDTH_MONEY = "operations_money", "bandwidth_money"
UNIT_PRICE, BYTE_PRICE = "unit_price", "byte_price"
MONEYS = (OPERATIONS_MONEY, BANDWIDTH_MONEY)
MONEY_DIGITS, MONEY_SCALE = 28, 10

# Digits of a product have to stay within Spark's 38, or it drops decimals by itself.
UNITS_DIGITS, UNIT_PRICE_DIGITS, UNIT_PRICE_SCALE = 15, 22, 16
BYTES_DIGITS, BYTE_PRICE_DIGITS, BYTE_PRICE_SCALE = 17, 20, 20
MONEY_TYPE = f"decimal({MONEY_DIGITS},{MONEY_SCALE})"


def priced_hours(counts: "DataFrame", prices: Sequence[HourPrice], spark: "SparkSession") -> "DataFrame":
    """Lines of these hours with money: one row for each hour, entity, fragment, cause and path, those of a day together."""
    from pyspark.sql import functions as f

    days = sorted({price.date for price in prices})
    table = f.broadcast(spark.createDataFrame(_price_table(prices)))
    # Days stay together from here on: whatever is summed and written by day needs no further shuffle.
    by_day = counts.where(f.col(DATE).isin(days)).repartition(min(len(days), WRITERS_MAX), DATE)
    hourly = by_day.withColumn(HOUR, f.col(HOUR).cast("int")).groupBy(DATE, HOUR, *KEYS)
    summed = hourly.agg(*(f.sum(name).alias(name) for name in SUMS))
    joined = summed.join(table, [log_format.NAMESPACE, DATE, HOUR])
    return joined.select(
        DATE,
        HOUR,
        *KEYS,
        *SUMS,
        _money(f.col(log_format.UNITS), UNITS_DIGITS, UNIT_PRICE).alias(OPERATIONS_MONEY),
        _money(_charged_bytes(), BYTES_DIGITS, BYTE_PRICE).alias(BANDWIDTH_MONEY),
    )


def write_lines(hourly: "DataFrame", out: Path) -> None:
    """Replace the days that `hourly` has, with one file for each."""
    from pyspark.sql import functions as f

    _replace(hourly, out / "hourly")
    sums = [f.sum(name).alias(name) for name in SUMS]
    moneys = [f.sum(name).cast(MONEY_TYPE).alias(name) for name in MONEYS]
    _replace(hourly.groupBy(DATE, *KEYS).agg(*sums, *moneys), out / "daily")


def _replace(lines: "DataFrame", folder: Path) -> None:
    writer = lines.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").option("compression", "zstd")
    writer.partitionBy(DATE).parquet(file_url(folder))


def _charged_bytes() -> "Column":
    """What is not billed, such as a settlement, moves no message: its bytes say of which size the message was."""
    from pyspark.sql import functions as f

    return f.when(f.col(log_format.UNITS) > 0, f.col(log_format.BYTES)).otherwise(0)


def _money(count: "Column", digits: int, price: str) -> "Column":
    from pyspark.sql import functions as f

    return (count.cast(f"decimal({digits},0)") * f.col(price)).cast(MONEY_TYPE)


def _price_table(prices: Sequence[HourPrice]) -> "pa.Table":
    import pyarrow as pa

    unit_type = pa.decimal128(UNIT_PRICE_DIGITS, UNIT_PRICE_SCALE)
    byte_type = pa.decimal128(BYTE_PRICE_DIGITS, BYTE_PRICE_SCALE)
    return pa.table(
        {
            log_format.NAMESPACE: pa.array([price.namespace for price in prices], pa.string()),
            DATE: pa.array([price.date for price in prices], pa.string()),
            HOUR: pa.array([price.hour for price in prices], pa.int32()),
            UNIT_PRICE: pa.array([round(price.unit_price, UNIT_PRICE_SCALE) for price in prices], unit_type),
            BYTE_PRICE: pa.array([round(price.byte_price, BYTE_PRICE_SCALE) for price in prices], byte_type),
        }
    )
