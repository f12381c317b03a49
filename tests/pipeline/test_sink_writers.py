"""The writers as Spark calls them, without Spark: Arrow batches in, messages in a real namespace out."""

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from twinbus.client.blocking import BlockingNamespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.model.wire_names import MessageState
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.sink.columns import SchemaError
from twinbus.pipeline.sink.delivery import WriteFailed
from twinbus.pipeline.sink.message_ids import TaskPlace
from twinbus.pipeline.sink.messages import RowError
from twinbus.pipeline.sink.options import SinkOptions
from twinbus.pipeline.sink.writers import WrittenMessages, stream_writer, writer
from twinbus.pipeline.sink.writing import Writing
from twinbus.testing.local_namespace import LocalNamespace
from twinbus.testing.pytest_plugin import namespace_fixture

bus = namespace_fixture(scope="module")


@pytest.fixture
def queue(bus: LocalNamespace, request: pytest.FixtureRequest) -> str:
    return bus.create_queue(f"q{abs(hash(request.node.nodeid))}")


def options(bus: LocalNamespace, **more: str) -> dict[str, str]:
    return {"connectionString": bus.connection_string, "retryTotal": "0", **more}


def write(bus: LocalNamespace, columns: dict[str, Any], *, stream: bool = False, **more: str) -> WrittenMessages:
    """Also over pickle, as the writer travels to the executors."""
    table = pa.table(columns)
    make = stream_writer if stream else writer
    made = pickle.loads(pickle.dumps(make(options(bus, **more), from_arrow_schema(table.schema), False)))
    written: WrittenMessages = made.write(iter(table.to_batches()))
    return written


def peek(bus: LocalNamespace, path: str) -> list[ReceivedMessage]:
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        return namespace.run(namespace.extras(path).peek_merged(250))


def bodies(messages: list[ReceivedMessage]) -> list[str]:
    return [message.body.decode() for message in messages]


def test_every_column_arrives_as_the_part_of_a_message_that_it_names(bus: LocalNamespace, queue: str) -> None:
    due = datetime(2100, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    written = write(
        bus,
        {
            "body": [b"\x00\x01"],
            "MessageID": ["m"],  # names are found in any case
            "sessionId": ["s"],
            "partitionKey": ["s"],
            "correlationId": ["c"],
            "subject": ["j"],
            "to": ["t"],
            "replyTo": ["r"],
            "replyToSessionId": ["rs"],
            "contentType": ["text/plain"],
            "properties": pa.array([[("n", "5"), ("t", "blue"), ("none", None)]], pa.map_(pa.string(), pa.string())),
            "scheduledEnqueueTime": pa.array([due], pa.timestamp("us", "UTC")),
            "timeToLive": pa.array([timedelta(seconds=90)], pa.duration("us")),
        },
        queue=queue,
    )
    assert (written.messages, written.set_aside) == (1, 0)
    (message,) = peek(bus, queue)
    found = message.properties
    assert message.body == b"\x00\x01"
    assert (message.message_id, message.session_id, message.partition_key) == ("m", "s", "s")
    assert (found.correlation_id, found.subject, found.to, found.reply_to) == ("c", "j", "t", "r")
    assert (found.reply_to_group_id, found.content_type) == ("rs", "text/plain")
    assert message.application_properties == {"n": 5, "t": "blue", "none": None}
    assert message.scheduled_at == due
    assert message.state is MessageState.SCHEDULED
    assert message.time_to_live == timedelta(seconds=90)


def test_a_text_is_sent_as_utf_8(bus: LocalNamespace, queue: str) -> None:
    write(bus, {"body": ["ü", None]}, queue=queue)
    assert [message.body for message in peek(bus, queue)] == ["ü".encode(), None]


def test_properties_are_texts_where_the_option_says_so(bus: LocalNamespace, queue: str) -> None:
    properties = pa.array([[("n", "5")]], pa.map_(pa.string(), pa.string()))
    write(bus, {"body": ["x"], "properties": properties}, queue=queue, propertyValues="text")
    assert peek(bus, queue)[0].application_properties == {"n": "5"}


def test_each_row_goes_to_its_entity(bus: LocalNamespace, queue: str) -> None:
    other = bus.create_queue(f"{queue}-other")
    write(bus, {"body": ["a", "b", "c"], "entity": [queue, other, queue]})
    assert (bodies(peek(bus, queue)), bodies(peek(bus, other))) == (["a", "c"], ["b"])


def test_the_option_goes_before_the_column(bus: LocalNamespace, queue: str) -> None:
    write(bus, {"body": ["a"], "entity": ["elsewhere"]}, queue=queue)
    assert bodies(peek(bus, queue)) == ["a"]


def test_a_row_that_says_no_destination_is_named(bus: LocalNamespace, queue: str) -> None:
    with pytest.raises(RowError, match="Row 1 of input partition 0: the column 'entity' is empty"):
        write(bus, {"body": ["a", "b"], "entity": [queue, None]})


@pytest.mark.parametrize("entity", ["$cbs", "{queue}/$management", "{queue}/$DeadLetterQueue", " {queue}", "a//b"])
def test_a_row_for_what_is_no_queue_or_topic_is_named_and_not_swallowed(
    bus: LocalNamespace, queue: str, entity: str
) -> None:
    """Some nodes of a namespace take whatever is sent to them, and keep nothing of it."""
    with pytest.raises(RowError, match=r"Row 1 of input partition 0: .* is not a name for a queue or topic"):
        write(bus, {"body": ["a", "b"], "entity": [queue, entity.format(queue=queue)]})


def test_mixed_keys_are_kept_apart_for_a_partitioned_entity(bus: LocalNamespace, queue: str) -> None:
    path = bus.create_queue(f"{queue}-p", enable_partitioning=True)
    keys = [None if number % 3 == 0 else f"k{number % 3}" for number in range(60)]
    write(bus, {"body": [str(number) for number in range(60)], "partitionKey": keys}, queue=path)
    found = peek(bus, path)
    assert len(found) == 60
    for key in ("k1", "k2"):
        numbers = [int(message.body) for message in found if message.partition_key == key]
        assert numbers == sorted(numbers)


def test_order_within_a_session_is_kept_over_many_batches(bus: LocalNamespace, queue: str) -> None:
    path = bus.create_queue(f"{queue}-s", requires_session=True)
    sessions = [f"s{number % 2}" for number in range(200)]
    write(bus, {"body": [str(n) for n in range(200)], "sessionId": sessions}, queue=path, batchBytes="2048")
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        received = namespace.session_receiver(path, "s1").collect(100, 5)
    assert [int(message.body) for message in received] == list(range(1, 200, 2))


def test_a_partitioned_entity_that_detects_duplicates_takes_messages_without_a_key(
    bus: LocalNamespace, queue: str
) -> None:
    path = bus.create_queue(f"{queue}-d", enable_partitioning=True, requires_duplicate_detection=True)
    for _ in range(2):
        write(bus, {"body": ["a"] * 50, "messageId": [str(number) for number in range(50)]}, queue=path)
    assert bus.message_count(path) == 50


def test_a_task_that_is_run_again_sends_the_same_ids(bus: LocalNamespace, queue: str) -> None:
    path = bus.create_queue(f"{queue}-d", requires_duplicate_detection=True)
    table = pa.table({"body": ["a", "a", "b"]})
    made = writer(options(bus, queue=path), from_arrow_schema(table.schema), False)
    for _ in range(2):
        made.write(iter(table.to_batches()))
    assert bus.message_count(path) == 3
    write(bus, {"body": ["a", "a", "b"]}, queue=path)
    assert bus.message_count(path) == 6, "another job has messages of its own"


def test_an_empty_id_is_none_at_all(bus: LocalNamespace, queue: str) -> None:
    """A namespace would draw another one for it each time that it is sent."""
    path = bus.create_queue(f"{queue}-d", requires_duplicate_detection=True)
    table = pa.table({"body": ["a", "b"], "messageId": ["", ""]})
    made = writer(options(bus, queue=path), from_arrow_schema(table.schema), False)
    for _ in range(2):
        made.write(iter(table.to_batches()))
    assert bus.message_count(path) == 2
    with pytest.raises(RowError, match="has no messageId"):
        write(bus, {"body": ["a"], "messageId": [""]}, queue=path, idempotent="true")


def test_rows_in_another_order_are_never_taken_for_duplicates(bus: LocalNamespace, queue: str) -> None:
    path = bus.create_queue(f"{queue}-d", requires_duplicate_detection=True)
    first, second = pa.table({"body": ["a", "b"]}), pa.table({"body": ["b", "a"]})
    made = writer(options(bus, queue=path), from_arrow_schema(first.schema), False)
    for table in (first, second):
        made.write(iter(table.to_batches()))
    assert sorted(bodies(peek(bus, path))) == ["a", "a", "b", "b"]


def test_an_idempotent_batch_needs_an_id_in_every_row(bus: LocalNamespace, queue: str) -> None:
    with pytest.raises(SchemaError, match="needs a column 'messageId'"):
        write(bus, {"body": ["a"]}, queue=queue, idempotent="true")
    with pytest.raises(RowError, match="has no messageId"):
        write(bus, {"body": ["a"], "messageId": pa.array([None], pa.string())}, queue=queue, idempotent="true")
    write(bus, {"body": ["a"], "messageId": ["1"]}, queue=queue, idempotent="true")
    write(bus, {"body": ["b"]}, queue=queue, idempotent="true", stream=True)
    assert bodies(peek(bus, queue)) == ["a", "b"]


def test_what_is_too_large_fails_the_task_by_name(bus: LocalNamespace, queue: str) -> None:
    with pytest.raises(WriteFailed, match=rf"'{queue}': .*message-size-exceeded\): message 'big' of 3\d* bytes"):
        write(bus, {"body": ["x" * 300_000], "messageId": ["big"]}, queue=queue)


def test_what_is_too_large_goes_to_the_dead_letter_queue_without_its_body(bus: LocalNamespace, queue: str) -> None:
    aside = bus.create_queue(f"{queue}-large")
    columns = {
        "body": ["small", "x" * 300_000],
        "messageId": ["1", "2"],
        "scheduledEnqueueTime": pa.array([None, datetime(2100, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "properties": pa.array([None, [("n", "5")]], pa.map_(pa.string(), pa.string())),
    }
    written = write(bus, columns, queue=queue, onOversize="deadLetter", deadLetterQueue=aside)
    assert (written.messages, written.set_aside) == (2, 1)
    assert bodies(peek(bus, queue)) == ["small"]
    (notice,) = peek(bus, aside)
    assert (notice.message_id, notice.body, notice.state) == ("2", None, MessageState.ACTIVE)
    assert notice.dead_letter_reason == "MessageSizeExceeded"
    assert notice.application_properties["n"] == 5
    assert f"'{queue}' accepts messages of up to" in str(notice.dead_letter_description)


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(0, "of 0 ms ends before"), (-5, "of -5 ms ends before"), (-(2**63), "ms ends before")],
)
def test_a_life_that_is_over_is_an_error_of_its_row(
    bus: LocalNamespace, queue: str, milliseconds: int, said: str
) -> None:
    with pytest.raises(RowError, match=f"Row 1 of input partition 0, for '{queue}': .*{said}"):
        write(bus, {"body": ["a", "b"], "timeToLive": pa.array([5000, milliseconds])}, queue=queue)


def test_a_life_longer_than_the_header_can_say_is_a_span_of_dates(bus: LocalNamespace, queue: str) -> None:
    write(bus, {"body": ["a"], "timeToLive": pa.array([60 * 24 * 3_600_000])}, queue=queue)
    (message,) = peek(bus, queue)
    expires, created = message.properties.absolute_expiry_time, message.properties.creation_time
    assert expires is not None
    assert created is not None
    assert expires - created == 60 * 24 * 3_600_000


def test_the_longest_life_there_is_ends_with_the_last_date(bus: LocalNamespace, queue: str) -> None:
    write(bus, {"body": ["a"], "timeToLive": pa.array([2**63 - 1])}, queue=queue)
    (message,) = peek(bus, queue)
    expires = message.properties.absolute_expiry_time
    assert expires is not None
    assert datetime.fromtimestamp(expires / 1000, UTC).year == 9999


@pytest.mark.parametrize("option", ["queue", "deadLetterQueue"])
def test_an_entity_that_is_not_there_is_reported_when_the_write_is_planned(
    bus: LocalNamespace, queue: str, option: str
) -> None:
    named = {"queue": queue, "onOversize": "deadLetter", "deadLetterQueue": queue, option: "nowhere"}
    schema = from_arrow_schema(pa.schema({"body": pa.string()}))
    with pytest.raises(OptionError, match=r"'nowhere' cannot be written to \(amqp:not-found\)"):
        writer(options(bus, **named), schema, False)


def test_a_missing_right_is_reported_when_the_write_is_planned(bus: LocalNamespace, queue: str) -> None:
    wrong = bus.connection_string.replace("SharedAccessKey=", "SharedAccessKey=wrong")
    table = pa.table({"body": ["a"]})
    with pytest.raises(OptionError, match="cannot be written to") as caught:
        writer({"connectionString": wrong, "queue": queue}, from_arrow_schema(table.schema), False)
    assert "wrong" not in str(caught.value)


def test_an_entity_that_vanished_or_a_column_names_wrongly_fails_the_task(bus: LocalNamespace, queue: str) -> None:
    with pytest.raises(WriteFailed, match=r"'nowhere': .* refused for good \(amqp:not-found\)"):
        write(bus, {"body": ["a"], "entity": ["nowhere"]})


def test_a_message_without_a_session_is_refused_where_sessions_are_required(bus: LocalNamespace, queue: str) -> None:
    path = bus.create_queue(f"{queue}-s", requires_session=True)
    with pytest.raises(WriteFailed, match=rf"'{path}': .*requires message sessions"):
        write(bus, {"body": ["a", "b"]}, queue=path)


@pytest.mark.parametrize("make", [writer, stream_writer])
def test_an_entity_cannot_be_overwritten(bus: LocalNamespace, make: Any) -> None:
    with pytest.raises(OptionError, match="cannot be overwritten"):
        make(options(bus, queue="q"), from_arrow_schema(pa.schema({"body": pa.string()})), True)


def test_a_namespace_that_does_not_answer_does_not_keep_a_job_from_being_planned(bus: LocalNamespace) -> None:
    away = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
    writer({"connectionString": away, "queue": "q"}, from_arrow_schema(pa.schema({"body": pa.string()})), False)
    writer(
        {"connectionStringEnv": "NOT_SET_HERE", "queue": "q"},
        from_arrow_schema(pa.schema({"body": pa.string()})),
        False,
    )


def test_a_rate_is_kept_by_waiting_between_chunks(bus: LocalNamespace, queue: str) -> None:
    table = pa.table({"body": ["a"] * 25})
    waits: list[float] = []
    parsed = SinkOptions.from_options(options(bus, queue=queue, maxMessagesPerSecond="20"))
    written = Writing(parsed, {"body": 0}).write(table.to_batches(), TaskPlace("job", 0), sleep=waits.append)
    assert (written.messages, bus.message_count(queue)) == (25, 25)
    assert waits[0] == 0
    assert waits[1] == pytest.approx(0.5, abs=0.4)
    assert waits[2] == pytest.approx(1.0, abs=0.4)
