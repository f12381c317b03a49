"""The sections of a delivery, to the byte where a client reads them so."""

from typing import Any
from uuid import UUID

import pytest

from tests.model.messages import (
    LOCK_TOKEN,
    annotations,
    body,
    delivered,
    delivery_annotations,
    header,
    properties_section,
    received,
    section,
)
from twinbus.amqp.codec.sections import FOOTER, Header, Sections, decode_sections
from twinbus.amqp.codec.types import Int, Long, Symbol, Timestamp, UByte, UInt, Value
from twinbus.clock import NEVER
from twinbus.model import delivery
from twinbus.model.content import without_body
from twinbus.model.delivery import encode_delivery, encode_locked, encode_peeked, encode_peeked_row, split_peeked
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage

PLAIN = received(properties_section() + body()).content


def decoded(content: bytes, **options: Value) -> Sections:
    settings: dict[str, Value] = {"sequence_number": 7, "enqueued_at": 1_000, "delivery_count": 0, **options}
    return decode_sections(encode_delivery(content, **settings))


def test_a_peek_lock_delivery_has_exactly_the_sections_that_sdks_expect() -> None:
    payload = encode_delivery(
        PLAIN, sequence_number=7, enqueued_at=1, delivery_count=0, lock_token=LOCK_TOKEN, locked_until=2
    )
    assert payload == (
        b"\x00\x53\x70\xc0\x06\x05\x40\x40\x40\x40\x43"
        b"\x00\x53\x71\xc1\x24\x02\xa3\x10x-opt-lock-token\x98"
        b"\x03\x02\x01\x00\x05\x04\x07\x06\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
        b"\x00\x53\x72\xd1\x00\x00\x00\x5f\x00\x00\x00\x06"
        b"\xa3\x13x-opt-enqueued-time\x83\x00\x00\x00\x00\x00\x00\x00\x01"
        b"\xa3\x15x-opt-sequence-number\x81\x00\x00\x00\x00\x00\x00\x00\x07"
        b"\xa3\x12x-opt-locked-until\x83\x00\x00\x00\x00\x00\x00\x00\x02" + properties_section() + body()
    )


def test_the_lock_token_is_a_uuid_in_network_order() -> None:
    token = UUID("00112233-4455-6677-8899-aabbccddeeff")
    sections = decoded(PLAIN, lock_token=token.bytes_le, locked_until=1)
    assert sections.delivery_annotations == {"x-opt-lock-token": token}


def test_the_brokers_annotations_have_their_types() -> None:
    found = delivered(PLAIN).message_annotations
    assert found is not None
    assert {name: type(value) for name, value in found.items()} == {
        "x-opt-enqueued-time": Timestamp,
        "x-opt-sequence-number": Long,
        "x-opt-locked-until": Timestamp,
    }


def test_receive_and_delete_has_an_empty_map_of_delivery_annotations_and_no_lock() -> None:
    sections = decoded(PLAIN)
    assert sections.delivery_annotations == {}
    assert sections.message_annotations == {"x-opt-enqueued-time": 1_000, "x-opt-sequence-number": 7}


@pytest.mark.parametrize("delivery_count", [0, 1, 255, 256, 2**31])
def test_the_delivery_count_is_always_there(delivery_count: int) -> None:
    assert decoded(PLAIN, delivery_count=delivery_count).header == Header(delivery_count=UInt(delivery_count))


@pytest.mark.parametrize("delivery_count", [0, 300])
def test_the_senders_header_is_kept_but_for_its_delivery_count(delivery_count: int) -> None:
    content = received(header(True, UByte(9), UInt(60_000), False, UInt(5)) + properties_section()).content
    assert decoded(content, delivery_count=delivery_count).header == Header(
        True, UByte(9), UInt(60_000), False, UInt(delivery_count)
    )


@pytest.mark.parametrize(("lock_token", "locked_until"), [(None, None), (LOCK_TOKEN, 61_000), (LOCK_TOKEN, None)])
def test_the_senders_annotations_stand_next_to_the_brokers(lock_token: bytes | None, locked_until: int | None) -> None:
    content = received(
        delivery_annotations({"d": 1, "e": "x" * 300}) + annotations({"m": 2, "n": None}) + properties_section()
    ).content
    sections = decoded(content, lock_token=lock_token, locked_until=locked_until)
    token = {} if lock_token is None else {"x-opt-lock-token": UUID(bytes_le=lock_token)}
    until = {} if locked_until is None else {"x-opt-locked-until": locked_until}
    assert sections.delivery_annotations == {**token, "d": 1, "e": "x" * 300}
    assert sections.message_annotations == {
        "x-opt-enqueued-time": 1_000,
        "x-opt-sequence-number": 7,
        **until,
        "m": 2,
        "n": None,
    }


def test_state_and_origin_show_only_when_asked_for() -> None:
    shown = decoded(
        PLAIN, state=2, enqueued_sequence_number=3, lock_token=LOCK_TOKEN, locked_until=1
    ).message_annotations
    assert shown is not None
    assert shown["x-opt-message-state"] == 2
    assert type(shown["x-opt-message-state"]) is Int
    assert shown["x-opt-enqueue-sequence-number"] == 3
    assert type(shown["x-opt-enqueue-sequence-number"]) is Long
    assert decoded(PLAIN, show_state=True).message_annotations == {
        "x-opt-enqueued-time": 1_000,
        "x-opt-sequence-number": 7,
        "x-opt-message-state": 0,
    }


def test_a_delivery_that_is_sent_again_arrives_as_the_message_it_was() -> None:
    first = received(header(None, None, UInt(5)) + annotations({"x-opt-partition-key": "k"}) + properties_section())
    payload = encode_delivery(
        first.content,
        sequence_number=7,
        enqueued_at=1,
        delivery_count=3,
        lock_token=LOCK_TOKEN,
        locked_until=2,
        state=1,
        enqueued_sequence_number=5,
    )
    assert received(payload) == first


# The effective time to live

DAY = 86_400_000
SOME_FIELDS: list[list[Value]] = [
    ["id"],
    ["id", None, "to"],
    ["id", b"user", "to", "subject", "reply-to", "correlation", Symbol("type"), Symbol("encoding")],
    ["id", *[None] * 7, Timestamp(5)],
    ["id", *[None] * 7, Timestamp(5), Timestamp(4)],
    ["id", *[None] * 9, "group", UInt(3), "reply-group"],
    ["id", None, "x" * 300],
]


@pytest.mark.parametrize("fields", SOME_FIELDS, ids=str)
@pytest.mark.parametrize("delivery_count", [0, 300])
def test_a_message_without_a_time_to_live_of_its_own_shows_that_of_the_entity(
    fields: list[Value], delivery_count: int
) -> None:
    content = received(header(True) + section(0x73, list(fields)) + body()).content
    shown = decoded(content, delivery_count=delivery_count, expires_at=1_000 + 10 * DAY)
    assert shown.header == Header(True, ttl=UInt(10 * DAY), delivery_count=UInt(delivery_count))
    assert shown.properties is not None
    expected = decode_sections(section(0x73, list(fields))).properties
    assert expected is not None
    expected.creation_time, expected.absolute_expiry_time = Timestamp(1_000), Timestamp(1_000 + 10 * DAY)
    assert shown.properties == expected
    assert shown.body == decoded(content).body


def test_a_time_to_live_that_the_header_cannot_hold_is_in_the_properties() -> None:
    shown = decoded(PLAIN, expires_at=1_000 + 100 * DAY)
    assert shown.header == Header(ttl=UInt(2**32 - 1), delivery_count=UInt(0))
    assert shown.properties is not None
    assert (shown.properties.creation_time, shown.properties.absolute_expiry_time) == (1_000, 1_000 + 100 * DAY)


@pytest.mark.parametrize("own", [10 * DAY + 1, 20 * DAY])
def test_a_time_to_live_above_that_of_the_entity_is_shown_as_the_entitys(own: int) -> None:
    content = received(header(None, None, UInt(own)) + properties_section() + body()).content
    assert decoded(content, expires_at=1_000 + 10 * DAY).header == Header(ttl=UInt(10 * DAY), delivery_count=UInt(0))


def test_a_long_time_to_live_above_that_of_the_entity_is_shown_as_the_entitys() -> None:
    times: list[Value] = ["id", *[None] * 7, Timestamp(900 + 200 * DAY), Timestamp(900)]
    content = received(header(None, None, UInt(2**32 - 1)) + section(0x73, times) + body()).content
    shown = decoded(content, expires_at=1_000 + 100 * DAY).properties
    assert shown is not None
    assert (shown.creation_time, shown.absolute_expiry_time) == (1_000, 1_000 + 100 * DAY)


@pytest.mark.parametrize(
    ("own", "times"),
    [(10 * DAY, [None, None]), (60_000, [Timestamp(61_000), Timestamp(900)]), (2**32 - 1, [100 * DAY + 5, 5])],
)
def test_a_time_to_live_that_holds_is_delivered_as_it_was_sent(own: int, times: list[int | None]) -> None:
    fields: list[Value] = ["id", *[None] * 7, *[None if each is None else Timestamp(each) for each in times]]
    content = received(header(None, None, UInt(own)) + section(0x73, list(fields)) + body()).content
    lives = 100 * DAY if own == 2**32 - 1 else own
    plain = encode_delivery(content, sequence_number=7, enqueued_at=1_000, delivery_count=0)
    mortal = encode_delivery(content, sequence_number=7, enqueued_at=1_000, delivery_count=0, expires_at=1_000 + lives)
    assert mortal == plain


def test_the_time_to_live_of_a_message_for_later_counts_from_when_it_is_due() -> None:
    shown = decoded(PLAIN, expires_at=5_000 + DAY, lives_since=5_000)
    assert shown.header is not None
    assert shown.header.ttl == DAY


def rows_of_all_kinds() -> list[StoredMessage]:
    plain = PLAIN
    annotated = received(annotations({"a": 1}) + properties_section() + body(bytes(9_000))).content
    noted = received(delivery_annotations({"d": 1}) + properties_section() + body()).content
    claimed = received(annotations({Symbol("x-opt-claimed-by"): "job"}) + properties_section() + body()).content
    contents = [*[plain, annotated, noted] * 2, noted]
    rows = [StoredMessage(7 + place, content, 1_000, NEVER) for place, content in enumerate(contents)]
    rows += [StoredMessage(20 + place, plain, 1_000 + place, NEVER) for place in range(3)]
    rows += [StoredMessage(30 + place, annotated, 1_000, NEVER) for place in range(3)]
    return [
        *rows,
        StoredMessage(40, plain, 1_000, NEVER, delivery_count=2),
        StoredMessage(41, plain, 1_000, NEVER, state=MessageState.DEFERRED),
        *[
            StoredMessage(50 + n, plain, 1_000, NEVER, state=MessageState.DEFERRED, due_at=-5 + n // 2)
            for n in range(6)
        ],
        *[StoredMessage(60 + n, claimed, 1_000, NEVER, state=MessageState.DEFERRED, due_at=-5 * n) for n in range(3)],
        StoredMessage(42, plain, 1_000, NEVER, enqueued_sequence_number=5),
        StoredMessage(43, plain, 1_000, 61_000),
        StoredMessage(44, plain, 1_000, NEVER, due_at=9_000),
        StoredMessage(45, plain, 1_000, NEVER),
    ]


def test_a_burst_is_encoded_as_its_deliveries_are_one_by_one() -> None:
    token, rows = bytes(range(16)), rows_of_all_kinds()
    expected = [
        encode_delivery(
            row.content,
            sequence_number=row.sequence_number,
            enqueued_at=row.enqueued_at,
            delivery_count=row.delivery_count,
            lock_token=token,
            locked_until=5_000,
            state=row.state,
            enqueued_sequence_number=row.enqueued_sequence_number,
            expires_at=row.expires_at,
        )
        for row in rows
    ]
    found = [
        (given, payload if isinstance(payload, bytes) else payload.front + payload.rest)
        for given, payload in encode_locked([(row, token, 5_000) for row in rows])
    ]
    assert found == [(token, payload) for payload in expected]


def test_rows_that_somebody_looks_at_are_encoded_as_they_are_one_by_one() -> None:
    rows = rows_of_all_kinds()
    assert encode_peeked(rows) == [encode_peeked_row(row) for row in rows]
    assert {
        (decode_sections(payload).message_annotations or {})["x-opt-message-state"] for payload in encode_peeked(rows)
    } == {
        MessageState.ACTIVE,
        MessageState.DEFERRED,
    }


@pytest.mark.parametrize(
    "difference",
    [
        {"state": MessageState.DEFERRED},
        {"state": MessageState.DEFERRED, "due_at": -5},
        {"delivery_count": 2},
        {"due_at": 9_000},
        {"expires_at": 61_000},
        {"enqueued_sequence_number": 5},
    ],
    ids=str,
)
def test_a_row_that_differs_from_the_one_before_in_one_fact_is_encoded_with_its_own(difference: dict[str, Any]) -> None:
    facts: dict[str, Any] = {"enqueued_at": 1_000, "expires_at": NEVER}
    rows = [
        StoredMessage(7 + step, PLAIN, **{**facts, **(difference if step in (1, 2, 4) else {})}) for step in range(5)
    ]
    assert encode_peeked(rows) == [encode_peeked_row(row) for row in rows]


@pytest.mark.parametrize(
    ("written", "data"),
    [
        (body(b"x" * 255), b"x" * 255),
        (body(b"x" * 256), b"x" * 256),
        (body(b""), b""),
        (body(b"x" * 255) + body(b"y"), b""),
        (body(b"x" * 256) + body(b"y"), b""),
        (body(b"x") + section(FOOTER, {}), b""),
        (section(0x77, "text"), b""),
        (b"", b""),
    ],
)
def test_the_data_of_a_body_are_apart_if_it_is_one_data_section(written: bytes, data: bytes) -> None:
    content = received(properties_section() + written).content
    rows = [StoredMessage(number, content, 1_000, NEVER) for number in (7, 8)]
    fronts, bodies, sizes = split_peeked(rows)
    assert [bytes(each) for each in bodies] == [data] * 2
    assert [front + data for front in fronts] == encode_peeked(rows)
    assert sizes == [len(content)] * 2


@pytest.mark.parametrize("written", [body(b"x" * 300), body(b"x") + body(b"y"), section(0x77, "text"), b""])
def test_a_payload_whose_body_nobody_wants_ends_before_it(written: bytes) -> None:
    """Whether it is like the one before or not: every other one has a longer id."""
    contents = [received(properties_section("i" * (1 + place % 2)) + written).content for place in range(6)]
    rows = [
        StoredMessage(place, content, 1_000, NEVER if place < 4 else 9_000) for place, content in enumerate(contents)
    ]
    fronts, bodies, sizes = split_peeked(rows, with_bodies=False)
    assert [len(front) + len(written) for front in fronts] == [len(payload) for payload in encode_peeked(rows)]
    assert all(payload.startswith(front) for front, payload in zip(fronts, encode_peeked(rows), strict=True))
    assert bodies == [b""] * 6
    assert sizes == [len(without_body(content)) for content in contents]


def test_the_forms_that_are_remembered_of_a_page_are_few_and_the_payloads_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "ALIKE_MAX", 2)
    contents = [received(properties_section("i" * (1 + place % 5)) + body(b"data")).content for place in range(20)]
    rows = [StoredMessage(place, content, 1_000, NEVER) for place, content in enumerate(contents)]
    fronts, bodies, _ = split_peeked(rows)
    assert [front + bytes(data) for front, data in zip(fronts, bodies, strict=True)] == encode_peeked(rows)


def test_where_the_data_of_a_body_begin_is_not_taken_from_a_body_that_only_begins_alike() -> None:
    """The last content is as long as the first one, its body begins like that one's, and like the third one's it begins earlier."""
    footer = section(FOOTER, {})
    long = received(properties_section("i" * (2 + len(footer))) + body(b"data")).content
    short = received(properties_section("id") + body(b"other data")).content
    not_one_section = received(properties_section("id") + body(b"data") + footer).content
    rows = [StoredMessage(7, content, 1_000, NEVER) for content in (long, long, short, not_one_section)]
    assert [bytes(each) for each in split_peeked(rows)[1]] == [b"data", b"data", b"other data", b""]


def test_a_claimed_row_that_says_itself_who_claimed_it_is_not_like_one_that_does_not() -> None:
    """However alike they are: the names of their annotations have the same length."""
    contents = [
        received(annotations({Symbol(name): "job"}) + properties_section() + body()).content
        for name in ("x-opt-claimed-to", "x-opt-claimed-by")
    ]
    rows = [
        StoredMessage(7, content, 1_000, NEVER, state=MessageState.DEFERRED, due_at=-5)
        for content in (*contents, *contents)
    ]
    assert encode_peeked(rows) == [encode_peeked_row(row) for row in rows]


def test_a_claimed_row_shows_who_claimed_it_last() -> None:
    owners = {
        row.sequence_number: (decode_sections(payload).message_annotations or {}).get(Symbol("x-opt-claimed-by"))
        for row, payload in zip(rows_of_all_kinds(), encode_peeked(rows_of_all_kinds()), strict=True)
    }
    assert [owners[number] for number in (7, 41, 50, 51, 52)] == [
        None,
        None,
        *["spark-fffffffffffffffb"] * 2,
        "spark-fffffffffffffffc",
    ]
    assert [owners[number] for number in (60, 61, 62)] == ["job", "spark-fffffffffffffffb", "spark-fffffffffffffff6"]
