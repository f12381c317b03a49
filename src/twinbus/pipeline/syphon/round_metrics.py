"""What a round did, as rows in a folder of Parquet files: one row for each lane, with its destinations nested.

SELECT queue, sum(moved) FROM parquet.`DIR` GROUP BY queue
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twinbus.pipeline.syphon.reports import LaneReport, to_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

OWN_COLUMNS = ("memory", "pair", "started_at", "finished_at")
"""Columns of a report that are written differently or not at all."""


def metrics_table(reports: Sequence[LaneReport], round_number: int, pair_names: Sequence[str]) -> "pa.Table":
    import pyarrow as pa

    table = pa.Table.from_batches([to_rows(reports)])
    time = pa.timestamp("us", tz="UTC")
    for name, values, kind in (
        ("round", [round_number] * len(reports), pa.int64()),
        ("pair_name", [pair_names[each.pair] for each in reports], pa.string()),
        ("started", [each.started_at * 1000 for each in reports], time),
        ("finished", [each.finished_at * 1000 for each in reports], time),
        ("moved", [each.moved for each in reports], pa.int64()),
        ("left", [each.left for each in reports], pa.int64()),
        ("dead_lettered", [each.dead_lettered for each in reports], pa.int64()),
    ):
        table = table.append_column(name, pa.array(values, kind))
    return table.drop_columns(list(OWN_COLUMNS)).rename_columns(_column_names(table))


def append_metrics(spark: "SparkSession", table: "pa.Table", folder: str) -> None:
    """Through Spark, so that the folder can be wherever Spark can write."""
    frame: Any = spark.createDataFrame(table)
    frame.coalesce(1).write.mode("append").parquet(folder)


def _column_names(table: "pa.Table") -> list[str]:
    renamed = {"pair_name": "pair", "lane": "pump", "started": "started_at", "finished": "finished_at"}
    return [renamed.get(name, name) for name in table.column_names if name not in OWN_COLUMNS]
