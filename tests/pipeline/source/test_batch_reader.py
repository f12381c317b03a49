"""Batch queries over a real namespace: what they read, where they start and end, and what they refuse."""

import pickle
from datetime import UTC, datetime, timedelta

import pytest

from tests.pipeline.source.bus import Bus, bodies, names, rows
from tests.pipeline.source.micro_batches import Query
from twinbus.client.blocking import BlockingNamespace
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.source.batch_reader import ServiceBusBatchReader
from twinbus.pipeline.source.data_source import ServiceBusDataSource
from twinbus.pipeline.source.live_entity import LiveEntity, SourceFailed
from twinbus.pipeline.source.option_table import BATCH
from twinbus.pipeline.source.partition_reader import Asked, Piece, SliceReader
from twinbus.pipeline.source.planning import Slice
from twinbus.pipeline.source.rows.columns import NAMES


def read(bus: Bus, path: str = "", **given: str) -> list[str]:
    reader = bus.batch(path, **given)  # type: ignore[arg-type]
    return bodies(rows(reader, reader.partitions()))


def test_a_queue_is_read_whole_and_nothing_is_taken(bus: Bus) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(50))
    for _ in range(2):
        assert sorted(read(bus, path)) == sorted(names(50))


def test_an_empty_queue_has_no_rows(bus: Bus) -> None:
    reader = bus.batch(bus.queue())
    assert reader.partitions() == []
    # Spark makes one for itself then.
    from pyspark.sql.datasource import InputPartition

    assert list(reader.read(InputPartition(None))) == []


def test_several_queues_are_read_at_once_and_told_apart(bus: Bus) -> None:
    first, second = bus.queue(), bus.queue()
    bus.send(first, names(3, "a"))
    bus.send(second, names(3, "b"))
    reader = bus.batch(queues=f"{first},{second}", minPartitions="4")
    partitions = reader.partitions()
    assert len(partitions) == 4
    found = rows(reader, partitions)
    assert {(row["entity"], row["body"].decode()) for row in found} == {
        *((first, name) for name in names(3, "a")),
        *((second, name) for name in names(3, "b")),
    }


def test_numbers_say_where_to_start_and_where_to_end(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(10))
    assert read(bus, path, startingOffsets='{"0": 3}', endingOffsets='{"0": 6}') == ["m2", "m3", "m4"]
    assert read(bus, path, startingOffsets='{"0": 9}', endingOffsets='{"0": 600}') == ["m8", "m9"]
    assert read(bus, path, startingOffsets='{"0": 50}') == []


def test_a_number_before_the_first_message_may_fail_the_query(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(4))
    bus.take(path, 2)
    assert read(bus, path, startingOffsets='{"0": 1}') == ["m2", "m3"]
    with pytest.raises(SourceFailed, match="up to 2 messages"):
        read(bus, path, startingOffsets='{"0": 1}', failOnDataLoss="true")


def enqueued_times(bus: Bus, path: str) -> list[datetime]:
    reader = bus.batch(path)
    return [row["enqueuedTime"] for row in rows(reader, reader.partitions())]


def test_a_time_says_where_to_start(bus: Bus) -> None:
    path = bus.queue()
    for name in names(6):
        bus.send(path, [name])
    times = enqueued_times(bus, path)
    later = read(bus, path, startingTimestamp=times[3].isoformat())
    assert later == [name for name, time in zip(names(6), times, strict=True) if time >= times[3]]
    assert read(bus, path, startingTimestamp=(times[-1] + timedelta(seconds=1)).isoformat()) == []


def test_dead_letters_are_chosen_by_the_times_that_they_have_whatever_their_order(bus: Bus) -> None:
    """The youngest are dead-lettered first, so their numbers rise while their times fall."""
    path = bus.queue()
    for name in names(6):
        bus.send(path, [name])
    times = enqueued_times(bus, path)
    with BlockingNamespace.connect(bus.namespace.connection_string) as client:
        receiver = client.receiver(path, credit=6)
        for message in reversed(receiver.collect(6, 5)):
            assert not any(receiver.dead_letter([message]))
    wanted = [name for name, time in zip(names(6), times, strict=True) if time >= times[3]]
    since = times[3].isoformat()
    assert sorted(read(bus, path, subQueue="deadLetter", startingTimestamp=since)) == wanted
    query = Query(lambda: bus.stream(path, subQueue="deadLetter", startingTimestamp=since))
    query.run()
    assert sorted(query.kept) == wanted


def test_messages_younger_than_the_lag_are_left_for_later(bus: Bus) -> None:
    path = bus.queue()
    for name in names(5):
        bus.send(path, [name])
    times = enqueued_times(bus, path)
    now = int((times[3] - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1)) + 1_000
    reader = bus.batch(path, now=now, visibilityLag="1s")
    shown = bodies(rows(reader, reader.partitions()))
    assert shown == [name for name, time in zip(names(5), times, strict=True) if time < times[3]]


@pytest.mark.parametrize("has_bodies", [True, False])
def test_bodies_can_be_left_out(bus: Bus, has_bodies: bool) -> None:
    path = bus.queue()
    bus.send(path, names(3))
    reader = bus.batch(path, includeBody=str(has_bodies))
    found = rows(reader, reader.partitions())
    assert [row["messageId"] for row in found] == names(3)
    assert [row["body"] is not None for row in found] == [has_bodies] * 3


def test_dead_letters_say_why_they_are(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(1))
    with BlockingNamespace.connect(bus.namespace.connection_string) as client:
        receiver = client.receiver(path, credit=1)
        assert not any(receiver.dead_letter(receiver.collect(1, 5), "why", "how"))
    reader = bus.batch(path, subQueue="deadLetter")
    (row,) = rows(reader, reader.partitions())
    assert (row["deadLetterReason"], row["deadLetterErrorDescription"]) == ("why", "how")
    assert row["entity"] == f"{path}/$DeadLetterQueue"


def test_subscriptions_are_read_by_topic_and_name(bus: Bus) -> None:
    topic = bus.namespace.create_topic(bus.queue().replace("q-", "t-"), "all")
    bus.send(topic, names(3))
    assert read(bus, topic=topic, subscription="all") == names(3)


def test_scheduled_messages_are_shown_if_asked_for(bus: Bus) -> None:
    path = bus.queue()
    due = datetime.now(UTC) + timedelta(hours=1)
    bus.send(path, ["now"])
    bus.send(path, ["later"], scheduled_at=due)
    assert read(bus, path) == ["now"]
    reader = bus.batch(path, includeStates="scheduled")
    (row,) = rows(reader, reader.partitions())
    assert (row["body"], row["state"]) == (b"later", "scheduled")
    assert abs(row["scheduledEnqueueTime"] - due) < timedelta(milliseconds=2)


def test_small_pages_read_the_same(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(25))
    assert read(bus, path, prefetchCount="4") == names(25)


def test_a_batch_query_never_silently_lacks_a_fragment(bus: Bus) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(32))
    bus.namespace.store_down(1)
    try:
        with pytest.raises(SourceFailed, match="do not answer"):
            read(bus, path, retryTotal="0")
    finally:
        bus.namespace.store_up(1)


def test_a_reader_goes_to_executors_without_its_connection(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(3))
    reader = bus.batch(path)
    partitions = reader.partitions()
    again: ServiceBusBatchReader = pickle.loads(pickle.dumps(reader))
    assert bodies(rows(again, pickle.loads(pickle.dumps(partitions)))) == names(3)


# The data source itself: what is wrong is told when the query is planned


def source(bus: Bus, **given: str) -> ServiceBusDataSource:
    return ServiceBusDataSource({"connectionString": bus.namespace.connection_string, **given})


def test_the_schema_is_known_for_an_entity_that_is_there(bus: Bus) -> None:
    schema = source(bus, queue=bus.queue()).schema()
    assert [part.split("`")[1] for part in schema.split(", ")] == list(NAMES)


def test_an_entity_that_is_not_there_is_reported_by_name_and_in_one_line(bus: Bus) -> None:
    with pytest.raises(SourceFailed, match="'no-such-queue' could not be found") as refused:
        source(bus, queue="no-such-queue").schema()
    assert "\n" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_missing_rights_are_reported_when_the_query_is_planned(bus: Bus) -> None:
    from azure.servicebus.management import AccessRights, AuthorizationRule

    key = "bm90LWEtcmVhbC1rZXktYnV0LWxvbmctZW5vdWdoLWZvci1pdA=="
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND],
        key_name="sender",
        primary_key=key,
        secondary_key=key,
    )
    path = bus.queue(authorization_rules=[rule])
    endpoint = bus.namespace.connection_string.split("SharedAccessKeyName")[0]
    given = f"{endpoint}SharedAccessKeyName=sender;SharedAccessKey={key};UseDevelopmentEmulator=true"
    with pytest.raises(SourceFailed, match="Listen") as refused:
        ServiceBusDataSource({"connectionString": given, "queue": path}).schema()
    assert key not in str(refused.value)


def test_nobody_listening_is_reported_when_the_query_is_planned() -> None:
    given = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    with pytest.raises(SourceFailed, match=r"Nothing answers at 127\.0\.0\.1:1"):
        ServiceBusDataSource({"connectionString": given, "queue": "q", "retryTotal": "0"}).schema()


def test_a_schema_of_ones_own_chooses_columns(bus: Bus) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StringType, StructField, StructType

    from twinbus.pipeline.source.rows.columns import arrow_schema

    path = bus.queue()
    bus.send(path, names(1))
    reader = source(bus, queue=path).reader(from_arrow_schema(arrow_schema(["messageId", "deliveryCount"])))
    assert isinstance(reader, ServiceBusBatchReader)
    assert rows(reader, reader.partitions()) == [{"messageId": "m0", "deliveryCount": 0}]
    with pytest.raises(OptionError, match="'body' as string; it is binary"):
        source(bus, queue=path).reader(StructType([StructField("body", StringType())]))


def test_a_batch_query_has_no_options_of_streams(bus: Bus) -> None:
    with pytest.raises(OptionError, match="stream query only"):
        bus.options("q", BATCH, maxMessagesPerTrigger="1")


def test_a_slice_of_few_messages_and_very_many_numbers_takes_few_requests(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bus.queue()
    bus.send(path, names(5))
    asked: list[Piece] = []
    ask = SliceReader._ask

    def noted(reader: SliceReader, piece: Piece) -> Asked:
        asked.append(piece)
        return ask(reader, piece)

    monkeypatch.setattr(SliceReader, "_ask", noted)
    options = bus.options(path, BATCH)
    reader = SliceReader(LiveEntity(options.connection, path), options, NAMES)
    pages = list(reader.pages(Slice(path, ((1, 50_000_000),))))
    assert sum(page.count for page in pages) == 5
    assert len(asked) < 50
