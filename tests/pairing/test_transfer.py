"""What is set aside comes back exactly: over every property, annotation and kind of body of the SDK's messages."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from hypothesis import given, settings
from hypothesis import strategies as st

from twinbus.amqp.codec.sections import (
    DataBody,
    Header,
    MessageProperties,
    Sections,
    ValueBody,
    decode_sections,
    encode_sections,
    split_sections,
)
from twinbus.amqp.codec.types import Long, Symbol, Timestamp, UInt, ULong
from twinbus.pairing.rewriting.restore import NotATransfer, restore
from twinbus.pairing.rewriting.transfer import AnyMessage, annotated, set_aside

NOW = 1_800_000_000_000
PATH = "orders/eu"


def on_the_wire(message: AnyMessage) -> bytes:
    """The bytes that the SDK sends for it."""
    output = bytearray()
    return bytes(encode_payload(output, PyamqpTransport.to_outgoing_amqp_message(annotated(message))))


def through_a_backlog_queue(message: AnyMessage) -> Sections:
    restored = restore(as_delivered(on_the_wire(set_aside(message, PATH, lambda: "made-id", NOW))))
    assert restored.path == PATH
    return decode_sections(restored.payload)


def as_delivered(payload: bytes) -> bytes:
    """What a broker adds to a message on its way out."""
    sections = decode_sections(payload)
    sections.header = sections.header or Header()
    sections.header.delivery_count = UInt(3)
    annotations = sections.message_annotations or {}
    added = {
        Symbol("x-opt-sequence-number"): Long(7),
        Symbol("x-opt-enqueued-time"): Timestamp(NOW),
        Symbol("x-opt-locked-until"): Timestamp(NOW + 60_000),
    }
    sections.message_annotations = {**annotations, **added}
    sections.delivery_annotations = {
        **(sections.delivery_annotations or {}),
        Symbol("x-opt-lock-token"): uuid.UUID(int=1),
    }
    return encode_sections(sections)


def comparable(sections: Sections) -> Sections:
    """Without what the SDK stamps at each send that has a time to live, and without empty sections."""
    if sections.header is not None:
        sections.header.delivery_count = None
        if sections.header.ttl is not None and sections.properties is not None:
            sections.properties.creation_time = sections.properties.absolute_expiry_time = None
        if sections.header == Header():
            sections.header = None
    if sections.properties == MessageProperties():
        sections.properties = None
    return sections


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
names = texts.filter(lambda name: name and not name.startswith("x-"))
ints = st.integers(-(2**31), 2**31 - 1)
moments = st.integers(0, 4_000_000_000_000).map(lambda ms: datetime.fromtimestamp(ms / 1000, UTC))
simple = st.one_of(texts, ints, st.booleans(), st.uuids(), moments, st.floats(allow_nan=False))
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(simple, st.none(), st.binary(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=5,
)
bodies: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda parts: {"data_body": parts}, st.lists(st.binary(max_size=300), min_size=1, max_size=3)),
    st.builds(lambda rows: {"sequence_body": rows}, st.lists(st.lists(values, max_size=3), min_size=1, max_size=3)),
    st.builds(lambda value: {"value_body": value}, values),
)
maybe_text = st.none() | texts
headers = st.builds(
    AmqpMessageHeader,
    time_to_live=st.none() | st.integers(1, 2**32 - 1),
    durable=st.none() | st.booleans(),
    priority=st.none() | st.integers(0, 255),
    first_acquirer=st.none() | st.booleans(),
)
properties_sections = st.builds(
    AmqpMessageProperties,
    message_id=st.one_of(texts.filter(bool), st.uuids(), st.binary(min_size=1, max_size=8)),
    user_id=st.none() | st.binary(max_size=8),
    to=maybe_text,
    subject=maybe_text,
    reply_to=maybe_text,
    correlation_id=maybe_text,
    content_type=st.none() | st.just("text/plain"),
    content_encoding=st.none() | st.just("utf-8"),
    group_id=maybe_text,
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
    reply_to_group_id=maybe_text,
)
annotation_maps = st.builds(
    lambda scheduled, key, more: {
        **({} if scheduled is None else {"x-opt-scheduled-enqueue-time": scheduled}),
        **({} if key is None else {"x-opt-partition-key": key}),
        **more,
    },
    st.none() | moments,
    st.none() | texts.filter(bool),
    st.dictionaries(st.sampled_from(["x-opt-mine", "x-opt-other"]), simple, max_size=2),
)


@pytest.mark.rule("B6.2")
@settings(max_examples=250)
@given(
    body=bodies,
    header=st.none() | headers,
    properties=properties_sections,
    annotations=annotation_maps,
    application=st.none() | st.dictionaries(names, simple, max_size=4),
    delivery=st.none() | st.dictionaries(st.just("x-opt-hop"), texts, max_size=1),
    footer=st.none() | st.dictionaries(st.just("x-opt-sum"), texts, min_size=1, max_size=1),
)
def test_a_message_comes_back_from_the_backlog_exactly_as_it_was_sent(
    body: dict[str, Any], header: Any, properties: Any, annotations: Any, application: Any, delivery: Any, footer: Any
) -> None:
    message = AmqpAnnotatedMessage(
        header=header,
        properties=properties,
        annotations=annotations,
        application_properties=application,
        delivery_annotations=delivery,
        footer=footer,
        **body,
    )
    straight = comparable(decode_sections(on_the_wire(message)))
    assert comparable(through_a_backlog_queue(message)) == straight


@pytest.mark.rule("B6.1")
def test_what_a_backlog_queue_would_obey_is_cleared_on_the_way_there() -> None:
    message = ServiceBusMessage(
        "x",
        session_id="s",
        message_id="m",
        time_to_live=timedelta(days=40),
        scheduled_enqueue_time_utc=datetime(2027, 1, 1, tzinfo=UTC),
        application_properties={"mine": 1},
    )
    sections = decode_sections(on_the_wire(set_aside(message, PATH, lambda: "other", NOW)))
    assert sections.header is None
    assert sections.properties is not None
    assert sections.properties.group_id is None
    assert sections.properties.absolute_expiry_time is None
    assert sections.properties.message_id == "m"
    assert not sections.message_annotations
    assert sections.application_properties == {
        "mine": 1,
        "x-ms-path": PATH,
        "x-ms-sessionid": "s",
        "x-ms-timetolive": 40 * 86_400_000,
        "x-ms-scheduledenqueuetimeutc": 1_798_761_600_000,
    }
    assert isinstance(sections.application_properties["x-ms-scheduledenqueuetimeutc"], Timestamp)


@pytest.mark.rule("B6")
def test_setting_aside_leaves_the_callers_message_as_it_is() -> None:
    message = ServiceBusMessage("x", session_id="s", time_to_live=timedelta(hours=1), application_properties={"a": 1})
    set_aside(message, PATH, lambda: "id", NOW)
    assert message.session_id == "s"
    assert message.time_to_live == timedelta(hours=1)
    assert message.application_properties == {"a": 1}


@pytest.mark.rule("B6")
def test_a_message_without_an_id_gets_one_so_that_duplicates_can_be_seen() -> None:
    sections = through_a_backlog_queue(AmqpAnnotatedMessage(data_body=b"x"))
    assert sections.properties is not None
    assert sections.properties.message_id == "made-id"


@pytest.mark.rule("B6")
def test_the_expiry_is_made_again_from_the_creation_time() -> None:
    sections = through_a_backlog_queue(ServiceBusMessage("x", time_to_live=timedelta(seconds=10)))
    assert sections.header == Header(ttl=UInt(10_000))
    assert sections.properties is not None
    assert sections.properties.absolute_expiry_time == NOW + 10_000


def test_routing_facts_are_read_with_the_message() -> None:
    message = ServiceBusMessage("x", session_id="s", partition_key="s", message_id="m")
    restored = restore(on_the_wire(set_aside(message, PATH, lambda: "other", NOW)))
    assert (restored.session_id, restored.partition_key, restored.message_id) == ("s", "s", "m")


@pytest.mark.rule("B8")
@pytest.mark.parametrize(
    ("aside", "reason"),
    [
        ({}, "no x-ms-path"),
        ({"x-ms-path": 5}, "x-ms-path is Int"),
        ({"x-ms-path": ""}, "x-ms-path"),
        ({"x-ms-path": "$cbs"}, "neither a queue nor a topic"),
        ({"x-ms-path": "orders/$management"}, "neither a queue nor a topic"),
        ({"x-ms-path": "q", "x-ms-sessionid": 5}, "x-ms-sessionid"),
        ({"x-ms-path": "q", "x-ms-timetolive": "1"}, "x-ms-timetolive"),
        ({"x-ms-path": "q", "x-ms-scheduledenqueuetimeutc": "soon"}, "x-ms-scheduledenqueuetimeutc"),
    ],
)
def test_a_message_without_a_proper_destination_is_no_transfer(aside: dict[str, Any], reason: str) -> None:
    payload = encode_sections(Sections(application_properties=aside, body=DataBody([b"x"])))
    with pytest.raises(NotATransfer, match=reason):
        restore(payload)


@pytest.mark.rule("B6")
def test_the_body_is_never_decoded() -> None:
    body = ValueBody({Symbol("a"): [UInt(1), Long(2), None]})
    payload = encode_sections(Sections(application_properties={"x-ms-path": "q"}, body=body))
    assert restore(payload).payload.endswith(encode_sections(Sections(body=body)))


@pytest.mark.rule("B6")
def test_sections_in_another_order_and_behind_long_descriptors_are_restored_too() -> None:
    """Other clients write what AMQP allows; a broker may pass it on as it came."""
    usual = on_the_wire(set_aside(ServiceBusMessage("body", message_id="7"), PATH, lambda: "other", NOW))
    pieces = [b"\x00\x80" + code.to_bytes(8, "big") + usual[start:end] for code, start, end in split_sections(usual)]
    assert restore(b"".join(reversed(pieces))) == restore(usual)


@pytest.mark.rule("B8")
@pytest.mark.parametrize(
    "sections",
    [
        Sections(application_properties={"x-ms-path": "q", "x-ms-scheduledenqueuetimeutc": ULong(2**64 - 1)}),
        Sections(
            application_properties={"x-ms-path": "q", "x-ms-timetolive": Long(5)},
            properties=MessageProperties(creation_time="noon"),  # type: ignore[arg-type]
        ),
    ],
)
def test_values_that_no_paired_sender_writes_make_no_transfer_and_no_other_error(sections: Sections) -> None:
    """Any other error would be taken for one of the queue, and the message would hold it up for ever."""
    sections.body = DataBody([b"x"])
    with pytest.raises(NotATransfer):
        restore(encode_sections(sections))
