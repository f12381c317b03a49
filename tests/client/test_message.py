"""Encoded messages and received ones: what goes in comes out, as the types that it was."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.sections import DataBody, SequenceBody, ValueBody, decode_sections
from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.errors import DecodeError
from twinbus.client.message import encode_message
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import ArgumentError
from twinbus.model.delivery import encode_delivery
from twinbus.model.message import read_message
from twinbus.model.wire_names import MessageState

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
TOKEN = UUID("00112233-4455-6677-8899-aabbccddeeff")

# What AMQP and Python both have, so that it comes back as it was.
VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary() | st.uuids()


def received(payload: bytes, **facts: Any) -> ReceivedMessage:
    """The message as the broker hands it over."""
    content = read_message(payload, lambda: "drawn").content
    delivered = {"sequence_number": 7, "enqueued_at": 1_893_499_200_000, "delivery_count": 2, **facts}
    return ReceivedMessage(encode_delivery(content, **delivered), TOKEN.bytes_le)


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b"bytes", b"bytes"),
        ("text ü", "text ü".encode()),
        (b"", b""),
        (None, None),
        ({"a": [1, 2]}, {"a": [1, 2]}),
        (5, 5),
        (bytes(255), bytes(255)),
        (bytes(256), bytes(256)),
        (DataBody([b"a", b"b"]), b"ab"),
        (DataBody([bytes(300), b"b"]), bytes(300) + b"b"),
        (SequenceBody([[1, 2], ["x"]]), [1, 2, "x"]),
        (ValueBody("text"), "text"),
        (ValueBody(None), None),
    ],
)
def test_a_body_comes_back_as_the_kind_it_was(body: Any, read: Any) -> None:
    assert ReceivedMessage(encode_message(body)).body == read


def test_a_message_without_a_body_has_no_body_section() -> None:
    assert decode_sections(encode_message(message_id="1")).body is None
    assert decode_sections(encode_message(b"")).body == DataBody([b""])


def test_every_property_that_is_given_is_written() -> None:
    message = ReceivedMessage(
        encode_message(
            "body",
            message_id="id",
            session_id="session",
            partition_key="session",
            via_partition_key="via",
            subject="subject",
            correlation_id=TOKEN,
            content_type="text/plain",
            to="there",
            reply_to="here",
            reply_to_session_id="other",
            time_to_live=timedelta(seconds=90),
            scheduled_at=NOON,
            application_properties={"n": 1, "when": NOON},
            annotations={"x-own": "a"},
        )
    )
    assert (message.message_id, message.session_id, message.subject) == ("id", "session", "subject")
    assert (message.partition_key, message.annotations["x-opt-via-partition-key"]) == ("session", "via")
    assert message.properties.correlation_id == TOKEN
    assert (message.properties.content_type, message.properties.to) == ("text/plain", "there")
    assert (message.properties.reply_to, message.properties.reply_to_group_id) == ("here", "other")
    assert message.time_to_live == timedelta(seconds=90)
    assert message.scheduled_at == NOON
    assert message.application_properties == {"n": 1, "when": Timestamp(NOON.timestamp() * 1000)}
    assert message.annotations["x-own"] == "a"


@given(st.dictionaries(st.text(max_size=20), VALUES, max_size=5), VALUES)
def test_application_properties_and_bodies_of_any_value_survive(properties: dict[str, Any], value: Any) -> None:
    message = ReceivedMessage(encode_message(ValueBody(value), application_properties=properties))
    assert message.application_properties == properties
    assert message.body == value


def test_what_is_left_out_reads_as_nothing() -> None:
    message = ReceivedMessage(encode_message())
    assert message.payload == b""
    assert (message.body, message.message_id, message.session_id, message.partition_key) == (None, None, None, None)
    assert (message.sequence_number, message.enqueued_at, message.locked_until, message.lock_token) == (None,) * 4
    assert (message.delivery_count, message.time_to_live, message.state) == (0, None, MessageState.ACTIVE)
    assert message.application_properties == {}


def test_what_the_broker_says_of_a_delivery_is_read() -> None:
    message = received(encode_message("x", message_id="m"), lock_token=TOKEN.bytes_le, locked_until=1_893_499_260_000)
    assert (message.sequence_number, message.delivery_count) == (7, 2)
    assert message.enqueued_at == NOON
    assert message.locked_until == NOON + timedelta(minutes=1)
    assert message.lock_token == TOKEN
    assert message.body == b"x"


def test_a_peeked_message_tells_its_state() -> None:
    assert received(encode_message("x"), state=1, show_state=True).state is MessageState.DEFERRED
    assert received(encode_message("x"), state=2, show_state=True).state is MessageState.SCHEDULED


def test_sections_in_any_order_are_read() -> None:
    head, body = encode_message(subject="s"), encode_message("b")
    message = ReceivedMessage(body + head)
    assert (message.subject, message.body) == ("s", b"b")


def test_nothing_is_decoded_before_it_is_asked_for() -> None:
    broken = ReceivedMessage(encode_message("b") + b"\x00\x53")
    assert broken.delivery_id is None
    with pytest.raises(DecodeError):
        _ = broken.body


def test_a_header_of_too_many_fields_is_malformed() -> None:
    with pytest.raises(DecodeError):
        _ = ReceivedMessage(b"\x00\x53\x70" + encode_value([None] * 6)).delivery_count


@given(st.binary(max_size=80))
def test_whatever_the_payload_is_reading_it_raises_nothing_but_a_decode_error(payload: bytes) -> None:
    message = ReceivedMessage(payload)
    for part in ("header", "annotations", "properties", "application_properties", "body"):
        with suppress(DecodeError):
            getattr(message, part)


def test_a_received_message_cannot_be_changed() -> None:
    message = ReceivedMessage(b"")
    with pytest.raises(AttributeError):
        message.payload = b"other"  # type: ignore[misc]


def test_times_of_other_zones_are_converted_and_times_without_a_zone_refused() -> None:
    there = datetime(2030, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    assert ReceivedMessage(encode_message(scheduled_at=there)).scheduled_at == NOON
    with pytest.raises(ArgumentError, match="time zone"):
        encode_message(scheduled_at=datetime(2030, 1, 1))


def test_a_life_of_more_than_49_days_is_reported_as_a_span_of_dates() -> None:
    payload = encode_message(time_to_live=timedelta(days=60), created_at=NOON)
    assert read_message(payload, lambda: "").time_to_live == 60 * 86_400_000
    with pytest.raises(ArgumentError, match="created_at"):
        encode_message(time_to_live=timedelta(days=60))


@pytest.mark.parametrize("span", [timedelta(0), timedelta(seconds=-1), timedelta(microseconds=1)])
def test_a_life_that_is_over_at_once_is_refused(span: timedelta) -> None:
    with pytest.raises(ArgumentError, match="time to live"):
        encode_message(time_to_live=span)
