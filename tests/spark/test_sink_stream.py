"""`df.writeStream.format("servicebus")`, fed from files."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.entities import Entities
from twinbus.client.blocking import BlockingNamespace
from twinbus.pipeline.failures import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    folder = tmp_path / "lines"
    folder.mkdir()
    (folder / "1.txt").write_text("".join(f"a{number}\n" for number in range(50)))
    return folder


def run(spark: "SparkSession", lines: Path, options: dict[str, str]) -> None:
    """One query over all lines that it has not seen yet; the column `value` of the files is the body."""
    stream = spark.readStream.text(str(lines)).selectExpr("value as body")
    writer = stream.writeStream.format("servicebus").options(**options).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(lines.parent / "checkpoint")).start()
    assert query.awaitTermination(PATIENCE_S)


def bodies(entities: Entities, path: str) -> list[str]:
    with BlockingNamespace.connect(entities.broker.connection_string) as namespace:
        found = namespace.run(namespace.extras(path).peek_merged(1_000))
    return sorted(message.body.decode() for message in found)


@pytest.mark.rule("C2.2")
def test_a_batch_that_is_run_again_after_a_restart_is_kept_once(
    spark: "SparkSession", entities: Entities, lines: Path
) -> None:
    queue = entities.queue(requires_duplicate_detection=True)
    options = {**entities.options, "queue": queue, "idempotent": "true"}
    run(spark, lines, options)
    sent = bodies(entities, queue)
    assert sent == sorted(f"a{number}" for number in range(50))
    # As after a crash between the sink and the commit log.
    shutil.rmtree(lines.parent / "checkpoint" / "commits")
    (lines / "2.txt").write_text("b\n")
    run(spark, lines, options)
    assert bodies(entities, queue) == [*sent, "b"]


def test_without_duplicate_detection_a_batch_that_is_run_again_is_there_twice(
    spark: "SparkSession", entities: Entities, lines: Path
) -> None:
    """What the test above would not notice if nothing was sent again."""
    queue = entities.queue()
    options = {**entities.options, "queue": queue}
    for _ in range(2):
        run(spark, lines, options)
        shutil.rmtree(lines.parent / "checkpoint" / "commits")
    assert len(bodies(entities, queue)) == 100


def test_a_query_whose_entity_is_gone_ends_with_one_line(
    spark: "SparkSession", entities: Entities, lines: Path
) -> None:
    with pytest.raises(StreamingQueryException) as caught:
        run(spark, lines, {**entities.options, "queue": "nowhere"})
    text = reason_of(caught.value).text
    assert text.startswith("'nowhere': 50 messages were refused for good (amqp:not-found)")
    assert "SharedAccessKey" not in str(caught.value)
