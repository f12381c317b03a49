"""`spark.read.format("servicebus")` on a real session and a real namespace."""

from typing import TYPE_CHECKING

import pytest

from tests.spark.entities import Entities
from twinbus.client.message import encode_message
from twinbus.pipeline.failures import reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: "SparkSession", entities: Entities, **given: str) -> "DataFrame":
    return spark.read.format("servicebus").options(**entities.options).options(**given).load()


@pytest.mark.rule("C2.1")
def test_a_partitioned_queue_is_a_table_with_all_columns(spark: "SparkSession", entities: Entities) -> None:
    queue = entities.queue(enable_partitioning=True)
    message = encode_message("body", message_id="a", application_properties={"n": 1, "text": "x"}, subject="s")
    entities.send_encoded(queue, [message, *(encode_message("b", message_id=str(n)) for n in range(20))])
    frame = load(spark, entities, queue=queue, minPartitions="2")
    assert frame.rdd.getNumPartitions() == 2
    assert frame.count() == 21
    (row,) = frame.where("messageId = 'a'").collect()
    assert (row.body, row.subject, row.entity, row.state) == (b"body", "s", queue, "active")
    assert row.properties == {"n": "1", "text": '"x"'}
    assert row.sequenceNumber >> 48 == row.fragment
    assert row.enqueuedTime is not None


def test_an_empty_queue_is_an_empty_table(spark: "SparkSession", entities: Entities) -> None:
    assert load(spark, entities, queue=entities.queue()).collect() == []


def test_dead_letters_are_triaged_with_sql(spark: "SparkSession", entities: Entities) -> None:
    queue = entities.queue()
    entities.send(queue, ["a", "b", "c"])
    for reason, count in (("late", 1), ("bad", 1), ("late", 1)):
        entities.dead_letter(queue, count, reason)
    load(spark, entities, queue=queue, subQueue="deadLetter").createOrReplaceTempView("dead")
    found = spark.sql("SELECT deadLetterReason, count(*) AS n FROM dead GROUP BY 1 ORDER BY 1").collect()
    assert [(row.deadLetterReason, row.n) for row in found] == [("bad", 1), ("late", 2)]


def test_a_subscription_is_read_with_columns_of_ones_choice(spark: "SparkSession", entities: Entities) -> None:
    topic = entities.topic("all")
    entities.send(topic, ["a", "b"])
    reader = (
        spark.read.format("servicebus").options(**entities.options).schema("sequenceNumber bigint, messageId string")
    )
    rows = reader.options(topic=topic, subscription="all").load().collect()
    assert [tuple(row) for row in rows] == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"queue": "no-such-queue"}, "'no-such-queue' could not be found"),
        ({"queue": "q", "mod": "consume"}, "Do you mean mode?"),
        ({}, "No option says which entity to read"),
    ],
)
def test_what_is_wrong_is_reported_when_the_query_is_written_down(
    spark: "SparkSession", entities: Entities, given: dict[str, str], said: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as refused:
        load(spark, entities, **given)
    reason = reason_of(refused.value).text
    assert said in reason
    assert "\n" not in reason


def test_a_batch_query_cannot_consume(spark: "SparkSession", entities: Entities) -> None:
    from pyspark.errors import PySparkException

    frame = load(spark, entities, queue=entities.queue(), mode="consume")
    with pytest.raises(PySparkException) as refused:
        frame.collect()
    assert "needs readStream" in reason_of(refused.value).text


def test_secrets_are_in_no_plan_and_no_error(spark: "SparkSession", entities: Entities) -> None:
    from pyspark.errors import AnalysisException

    key = entities.broker.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    assert len(key) > 20
    frame = load(spark, entities, queue=entities.queue())
    assert key not in frame._jdf.queryExecution().toString()
    with pytest.raises(AnalysisException) as refused:
        load(spark, entities, queue="no-such-queue")
    assert key not in str(refused.value)


def test_an_entity_is_a_view_in_sql_and_cannot_be_a_table(spark: "SparkSession", entities: Entities) -> None:
    from pyspark.errors import AnalysisException

    queue = entities.queue()
    entities.send(queue, ["a", "b"])
    options = ", ".join(f"{name} '{value}'" for name, value in {**entities.options, "queue": queue}.items())
    with pytest.raises(AnalysisException) as refused:
        spark.sql(f"CREATE TABLE entity_table USING servicebus OPTIONS ({options})")
    assert "Use CREATE TEMPORARY VIEW" in reason_of(refused.value).text
    spark.sql(f"CREATE TEMPORARY VIEW entity_view USING servicebus OPTIONS ({options})")
    try:
        rows = spark.sql("SELECT CAST(body AS string) AS text FROM entity_view ORDER BY sequenceNumber").collect()
        assert [row.text for row in rows] == ["a", "b"]
    finally:
        spark.sql("DROP VIEW entity_view")


def test_a_query_finds_the_same_rows_whatever_was_asked_of_the_same_table_before(
    spark: "SparkSession", entities: Entities
) -> None:
    """Where Spark pushes filters down, it keeps those of the first query for all that follow."""
    queue = entities.queue(enable_partitioning=True)
    entities.send(queue, [f"m{number}" for number in range(20)])
    table = spark.read.format("servicebus").options(**entities.options, queue=queue).load()
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        counts = [table.where(f"messageId = 'm{number}'").count() for number in range(2)]
    finally:
        spark.conf.unset(setting)
    assert counts == [1, 1]
    assert table.count() == 20
