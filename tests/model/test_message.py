"""What is read of an incoming message, and what is kept of it."""

import contextlib
from datetime import timedelta
from struct import Struct
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.messages import (
    NEW_ID,
    annotations,
    application,
    body,
    delivered,
    delivery_annotations,
    header,
    properties_section,
    received,
    section,
)
from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.sections import BODY_SECTIONS_MAX, DataBody, TooManySections, ValueBody, decode_sections
from twinbus.amqp.codec.types import Described, Long, Symbol, Timestamp, UByte, UInt, ULong, Value
from twinbus.amqp.errors import DecodeError
from twinbus.errors import ArgumentError, MessageTooLarge, MessagingError
from twinbus.model.content import (
    PREFIX,
    NewProperties,
    annotation,
    application_properties,
    properties,
    with_annotations,
    with_application_properties,
    without_body,
)
from twinbus.model.delivery import encode_delivery
from twinbus.model.identity import LIFETIME_MAX
from twinbus.model.message import check_batch_size, is_front_too_large, read_content, sent_size, split_batch
from twinbus.model.message_limits import BATCH_COUNT_MAX, BATCH_SIZE_MAX, HEADER_SIZE_MAX, PROPERTY_SIZE_MAX
from twinbus.model.rules.view import SYSTEM_PROPERTIES, FilterView

PING = Symbol("application/vnd.ms-servicebus-ping")


def test_the_facts_that_route_a_message_are_read() -> None:
    message = received(
        header(None, None, UInt(60_000))
        + annotations(
            {
                "x-opt-partition-key": "key",
                "x-opt-via-partition-key": "via",
                "x-opt-scheduled-enqueue-time": Timestamp(9_000),
            }
        )
        + properties_section("id-1", subject="label", group_id="key")
        + application({"colour": "red"})
        + body()
    )
    assert message.message_id == "id-1"
    assert message.session_id == "key"
    assert message.partition_key == "key"
    assert message.via_partition_key == "via"
    assert message.time_to_live == 60_000
    assert message.scheduled_at == 9_000
    assert not message.is_ping


def test_a_message_without_any_of_them_has_none() -> None:
    message = received(properties_section() + body())
    assert message.session_id is None
    assert message.partition_key is None
    assert message.via_partition_key is None
    assert message.time_to_live is None
    assert message.scheduled_at is None


@pytest.mark.parametrize("before", [b"", delivery_annotations({"d": 1})], ids=["", "delivery annotations"])
def test_the_facts_can_be_read_again_from_what_was_stored(before: bytes) -> None:
    message = received(
        header(True, UByte(4), UInt(5))
        + before
        + annotations({"x-opt-partition-key": "s", "x-opt-scheduled-enqueue-time": Timestamp(9), "own": 1})
        + properties_section(group_id="s", content_type=PING)
        + body()
    )
    assert read_content(message.content) == message


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        ("text", "text"),
        ("é" * 128, "é" * 128),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (ULong(12), "12"),
        (b"\x01\xff", "01ff"),
    ],
)
def test_a_message_id_of_any_type_has_a_text_and_keeps_its_type(message_id: Value, text: str) -> None:
    message = received(properties_section(message_id) + body())
    assert message.message_id == text
    kept = properties(message.content).message_id
    assert kept == message_id
    assert type(kept) is type(message_id)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        body(),
        section(0x73, []) + body(),
        section(0x73, [None]) + body(),
        section(0x73, [""]) + body(),
        b"\x00\x53\x73\xc0\x01\x00" + body(),
        b"\x00\x53\x73\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x40" + body(),
    ],
)
def test_a_message_without_an_id_gets_one_that_the_receiver_sees_too(payload: bytes) -> None:
    message = received(payload)
    assert message.message_id == NEW_ID
    sections = delivered(message.content)
    assert sections.properties is not None
    assert sections.properties.message_id == NEW_ID


def test_the_other_properties_stay_when_an_id_is_added() -> None:
    sections = delivered(received(properties_section(None, subject="label", group_id="s") + body()).content)
    assert sections.properties is not None
    assert sections.properties.message_id == NEW_ID
    assert sections.properties.subject == "label"
    assert sections.properties.group_id == "s"
    assert sections.body == DataBody([b"body"])


def test_a_message_without_a_body_is_delivered_without_one() -> None:
    assert delivered(received(properties_section()).content).body is None


@pytest.mark.parametrize(
    "bare",
    [
        body(b"a") + body(b"") + body(b"c" * 300),
        section(0x76, [1, "a"]) + section(0x76, []),
        section(0x77, None),
        section(0x77, Described(ULong(1), {"a": [1]})),
        section(0x77, b"x" * 300) + section(0x78, {Symbol("crc"): UInt(1)}),
        b"\x00\x53\x75\xb0\x00\x00\x00\x01x" + b"\x00\x53\x78\xd1\x00\x00\x00\x04\x00\x00\x00\x00",
    ],
)
def test_the_bare_message_is_delivered_byte_for_byte(bare: bytes) -> None:
    bare = properties_section(group_id="s") + application({"a": 1.5, "b": None}) + bare
    content = received(header(True) + annotations({"x-opt-unknown": 1}) + bare).content
    assert encode_delivery(content, sequence_number=1, enqueued_at=1, delivery_count=0).endswith(bare)


def test_sections_are_read_in_any_order() -> None:
    parts = [
        header(None, None, UInt(7)),
        annotations({"x-opt-partition-key": "k"}),
        properties_section(),
        body(),
        section(0x78, {Symbol("f"): 1}),
    ]
    usual = received(b"".join(parts))
    assert received(b"".join(reversed(parts))) == usual
    # The Python SDK writes delivery annotations behind the footer.
    late = received(b"".join(parts) + delivery_annotations({"a": 1}))
    assert delivered(late.content).delivery_annotations == {"x-opt-lock-token": UUID(bytes_le=bytes(range(16))), "a": 1}


@pytest.mark.parametrize(
    "descriptor", [b"\x00\x80" + bytes(7) + b"\x73", b"\x00" + encode_value(Symbol("amqp:properties:list"))]
)
def test_a_section_with_another_descriptor_is_delivered_with_a_smallulong_one(descriptor: bytes) -> None:
    message = received(descriptor + encode_value(["id-9"]) + body())
    assert message.message_id == "id-9"
    payload = encode_delivery(message.content, sequence_number=1, enqueued_at=1, delivery_count=0)
    assert payload.endswith(section(0x73, ["id-9"]) + body())


@pytest.mark.parametrize(
    "payload",
    [
        body() + section(0x77, 1),
        annotations({}) + annotations({}),
        properties_section() + body() + properties_section(),
        section(0x77, 1) + section(0x77, 1),
        section(0x78, {}) + section(0x78, {}),
    ],
)
def test_a_section_that_must_be_alone_is_refused_a_second_time(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        received(payload)


def test_annotations_of_the_broker_are_dropped_and_unknown_ones_kept() -> None:
    own: dict[str, Value] = {
        "x-opt-sequence-number": Long(99),
        "x-opt-enqueued-time": Long(99),
        "x-opt-enqueue-sequence-number": Long(99),
        "x-opt-locked-until": Timestamp(99),
        "x-opt-message-state": 2,
        "x-opt-deadletter-source": "q",
        "x-opt-partition-id": 3,
    }
    kept: dict[str, Value] = {"first": 1, "x-opt-partition-key": "k", "x-opt-other": ["a"], "last": "z" * 300}
    mixed = {"first": 1, **own, "x-opt-partition-key": "k", "x-opt-other": ["a"], "last": "z" * 300}
    sections = delivered(received(annotations(mixed) + properties_section()).content)
    assert sections.message_annotations == {
        "x-opt-enqueued-time": 1_000,
        "x-opt-sequence-number": 7,
        "x-opt-locked-until": 61_000,
        **kept,
    }


def test_a_lock_token_among_the_senders_delivery_annotations_is_dropped() -> None:
    content = received(delivery_annotations({"x-opt-lock-token": UUID(int=9), "a": 1}) + properties_section()).content
    sections = delivered(content)
    assert sections.delivery_annotations == {"x-opt-lock-token": UUID(bytes_le=bytes(range(16))), "a": 1}


def test_annotations_may_have_strings_and_numbers_as_keys() -> None:
    payload = section(0x72, {"x-opt-partition-key": "k", ULong(5): "five", "x-opt-locked-until": 1})
    message = received(payload + properties_section())
    assert message.partition_key == "k"
    kept = delivered(message.content).message_annotations
    assert kept is not None
    assert kept[ULong(5)] == "five"
    assert kept["x-opt-locked-until"] == 61_000


@pytest.mark.rule("A2.1")
@pytest.mark.parametrize("form", [0xB3, 0xB1])
def test_the_names_of_annotations_count_in_their_long_form_too(form: int) -> None:
    """The forms are the sender's choice; most SDKs use the short one wherever it fits."""

    def entry(name: str, value: bytes) -> bytes:
        return bytes([form]) + len(name).to_bytes(4, "big") + name.encode() + value

    entries = [
        entry("x-opt-partition-key", b"\xb1\x00\x00\x00\x01k"),
        entry("x-opt-via-partition-key", b"\xa1\x01v"),
        entry("x-opt-scheduled-enqueue-time", encode_value(Timestamp(5))),
        entry("x-opt-sequence-number", encode_value(Long(77))),
        entry("x-opt-other", b"\xa1\x01o"),
    ]
    packed = b"".join(entries)
    payload = (
        b"\x00\x53\x72\xd1" + (len(packed) + 4).to_bytes(4, "big") + (2 * len(entries)).to_bytes(4, "big") + packed
    )
    message = received(payload + properties_section() + body())
    assert (message.partition_key, message.via_partition_key, message.scheduled_at) == ("k", "v", 5)
    assert read_content(message.content).partition_key == "k"
    assert annotation(message.content, "x-opt-other") == "o"
    changed = with_annotations(message.content, {"x-opt-other": None, "x-opt-partition-key": "new"})
    assert (annotation(changed, "x-opt-other"), read_content(changed).partition_key) == (None, "new")
    kept = delivered(changed).message_annotations
    assert kept is not None
    assert kept["x-opt-sequence-number"] != 77


def test_a_null_annotation_says_nothing() -> None:
    message = received(annotations({"x-opt-partition-key": None, "x-opt-scheduled-enqueue-time": None}) + body())
    assert message.partition_key is None
    assert message.scheduled_at is None


def test_a_partition_key_that_comes_back_as_bytes_is_the_same_key() -> None:
    message = received(annotations({"x-opt-partition-key": b"pkey"}) + body())
    assert message.partition_key == "pkey"


def test_a_ping_is_known_by_its_content_type_alone() -> None:
    assert received(properties_section(content_type=PING)).is_ping
    assert received(properties_section("id", content_type=PING, group_id="s")).is_ping
    assert not received(properties_section(subject=str(PING))).is_ping
    assert not received(properties_section() + body(PING.encode())).is_ping


def test_a_time_to_live_beyond_the_headers_range_is_read_from_the_properties() -> None:
    days_60 = 60 * 24 * 3600 * 1000
    times = {"creation_time": Timestamp(1_000), "absolute_expiry_time": Timestamp(1_000 + days_60)}
    message = received(header(None, None, UInt(2**32 - 1)) + properties_section(**times))
    assert message.time_to_live == days_60
    assert read_content(message.content).time_to_live == days_60
    assert received(header(None, None, UInt(2**32 - 1)) + properties_section()).time_to_live == 2**32 - 1


@pytest.mark.parametrize(
    ("created", "expires", "time_to_live"),
    [
        (Timestamp(-(2**63)), Timestamp(2**63 - 1), LIFETIME_MAX),
        (Timestamp(5), Timestamp(4), 2**32 - 1),
        (Timestamp(5), "never", 2**32 - 1),
        ([], Timestamp(5), 2**32 - 1),
    ],
)
def test_a_time_to_live_is_read_from_whatever_times_there_are(
    created: Value, expires: Value, time_to_live: int
) -> None:
    times = properties_section(creation_time=created, absolute_expiry_time=expires)
    message = received(header(None, None, UInt(2**32 - 1)) + times)
    assert message.time_to_live == time_to_live
    view = FilterView(message.content, enqueued_at=2**41)
    assert SYSTEM_PROPERTIES["timetolive"].read(view) == timedelta(milliseconds=time_to_live)
    assert SYSTEM_PROPERTIES["expiresatutc"].read(view) == 2**41 + time_to_live


@pytest.mark.rule("A2.6")
@pytest.mark.parametrize(
    "payload",
    [
        properties_section("x" * 129),
        properties_section(group_id="s" * 129),
        annotations({"x-opt-partition-key": "k" * 129}) + properties_section(),
        annotations({"x-opt-via-partition-key": "k" * 129}) + properties_section(),
        annotations({"x-opt-partition-key": 5}) + properties_section(),
        annotations({"x-opt-scheduled-enqueue-time": "soon"}) + properties_section(),
        annotations({"x-opt-scheduled-enqueue-time": ULong(2**63)}) + properties_section(),
    ],
)
def test_ids_and_keys_outside_of_their_limits_are_refused(payload: bytes) -> None:
    with pytest.raises(ArgumentError):
        received(payload)


def test_a_message_may_be_scheduled_for_the_last_moment_there_is() -> None:
    payload = annotations({"x-opt-scheduled-enqueue-time": Long(2**63 - 1)}) + properties_section()
    assert received(payload).scheduled_at == 2**63 - 1


@pytest.mark.rule("A2.6")
@pytest.mark.parametrize("length", [1, 128])
def test_ids_and_keys_of_up_to_128_characters_are_taken(length: int) -> None:
    key = "k" * length
    message = received(annotations({"x-opt-partition-key": key}) + properties_section(key, group_id=key))
    assert (message.message_id, message.session_id, message.partition_key) == (key, key, key)


def test_a_property_of_more_than_32_kb_is_refused() -> None:
    received(properties_section() + application({"a": "x" * 32_000}) + body())
    with pytest.raises(MessageTooLarge):
        received(properties_section() + application({"a": "x" * 33_000}) + body())
    with pytest.raises(MessageTooLarge):
        received(annotations({"a": b"x" * 33_000}) + properties_section() + body())


def test_a_front_of_more_than_64_kb_in_all_is_refused_but_not_a_body() -> None:
    received(properties_section() + application({"a": "x" * 32_000, "b": "x" * 32_000}) + body(b"x" * 200_000))
    with pytest.raises(MessageTooLarge):
        received(properties_section() + application(dict.fromkeys("abc", "x" * 22000)) + body())


def test_a_front_may_fill_64_kb_to_the_last_byte_when_it_is_sent_and_when_something_is_added() -> None:
    sections = header(True) + delivery_annotations({"d": 1}) + annotations({"a": 1}) + properties_section()

    def sent(length: int) -> bytes:
        return sections + application({"a": "x" * 32_000, "b": "x" * 16_000, "note": "x" * length})

    room = HEADER_SIZE_MAX - len(sent(1_000)) + 1_000
    received(sent(room) + body())
    with pytest.raises(MessageTooLarge):
        received(sent(room + 1) + body())

    content = received(sections + body()).content

    def added(length: int) -> bytes:
        return with_application_properties(content, NewProperties({"note": "x" * length}))

    room = HEADER_SIZE_MAX - (len(without_body(added(60_000))) - PREFIX.size) + 60_000
    assert not is_front_too_large(added(room))
    assert is_front_too_large(added(room + 1))


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",
        b"\x00\x53\x75\xa0\x05a",
        b"\x00\x53\x75\xb0\x00\x00",
        b"\x00\x53\x75\x40",
        b"\x00\x53\x79\x40",
        b"\x40",
        section(0x73, [1.5]),
        section(0x73, [None] * 10 + [5]),
        section(0x73, ["a"] * 14),
        section(0x70, ["yes"]),
        section(0x70, [None] * 6),
        section(0x74, {ULong(1): 1}),
        b"\x00\x53\x72\xc1\x03\x02\x40\x40\x40" + properties_section(),
        b"\x00\x53\x72\xc1\x02\x01\x40" + properties_section(),
        b"\x00\x53\x73\xc0\x03\x02\xa1\x00",
        b"\x00\x53\x72\xc1\x03\x04\x40\x40" + properties_section(),
        b"\x00\x53\x74\xc1\x04\x04\xa1\x00\x40",
        b"\x00\x53\x74\xc1\x02\x02\x40",
        b"\x00\x53\x73\xc0\x10\x0d\xa1\x01i" + b"\x40" * 9 + b"\xa1\x01s",
        b"\x00\x53\x74\xc1\x04\x02\xa1\x00" + body(),
        b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff",
    ],
)
def test_a_payload_that_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        received(payload)


USUAL = (
    header(True, UByte(4), UInt(9))
    + annotations({"x-opt-partition-key": "k", "own": 1})
    + properties_section(subject="a", group_id="k")
    + application({"colour": "red", "size": 7})
    + body()
)


@given(st.data())
@settings(max_examples=300)
def test_a_damaged_message_is_refused_or_can_be_delivered(data: st.DataObject) -> None:
    damaged = bytearray(USUAL)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(USUAL) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MessagingError):
        message = received(bytes(damaged))
        again = read_content(message.content)
        assert again == message
        payload = encode_delivery(message.content, sequence_number=1, enqueued_at=1, delivery_count=1)
        assert received(payload).message_id == message.message_id


def test_a_batch_holds_whole_messages_and_its_envelope_counts_for_nothing() -> None:
    envelope = annotations({"x-opt-partition-key": "envelope"}) + properties_section("envelope", group_id="envelope")
    payload = envelope + body(properties_section("a") + body(b"1")) + body(body(b"2")) + body(section(0x77, "3"))
    messages = [received(part) for part in split_batch(payload)]
    assert [message.message_id for message in messages] == ["a", NEW_ID, NEW_ID]
    assert [message.partition_key for message in messages] == [None] * 3
    assert [message.session_id for message in messages] == [None] * 3
    assert [delivered(message.content).body for message in messages] == [
        DataBody([b"1"]),
        DataBody([b"2"]),
        ValueBody("3"),
    ]


@pytest.mark.parametrize("descriptor", [b"\x80" + bytes(7) + b"\x75", encode_value(Symbol("amqp:data:binary"))])
def test_a_batch_is_split_however_its_sections_are_described_and_ends_with_its_footer(descriptor: bytes) -> None:
    payload = b"\x00" + descriptor + encode_value(body(b"1")) + body(body(b"2")) + section(0x78, {})
    assert split_batch(payload) == [body(b"1"), body(b"2")]


@pytest.mark.parametrize(
    ("front", "back"),
    [(b"", b""), (properties_section(), header()), (b"\x00\x80" + bytes(7) + b"\x70\x45", b"")],
    ids=["usual", "not in order", "with a long descriptor"],
)
def test_a_batch_holds_a_limited_number_of_messages_in_whatever_form_and_order_its_sections_are(
    front: bytes, back: bytes
) -> None:
    assert len(split_batch(front + body() * BATCH_COUNT_MAX + back)) == BATCH_COUNT_MAX
    with pytest.raises(MessageTooLarge, match=f"more than {BATCH_COUNT_MAX} messages"):
        split_batch(front + body() * (BATCH_COUNT_MAX + 1) + back)


@pytest.mark.parametrize(("size", "counted"), [(255, 260), (256, 264)])
def test_each_message_of_a_batch_counts_with_the_front_of_its_data_section(size: int, counted: int) -> None:
    """Which is longer from 256 bytes on."""
    payloads = [bytes(size)] * 3
    check_batch_size("q", payloads, 3 * counted)
    with pytest.raises(MessageTooLarge):
        check_batch_size("q", payloads, 3 * counted - 1)


def test_a_single_message_in_a_batch_may_be_as_large_as_one_that_comes_alone() -> None:
    size_max = BATCH_SIZE_MAX + 100
    check_batch_size("q", [bytes(size_max)], size_max)
    with pytest.raises(MessageTooLarge):
        check_batch_size("q", [bytes(size_max + 1)], size_max)
    with pytest.raises(MessageTooLarge):
        check_batch_size("q", [bytes(size_max - 100), b"x"], size_max)


@pytest.mark.parametrize("described", [body(b""), b"\x00\x80" + bytes(7) + b"\x75\xa0\x00"])
def test_a_body_has_a_number_of_sections_that_can_be_passed_over_at_once(described: bytes) -> None:
    payload = properties_section("id") + described * BODY_SECTIONS_MAX
    assert received(payload + section(0x78, {})).message_id == "id"
    with pytest.raises(TooManySections, match=str(BODY_SECTIONS_MAX)):
        received(payload + described)
    with pytest.raises(TooManySections):
        decode_sections(described * (BODY_SECTIONS_MAX + 7))


def test_a_property_has_a_size_with_the_front_of_its_value() -> None:
    sent = properties_section("id") + application({"n": bytes(PROPERTY_SIZE_MAX - 5)}) + body()
    assert received(sent).message_id == "id"
    with pytest.raises(MessageTooLarge, match=f"{PROPERTY_SIZE_MAX + 1} bytes"):
        received(properties_section("id") + application({"n": bytes(PROPERTY_SIZE_MAX - 4)}) + body())


def test_annotations_of_equal_values_are_set_in_their_own_types() -> None:
    content = received(body()).content
    values: list[Value] = [Timestamp(5), Long(5), UInt(5), Symbol("five"), "five", Symbol("five"), [5]]
    for value in values:
        changed = annotation(with_annotations(content, {"x-opt-a": value}), "x-opt-a")
        assert (changed, type(changed)) == (value, type(value))


def test_properties_that_claim_more_elements_than_they_hold_are_not_looked_for_in_the_body() -> None:
    """Or the element that follows them, which is the body, would be a property that is too large."""
    entries = encode_value("n") + encode_value(bytes(PROPERTY_SIZE_MAX - 10))
    claimed = b"\x00\x53\x74\xd1" + Struct(">II").pack(len(entries) + 4, 2**32 - 1) + entries
    with pytest.raises(DecodeError, match="do not end"):
        received(properties_section("id") + claimed + body(bytes(2 * PROPERTY_SIZE_MAX)))


@pytest.mark.parametrize("payload", [section(0x77, b""), section(0x75, "text"), body(b"\xff")])
def test_a_batch_of_anything_but_messages_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        [received(part) for part in split_batch(payload)]


def test_a_stored_message_takes_on_the_wire_what_it_took_when_it_was_sent() -> None:
    """And the header that it gets if it has none."""
    payload = properties_section() + body(bytes(1_000))
    assert 0 < sent_size(received(payload).content) - len(payload) < 20


def test_an_application_property_may_have_a_long_name_of_any_kind() -> None:
    sent: dict[Value, Value] = {"n" * 300: 1, Symbol("s" * 300): 2, "kind": "order"}
    message = received(application(sent) + body(b"x"))
    assert application_properties(message.content) == {str(name): value for name, value in sent.items()}
