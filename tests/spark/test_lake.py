from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from twinbus.clock import NEVER
from twinbus.pipeline.lake import checkpoint_folder, clear_unfinished, entity_folder, read_lake, write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEAD_LETTERS = "prices/Subscriptions/a/$DeadLetterQueue"
LATE = datetime(2026, 5, 1, 23, 59, 59, 999_000, tzinfo=UTC)
NEXT_DAY = datetime(2026, 5, 2, 0, 0, tzinfo=UTC)


def messages(spark: "SparkSession", *rows: tuple[str, datetime]) -> "DataFrame":
    return spark.createDataFrame(list(rows), "messageId string, enqueuedTime timestamp").selectExpr(
        "messageId", "enqueuedTime", "'orders' AS entity"
    )


@pytest.fixture
def zone(spark: "SparkSession") -> Iterator[str]:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    yield "Asia/Tokyo"
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_messages_are_filed_by_the_hour_in_utc_in_any_zone(spark: "SparkSession", tmp_path: Path, zone: str) -> None:
    write_batch(messages(spark, ("a", LATE), ("b", NEXT_DAY)), str(tmp_path), DEAD_LETTERS, "c-1")
    folders = {str(file.parent.relative_to(tmp_path)) for file in tmp_path.rglob("*.parquet")}
    entity = "entity=prices%2FSubscriptions%2Fa%2F%24DeadLetterQueue"
    assert folders == {f"{entity}/date=2026-05-01/hour=23/batch=c-1", f"{entity}/date=2026-05-02/hour=00/batch=c-1"}
    [row] = read_lake(spark, str(tmp_path)).where("hour = 0").collect()
    assert (row.messageId, row.entity, row.date) == ("b", DEAD_LETTERS, date(2026, 5, 2))


def test_a_batch_that_is_written_again_replaces_itself_and_nothing_else(spark: "SparkSession", tmp_path: Path) -> None:
    lake = str(tmp_path)
    write_batch(messages(spark, ("a", LATE)), lake, "orders", "c-1")
    write_batch(messages(spark, ("b", LATE), ("c", NEXT_DAY)), lake, "orders", "c-2")
    write_batch(messages(spark, ("b", LATE), ("c", NEXT_DAY)), lake, "orders", "c-2")
    write_batch(messages(spark), lake, "orders", "c-3")
    assert sorted(row.messageId for row in read_lake(spark, lake).collect()) == ["a", "b", "c"]


def test_what_a_repeated_batch_had_stays_although_it_is_gone_from_the_entity(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """A message that has the number of another one, from an entity that was created again, is a message of its own."""
    from pyspark.sql import functions as f

    lake = str(tmp_path)

    def numbered(*rows: tuple[str, int, datetime]) -> "DataFrame":
        found = spark.createDataFrame(list(rows), "messageId string, sequenceNumber long, enqueuedTime timestamp")
        return found.withColumn("entity", f.lit("orders"))

    write_batch(numbered(("other", 1, LATE)), lake, "orders", "c-1")
    write_batch(numbered(("a", 1, LATE), ("b", 2, LATE), ("c", 3, NEXT_DAY)), lake, "orders", "c-2", is_repeated=True)
    again = numbered(("b", 2, LATE), ("new a", 1, NEXT_DAY), ("d", 4, NEXT_DAY))
    write_batch(again, lake, "orders", "c-2", is_repeated=True)
    assert sorted(row.messageId for row in read_lake(spark, lake).where("batch = 'c-2'").collect()) == [
        *("a", "b", "c", "d", "new a")
    ]
    assert sorted(row.messageId for row in spark.read.parquet(lake).where("hour = 23").collect()) == ["a", "b", "other"]


def test_any_reader_of_parquet_reads_the_lake(spark: "SparkSession", tmp_path: Path) -> None:
    import pyarrow.dataset

    write_batch(messages(spark, ("a", LATE)), str(tmp_path), "2024", "c-1")
    Path(checkpoint_folder(str(tmp_path), "2024")).mkdir(parents=True)
    assert [row.messageId for row in spark.read.parquet(str(tmp_path)).collect()] == ["a"]
    assert pyarrow.dataset.dataset(tmp_path, partitioning="hive").to_table().num_rows == 1
    [row] = read_lake(spark, str(tmp_path)).collect()
    assert row.entity == "2024"


def test_what_a_killed_capture_left_behind_is_removed(spark: "SparkSession", tmp_path: Path) -> None:
    write_batch(messages(spark, ("a", LATE)), str(tmp_path), "orders", "c-1")
    folder = Path(entity_folder(str(tmp_path), "orders"))
    (folder / ".spark-staging-1" / "date=2026-05-01").mkdir(parents=True)
    clear_unfinished(spark, str(tmp_path), "orders", 1_000)
    assert len(list(folder.iterdir())) == 2, "it may be what another capture writes"
    clear_unfinished(spark, str(tmp_path), "orders", NEVER)
    clear_unfinished(spark, str(tmp_path), "never captured", NEVER)
    assert [entry.name for entry in folder.iterdir()] == ["date=2026-05-01"]
