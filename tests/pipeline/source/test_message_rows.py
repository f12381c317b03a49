"""Messages as rows of Arrow: every column, types as Spark has them, and batches bounded by bytes."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pyarrow as pa
import pytest

from twinbus.amqp.codec.sections import Header, MessageProperties, Sections, SequenceBody, ValueBody, encode_sections
from twinbus.amqp.codec.types import Array, Described, Symbol, Timestamp, UInt
from twinbus.client.entity_extras import PackedPage
from twinbus.client.message import encode_message
from twinbus.client.received_message import ReceivedMessage
from twinbus.model import wire_names
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.source.rows import shaped_rows
from twinbus.pipeline.source.rows.columns import COLUMNS, NAMES, arrow_schema, chosen
from twinbus.pipeline.source.rows.message_rows import record_batch
from twinbus.pipeline.source.rows.shaped_rows import Payloads, record_batches

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def received(body: object = b"x", **properties: object) -> ReceivedMessage:
    return ReceivedMessage(encode_message(body, **properties))  # type: ignore[arg-type]


def page(messages: list[ReceivedMessage]) -> Payloads:
    return Payloads.of_page(PackedPage.of([message.payload for message in messages], None))


def only(message: ReceivedMessage, name: str) -> object:
    return record_batch([message], "orders", [name]).to_pylist()[0][name]


def test_arrow_types_are_those_that_spark_expects() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    assert to_arrow_schema(from_arrow_schema(arrow_schema()), timezone="UTC").equals(arrow_schema())
    ddl = {field.name: field.dataType.simpleString() for field in from_arrow_schema(arrow_schema()).fields}
    assert ddl == {column.name: column.kind for column in COLUMNS}


def test_every_column_comes_from_its_part_of_the_message() -> None:
    message = received(
        b"body",
        message_id="m1",
        session_id="s1",
        partition_key="s1",
        subject="label",
        correlation_id="c1",
        content_type="text/plain",
        to="there",
        reply_to="here",
        reply_to_session_id="rs",
        time_to_live=timedelta(seconds=30),
        scheduled_at=NOON,
        application_properties={"DeadLetterReason": "why", "DeadLetterErrorDescription": "how", "n": 1, "t": "x"},
        annotations={
            "x-opt-sequence-number": (3 << 48) + 7,
            "x-opt-enqueued-time": NOON,
            "x-opt-enqueue-sequence-number": 5,
            "x-opt-message-state": 1,
            "x-opt-deadletter-source": "origin",
        },
    )
    (row,) = record_batch([message], "orders").to_pylist()
    assert row == {
        "body": b"body",
        "messageId": "m1",
        "sequenceNumber": (3 << 48) + 7,
        "fragment": 3,
        "enqueuedTime": NOON,
        "enqueuedSequenceNumber": 5,
        "sessionId": "s1",
        "partitionKey": "s1",
        "correlationId": "c1",
        "subject": "label",
        "to": "there",
        "replyTo": "here",
        "replyToSessionId": "rs",
        "contentType": "text/plain",
        "deliveryCount": 0,
        "state": "deferred",
        "expiresAt": NOON + timedelta(seconds=30),
        "timeToLive": 30_000,
        "scheduledEnqueueTime": NOON,
        "deadLetterReason": "why",
        "deadLetterErrorDescription": "how",
        "deadLetterSource": "origin",
        "properties": [
            ("DeadLetterReason", '"why"'),
            ("DeadLetterErrorDescription", '"how"'),
            ("n", "1"),
            ("t", '"x"'),
        ],
        "entity": "orders",
    }
    assert tuple(row) == NAMES


def test_what_a_message_lacks_is_null() -> None:
    (row,) = record_batch([received(None)], "orders").to_pylist()
    given = {name: value for name, value in row.items() if value is not None}
    assert given == {"fragment": 0, "deliveryCount": 0, "state": "active", "properties": [], "entity": "orders"}


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("tëxt", "tëxt".encode()),
        (ValueBody("text"), b"text"),
        (ValueBody({"a": [1, b"\x00"]}), b'{"a": [1, "AA=="]}'),
        (ValueBody({UUID(int=1): {b"\x00": 1}, 2: 3}), f'{{"{UUID(int=1)}": {{"AA==": 1}}, "2": 3}}'.encode()),
        (ValueBody(Array([Described(Symbol("a:b"), 1)])), b"[1]"),
        (SequenceBody([[1, 2], [3]]), b"[1, 2, 3]"),
    ],
)
def test_a_body_that_is_no_data_is_text_or_json(body: object, shown: bytes) -> None:
    assert only(received(body), "body") == shown


@pytest.mark.parametrize(("given", "shown"), [(7, "7"), (UUID(int=1), str(UUID(int=1))), (b"\xff", "ff")])
def test_ids_of_any_type_are_text(given: object, shown: str) -> None:
    assert only(received(message_id=given), "messageId") == shown


def test_the_owner_of_a_claim_is_not_a_property_of_the_message() -> None:
    message = received(application_properties={wire_names.CLAIMED_BY: "job", "n": 1})
    assert only(message, "properties") == [("n", "1")]


def test_a_part_that_cannot_be_decoded_is_null_and_the_rest_of_the_rows_are_there() -> None:
    good = received(b"good", application_properties={"n": 1})
    start = good.payload.index(b"\x00\x53\x74") + 3
    bad = ReceivedMessage(good.payload[:start] + b"\x3f" + good.payload[start + 1 :])
    rows = record_batch([good, bad], "orders", ["properties", "entity"]).to_pylist()
    assert rows == [{"properties": [("n", "1")], "entity": "orders"}, {"properties": None, "entity": "orders"}]


def test_batches_are_bounded_by_bytes_and_only_one_message_makes_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaped_rows, "BATCH_BYTES_MAX", 1_000)
    sizes = [300, 300, 300, 300, 2_000, 10]
    pages = [page([received(bytes(size)) for size in part]) for part in (sizes[:4], sizes[4:])]
    batches = list(record_batches(pages, "orders", ["body"]))
    assert [[len(body.as_py()) for body in batch["body"]] for batch in batches] == [
        [300, 300, 300],
        [300],
        [2_000],
        [10],
    ]


def test_batches_are_bounded_by_rows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaped_rows, "BATCH_ROWS_MAX", 4)
    batches = list(record_batches([page([received()] * 6), page([received()] * 4)], "orders"))
    assert [batch.num_rows for batch in batches] == [4, 4, 2]
    assert all(isinstance(batch, pa.RecordBatch) and batch.schema == arrow_schema() for batch in batches)


def test_no_messages_make_no_batch() -> None:
    assert list(record_batches([page([]), page([])], "orders")) == []


def test_a_reader_may_choose_columns_by_a_schema_of_its_own() -> None:
    assert chosen([("messageId", "string"), ("body", "binary")]) == ("messageId", "body")


@pytest.mark.parametrize("fields", [[("bodi", "binary")], [("body", "string")]])
def test_a_column_that_there_is_not_is_refused_by_name(fields: list[tuple[str, str]]) -> None:
    with pytest.raises(OptionError, match=fields[0][0]):
        chosen(fields)


def encoded(**sections: object) -> ReceivedMessage:
    return ReceivedMessage(encode_sections(Sections(**sections)))  # type: ignore[arg-type]


def test_a_life_longer_than_a_header_can_say_ends_at_its_date() -> None:
    message = encoded(properties=MessageProperties(absolute_expiry_time=Timestamp(NOON_MS)), header=Header(ttl=UInt(5)))
    assert only(message, "expiresAt") == NOON


@pytest.mark.parametrize(
    ("life", "expected"),
    [
        (None, None),
        (timedelta(days=49), 49 * 86_400_000),
        (timedelta(days=400), 400 * 86_400_000),
    ],
)
def test_a_time_to_live_is_what_was_sent(life: timedelta | None, expected: int | None) -> None:
    assert only(received(time_to_live=life, created_at=NOON), "timeToLive") == expected


def test_a_life_between_dates_that_no_calendar_has_is_that_of_the_header() -> None:
    """Any sender can write them, and a value that no column holds would stop every query over the entity."""
    dates = MessageProperties(creation_time=Timestamp(-(2**63)), absolute_expiry_time=Timestamp(2**63 - 1))
    assert only(encoded(properties=dates, header=Header(ttl=UInt(2**32 - 1))), "timeToLive") == 2**32 - 1


def test_a_life_that_is_over_at_once_or_without_dates_is_no_error() -> None:
    assert only(encoded(header=Header(ttl=UInt(0))), "timeToLive") is None
    assert only(encoded(header=Header(ttl=UInt(2**32 - 1))), "timeToLive") == 2**32 - 1


@pytest.mark.parametrize("time", ["soon", Timestamp(2**62), Timestamp(253_402_300_800_000), Timestamp(-(10**14)), None])
def test_what_is_no_time_or_beyond_all_calendars_is_null(time: object) -> None:
    message = encoded(message_annotations={"x-opt-scheduled-enqueue-time": time})
    assert only(message, "scheduledEnqueueTime") is None
    assert only(encoded(properties=MessageProperties(absolute_expiry_time=time)), "expiresAt") is None  # type: ignore[arg-type]


def test_a_delivery_count_beyond_the_column_is_its_largest_number() -> None:
    assert only(encoded(header=Header(delivery_count=UInt(2**32 - 1))), "deliveryCount") == 2**31 - 1


def test_sections_in_another_order_are_read_alike() -> None:
    subject = encode_sections(Sections(properties=MessageProperties(subject="s")))
    count = encode_sections(Sections(header=Header(delivery_count=UInt(3))))
    row = record_batch([ReceivedMessage(subject + count)], "orders").to_pylist()[0]
    assert (row["subject"], row["deliveryCount"]) == ("s", 3)


def test_what_is_no_message_at_all_is_a_row_of_nulls() -> None:
    (row,) = record_batch([ReceivedMessage(b"\x00\x53\x73\xc0\xff")], "orders").to_pylist()
    given = {name: value for name, value in row.items() if value is not None}
    assert given == {"fragment": 0, "deliveryCount": 0, "state": "active", "entity": "orders"}
