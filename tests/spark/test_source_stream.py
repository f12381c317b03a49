"""`spark.readStream.format("servicebus")`: what Spark makes of offsets, limits, triggers and restarts."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.entities import Entities
from twinbus.client.blocking import BlockingNamespace
from twinbus.pipeline.failures import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE_S = 60


class Table:
    """A stream of an entity to Parquet files, which keep every batch once, and what is in them."""

    def __init__(self, spark: "SparkSession", entities: Entities, folder: Path, **given: str) -> None:
        self._spark = spark
        self._given = {**entities.options, **given}
        self.data, self.checkpoint = folder / "data", folder / "checkpoint"

    def run(self) -> "StreamingQuery":
        """All there is, in a new run of the query."""
        reader = self._spark.readStream.format("servicebus").options(**self._given)
        writer = reader.load().selectExpr("cast(body AS string) AS text", "state").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        query = writer.start(str(self.data))
        assert query.awaitTermination(PATIENCE_S)
        return query

    def texts(self) -> list[str]:
        return sorted(row.text for row in self._spark.read.parquet(str(self.data)).collect())


def sizes(query: "StreamingQuery") -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def counts(entities: Entities, path: str) -> tuple[int, int]:
    with BlockingNamespace.connect(entities.broker.connection_string) as client:
        heads = client.run(client.extras(path).fragment_heads())
    return sum(head.active for head in heads), sum(head.deferred for head in heads)


def texts(count: int, prefix: str = "m") -> list[str]:
    return sorted(f"{prefix}{number:03}" for number in range(count))


def test_a_browsing_stream_goes_on_where_it_was(spark: "SparkSession", entities: Entities, tmp_path: Path) -> None:
    queue = entities.queue(enable_partitioning=True)
    entities.send(queue, texts(30))
    table = Table(spark, entities, tmp_path, queue=queue, maxMessagesPerTrigger="12")
    query = table.run()
    assert sizes(query) == [12, 12, 6]
    assert query.recentProgress[-1]["sources"][0]["latestOffset"] is not None
    entities.send(queue, texts(5, "later"))
    table.run()
    assert table.texts() == sorted(texts(30) + texts(5, "later"))
    assert counts(entities, queue) == (35, 0)


@pytest.mark.rule("C2.1")
def test_a_consuming_stream_takes_every_message_once_and_goes_on_where_it_was(
    spark: "SparkSession", entities: Entities, tmp_path: Path
) -> None:
    queue = entities.queue(enable_partitioning=True)
    entities.send(queue, texts(30))
    table = Table(spark, entities, tmp_path, queue=queue, mode="consume", maxMessagesPerTrigger="20")
    assert sizes(table.run()) == [20, 10]
    assert counts(entities, queue) == (0, 0)
    entities.send(queue, texts(5, "later"))
    table.run()
    assert table.texts() == sorted(texts(30) + texts(5, "later"))
    assert counts(entities, queue) == (0, 0)


def test_a_batch_that_failed_is_run_again_with_the_same_messages(
    spark: "SparkSession", entities: Entities, tmp_path: Path
) -> None:
    queue = entities.queue()
    entities.send(queue, texts(10))
    seen: list[list[str]] = []
    is_ill = True

    def take(frame: Any, _: int) -> None:
        rows: Iterable[Any] = frame.collect()
        seen.append(sorted(row.body.decode() for row in rows))
        if is_ill and seen[-1]:
            raise RuntimeError("the sink is ill")

    def run() -> None:
        options = {**entities.options, "queue": queue, "mode": "consume", "maxMessagesPerTrigger": "6"}
        writer = spark.readStream.format("servicebus").options(**options).load().writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination(PATIENCE_S)

    with pytest.raises(Exception, match="the sink is ill"):
        run()
    assert counts(entities, queue) == (4, 6)
    is_ill = False
    run()
    assert seen == [[], texts(10)[:6], texts(10)[:6], texts(10)[6:]]
    assert counts(entities, queue) == (0, 0)


def test_no_secret_is_in_a_checkpoint_or_in_progress(spark: "SparkSession", entities: Entities, tmp_path: Path) -> None:
    queue = entities.queue()
    entities.send(queue, texts(2))
    table = Table(spark, entities, tmp_path, queue=queue)
    query = table.run()
    key = entities.broker.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    files = [path for path in table.checkpoint.rglob("*") if path.is_file()]
    assert any("offsets" in str(path) for path in files)
    assert all(key.encode() not in path.read_bytes() for path in files)
    assert key not in str(query.recentProgress)


def test_an_entity_that_vanished_ends_the_stream_with_one_clear_line(
    spark: "SparkSession", entities: Entities, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    queue = entities.queue()
    reader = spark.readStream.format("servicebus").options(**entities.options).options(queue=queue).load()
    with entities.broker.administration() as administration:
        administration.delete_queue(queue)
    writer = reader.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query = writer.start()
    with pytest.raises(StreamingQueryException) as refused:
        query.awaitTermination(PATIENCE_S)
    assert f"'{queue}' could not be found" in reason_of(refused.value).text


def test_a_stream_with_wrong_options_says_which(spark: "SparkSession", entities: Entities, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    table = Table(spark, entities, tmp_path, queue=entities.queue(), endingOffsets="latest")
    with pytest.raises(StreamingQueryException) as refused:
        table.run()
    assert "endingOffsets is for a batch query only" in reason_of(refused.value).text
