"""`df.write.format("servicebus")` as a user writes it."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from pyspark.errors import PySparkException

from tests.spark.entities import Entities
from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.types import Int, Long, Timestamp
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.client.received_message import ReceivedMessage
from twinbus.model.wire_names import MessageState
from twinbus.pipeline.failures import reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def peek(entities: Entities, path: str) -> list[ReceivedMessage]:
    with BlockingNamespace.connect(entities.broker.connection_string) as namespace:
        return namespace.run(namespace.extras(path).peek_merged(1_000))


def write(frame: "DataFrame", entities: Entities, **options: str) -> None:
    frame.write.format("servicebus").options(**entities.options, **options).mode("append").save()


@pytest.mark.rule("C2.2")
def test_rows_become_messages(spark: "SparkSession", entities: Entities) -> None:
    queue = entities.queue()
    frame = spark.sql(
        """
        select string(id) as body, concat('m', id) as messageId, map('n', string(id), 'c', 'blue') as properties,
               timestamp'2100-01-02 03:04:05' as scheduledEnqueueTime, interval 90 seconds as timeToLive
        from range(100)
        """
    )
    write(frame, entities, queue=queue)
    found = sorted(peek(entities, queue), key=lambda message: int(message.body))
    assert [message.message_id for message in found] == [f"m{number}" for number in range(100)]
    assert found[7].application_properties == {"n": 7, "c": "blue"}
    assert found[7].scheduled_at == datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert found[7].state is MessageState.SCHEDULED
    assert found[7].header.ttl == 90_000


def test_partitioned_entities_sessions_and_topics_by_row(spark: "SparkSession", entities: Entities) -> None:
    partitioned = entities.queue(enable_partitioning=True)
    sessions = entities.queue(requires_session=True)
    topic = entities.topic("all")
    frame = spark.sql(
        f"""
        select string(id) as body, element_at(array('{partitioned}', '{sessions}', '{topic}'), int(id % 3) + 1) as entity,
               if(id % 3 = 1, concat('s', id % 2), null) as sessionId,
               if(id % 3 = 0, concat('k', id % 5), null) as partitionKey
        from range(0, 300, 1, 1)
        """
    )
    write(frame, entities)
    in_order: Mapping[str, Callable[[ReceivedMessage], Any]] = {
        partitioned: lambda message: message.partition_key,
        sessions: lambda message: message.session_id,
        f"{topic}/Subscriptions/all": lambda message: None,
    }
    for path, key_of in in_order.items():
        found = peek(entities, path)
        assert len(found) == 100
        for key in {key_of(message) for message in found}:
            numbers = [int(message.body) for message in found if key_of(message) == key]
            assert numbers == sorted(numbers)


def test_a_task_that_fails_behind_its_first_sends_sends_nothing_twice(
    spark: "SparkSession", entities: Entities
) -> None:
    """At its first attempt, the task has a row at its end that makes no message."""
    queue = entities.queue(requires_duplicate_detection=True)

    def lives(batches: Any) -> Any:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            fails = context.attemptNumber() == 0 and pa.compute.max(batch["id"]).as_py() == 4_999
            life = [60_000] * (batch.num_rows - 1) + [-1 if fails else 60_000]
            yield pa.record_batch({"body": pa.compute.cast(batch["id"], pa.string()), "timeToLive": pa.array(life)})

    write(spark.range(0, 5_000, 1, 1).mapInArrow(lives, "body string, timeToLive bigint"), entities, queue=queue)
    assert entities.broker.count(queue) == 5_000


WRONG: list[tuple[str, dict[str, str], str]] = [
    ("select 1 as id, '' as body", {"queue": "q"}, "A message has no column 'id'."),
    ("select '' as body", {"queue": "nowhere"}, "'nowhere' cannot be written to (amqp:not-found)"),
    ("select '' as body, 'nowhere' as entity", {}, "'nowhere': a message was refused for good (amqp:not-found)"),
]


@pytest.mark.parametrize(("query", "options", "said"), WRONG)
def test_what_is_wrong_is_said_in_one_line(
    spark: "SparkSession", entities: Entities, query: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(spark.sql(query), entities, **options)
    assert reason_of(caught.value).text.startswith(said)
    assert "SharedAccessKey" not in str(caught.value)


def test_an_entity_cannot_be_overwritten(spark: "SparkSession", entities: Entities) -> None:
    frame = spark.sql("select '' as body").write.format("servicebus").options(**entities.options, queue="q")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        frame.mode("overwrite").save()


@pytest.mark.rule("C3.1")
def test_what_was_read_is_written_as_it_was(spark: "SparkSession", entities: Entities) -> None:
    """Columns that only a source has need not be dropped, and properties keep their types."""
    source, target = entities.queue(), entities.queue()
    properties = {
        "text": "5",
        "int": Int(5),
        "long": Long(5),
        "double": 5.0,
        "flag": True,
        "time": Timestamp(1_767_322_800_123),
        "id": UUID(int=7),
        "bytes": b"\x00",
        "none": None,
    }
    payload = encode_message(
        b"\x00body",
        message_id="m",
        session_id="s",
        partition_key="s",
        subject="j",
        correlation_id="c",
        content_type="text/plain",
        to="t",
        reply_to="r",
        reply_to_session_id="rs",
        time_to_live=timedelta(days=1),
        application_properties=properties,
    )
    with BlockingNamespace.connect(entities.broker.connection_string) as namespace:
        assert not any(namespace.sender(source).send([payload]))
    read = spark.read.format("servicebus").options(**entities.options, queue=source).load()
    write(read, entities, queue=target)
    (original,), (copy,) = peek(entities, source), peek(entities, target)
    assert copy.properties == original.properties
    assert encode_value(copy.application_properties) == encode_value(original.application_properties)
    assert (copy.body, copy.partition_key) == (original.body, original.partition_key)
    assert copy.header.ttl == 86_400_000
