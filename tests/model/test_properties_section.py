"""What is read from the header and properties of every message, and written into them, field by field."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.model.messages import header, properties_section, section
from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.sections import PROPERTIES, MessageProperties, decode_sections
from twinbus.amqp.codec.types import Long, Symbol, Timestamp, UByte, UInt, ULong, Value
from twinbus.amqp.errors import DecodeError
from twinbus.errors import ArgumentError
from twinbus.model.content import DESCRIPTOR_SIZE
from twinbus.model.effective_lifetime import own_time_to_live, shown_header, shown_properties
from twinbus.model.header import NO_HEADER, read_header, with_time_to_live
from twinbus.model.hops import HOPS_MAX, hops_of, with_hops, without_hops
from twinbus.model.identity import ID_LENGTH_MAX, LIFETIME_MAX, is_ping, lifetime, read_identity, with_message_id
from twinbus.model.message_limits import DATE_MAX, TIME_TO_LIVE_MAX
from twinbus.model.wire_names import PING_CONTENT_TYPE


def identity(encoded: bytes) -> tuple[str | None, str | None]:
    return read_identity(encoded, DESCRIPTOR_SIZE, len(encoded))


# Identity


@pytest.mark.parametrize("padding", ["", "x" * 300], ids=["short list", "long list"])
@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        ("id", "id"),
        ("é" * ID_LENGTH_MAX, "é" * ID_LENGTH_MAX),
        ("", None),
        (None, None),
        (UUID(int=7), str(UUID(int=7))),
        (ULong(7), "7"),
        (b"\x01\xff", "01ff"),
    ],
)
def test_a_message_id_of_each_type_is_a_text(message_id: Value, text: str | None, padding: str) -> None:
    fields = {"group_id": "s"} | ({"to": padding} if padding else {})
    assert identity(properties_section(message_id, **fields)) == (text, "s")
    assert identity(properties_section(message_id)) == (text, None)


@pytest.mark.parametrize("message_id", [True, 1.5, ["id"]])
def test_a_message_id_of_another_type_is_malformed(message_id: Value) -> None:
    with pytest.raises(DecodeError, match="message id"):
        identity(properties_section(message_id))


@pytest.mark.parametrize("count", range(14))
def test_a_list_may_end_behind_any_field(count: int) -> None:
    fields: list[Value] = ["id", b"u", "to", "s", "r", "c", Symbol("t"), Symbol("e"), Timestamp(1), Timestamp(2)]
    fields += ["group", UInt(300), "again"]
    expected = ("id" if count else None, "group" if count > 10 else None)
    assert identity(section(PROPERTIES, fields[:count])) == expected


def test_a_list_of_more_fields_or_of_another_size_is_malformed() -> None:
    with pytest.raises(DecodeError, match="14 fields"):
        identity(section(PROPERTIES, ["id", *[None] * 13]))
    whole = properties_section("id", group_id="s")
    for end in (len(whole) - 1, len(whole) + 1):
        with pytest.raises((DecodeError, IndexError)):
            read_identity(whole + b"\x40", DESCRIPTOR_SIZE, end)
    with pytest.raises(DecodeError, match="0 fields"):
        read_identity(b"\xc0\x02\x00\x40", 0, 4)


def test_ids_have_a_length() -> None:
    for fields in ({}, {"group_id": "s"}):
        with pytest.raises(ArgumentError, match="message id has 129"):
            identity(properties_section("i" * (ID_LENGTH_MAX + 1), **fields))
    assert identity(properties_section("i", group_id="s" * ID_LENGTH_MAX)) == ("i", "s" * ID_LENGTH_MAX)
    with pytest.raises(ArgumentError, match="session id has 129"):
        identity(properties_section("i", group_id="s" * (ID_LENGTH_MAX + 1)))
    with pytest.raises(DecodeError, match="not a string"):
        identity(properties_section("i", group_id=Symbol("s")))


def test_a_ping_is_told_by_its_content_type_alone() -> None:
    for fields, expected in (
        ({"content_type": Symbol(PING_CONTENT_TYPE)}, True),
        ({"to": PING_CONTENT_TYPE}, False),
        ({"content_type": Symbol(PING_CONTENT_TYPE + "x")}, False),
        ({}, False),
    ):
        encoded = properties_section("i", **fields)
        assert is_ping(encoded, DESCRIPTOR_SIZE, len(encoded)) is expected


@pytest.mark.parametrize(
    ("created", "expires", "expected"),
    [
        (10, 15, 5),
        (10, 10, 0),
        (15, 10, 0),
        (0, LIFETIME_MAX, LIFETIME_MAX),
        (-1, LIFETIME_MAX, LIFETIME_MAX),
        (None, 5, None),
        (5, None, None),
    ],
)
def test_a_lifetime_is_the_span_from_creation_to_expiry(
    created: int | None, expires: int | None, expected: int | None
) -> None:
    times: dict[str, Any] = {"creation_time": created, "absolute_expiry_time": expires}
    fields = {name: None if at is None else Timestamp(at) for name, at in times.items()}
    assert lifetime(properties_section("i", **fields), DESCRIPTOR_SIZE) == expected


def test_a_message_without_an_id_gets_one_and_keeps_its_other_fields() -> None:
    changed, message_id = with_message_id(properties_section(None, subject="s", group_id="g"), lambda: "new")
    assert message_id == "new"
    expected = MessageProperties(message_id="new", subject="s", group_id="g")
    assert decode_sections(changed).properties == expected
    changed, _ = with_message_id(b"", lambda: "new")
    assert decode_sections(changed).properties == MessageProperties(message_id="new")


# Header


@pytest.mark.parametrize(
    ("fields", "ttl"),
    [
        ([], None),
        ([True], None),
        ([True, UByte(9), UInt(7)], 7),
        ([None, None, UInt(0), False], 0),
        ([False, None, None, True, UInt(3)], None),
        ([None, None, None, None, Long(3)], None),
    ],
)
def test_a_header_is_stored_with_all_fields_and_no_failed_deliveries(fields: list[Value], ttl: int | None) -> None:
    stored, found = read_header(header(*fields)[DESCRIPTOR_SIZE:])
    assert found == ttl
    assert stored == header(*(fields + [None] * 4)[:4], UInt(0))
    assert stored[-1:] == b"\x43"


@pytest.mark.parametrize(
    "fields",
    [["yes"], [None, UInt(1)], [None, None, ULong(1)], [None, None, None, UInt(1)], [*[None] * 4, b"3"], [None] * 6],
)
def test_a_header_with_a_wrong_type_or_too_many_fields_is_malformed(fields: list[Value]) -> None:
    with pytest.raises(DecodeError, match="header"):
        read_header(header(*fields)[DESCRIPTOR_SIZE:])
    with pytest.raises(DecodeError):
        read_header(encode_value("text"))


def test_a_time_to_live_is_put_into_a_header_and_nothing_else_changes() -> None:
    assert header(None, None, None, None, UInt(0)) == NO_HEADER
    stored, _ = read_header(header(True, UByte(9), UInt(7), False)[DESCRIPTOR_SIZE:])
    assert with_time_to_live(stored, encode_value(UInt(300))) == header(True, UByte(9), UInt(300), False, UInt(0))
    for asked, shown in ((5, 5), (TIME_TO_LIVE_MAX, TIME_TO_LIVE_MAX), (TIME_TO_LIVE_MAX + 1, TIME_TO_LIVE_MAX)):
        assert shown_header(NO_HEADER, asked) == header(None, None, UInt(shown), None, UInt(0))


# Lifetime


def test_what_a_sender_asked_for_is_in_the_header_or_beyond_its_limit_in_the_properties() -> None:
    times = {"creation_time": Timestamp(10), "absolute_expiry_time": Timestamp(10 + 2 * TIME_TO_LIVE_MAX)}
    for ttl, fields, expected in (
        (7, times, 7),
        (None, times, None),
        (TIME_TO_LIVE_MAX, times, 2 * TIME_TO_LIVE_MAX),
        (TIME_TO_LIVE_MAX, {}, TIME_TO_LIVE_MAX),
        (TIME_TO_LIVE_MAX - 1, times, TIME_TO_LIVE_MAX - 1),
    ):
        head, _ = read_header(header(None, None, None if ttl is None else UInt(ttl))[DESCRIPTOR_SIZE:])
        content = b"before" + properties_section("i", **fields)
        assert own_time_to_live(head, content, len(b"before")) == expected


@pytest.mark.parametrize("text", ["s", "s" * 150, "s" * 300])
@pytest.mark.parametrize("count", range(14))
def test_times_are_put_into_the_properties_and_nothing_else_changes(count: int, text: str) -> None:
    fields: list[Value] = ["id", b"u" * 9, text, None, "r", UUID(int=1), Symbol("t"), Symbol("e")]
    fields += [Timestamp(1), Timestamp(2), "group", UInt(300), "again"]
    shown = shown_properties(section(PROPERTIES, fields[:count]), since=5, expires_at=9)
    expected = fields[:count] + [None] * (10 - count)
    expected[8:10] = [Timestamp(9), Timestamp(5)]
    assert decode_sections(shown).properties == MessageProperties(*expected)
    assert shown[DESCRIPTOR_SIZE] == (0xC0 if len(shown) - DESCRIPTOR_SIZE - 3 < 0xFF else 0xD0)


@pytest.mark.parametrize("size", range(200, 256))
def test_properties_with_times_are_whole_whatever_their_size(size: int) -> None:
    shown = shown_properties(section(PROPERTIES, ["s" * size]), since=5, expires_at=9)
    found = decode_sections(shown).properties
    assert found == MessageProperties("s" * size, absolute_expiry_time=Timestamp(9), creation_time=Timestamp(5))


def test_the_latest_date_is_the_last_millisecond_of_the_year_9999() -> None:
    latest = datetime(1970, 1, 1) + timedelta(milliseconds=DATE_MAX)
    assert latest == datetime(9999, 12, 31, 23, 59, 59, 999_000)


@pytest.mark.parametrize("hops", range(HOPS_MAX + 1))
def test_hops_are_kept_beside_a_number_of_any_fragment(hops: int) -> None:
    for number in (0, 1, 15 << 48 | 7, (1 << 54) - 1):
        origin = with_hops(number, hops)
        assert (hops_of(origin), without_hops(origin)) == (hops, number)
        assert with_hops(origin, HOPS_MAX - hops) == with_hops(number, HOPS_MAX - hops)
