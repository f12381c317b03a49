"""Whole messages: what is encoded comes back, in whatever form a peer writes it."""

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.section_bounds import section_bounds
from twinbus.amqp.codec.sections import (
    APPLICATION_PROPERTIES,
    BODY_SECTIONS_MAX,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    Body,
    DataBody,
    Header,
    MessageProperties,
    Sections,
    SequenceBody,
    TooManySections,
    ValueBody,
    canonical,
    decode_sections,
    encode_sections,
)
from twinbus.amqp.codec.types import Described, Symbol, UByte, UInt, ULong, Value
from twinbus.amqp.errors import DecodeError


def section(code: int, value: Value) -> bytes:
    return encode_value(Described(ULong(code), value))


def test_a_message_with_every_section_comes_back_as_it_was() -> None:
    sections = Sections(
        header=Header(durable=True, priority=UByte(4), ttl=UInt(60_000)),
        delivery_annotations={Symbol("x-opt-a"): 1},
        message_annotations={Symbol("x-opt-b"): "b"},
        properties=MessageProperties(message_id="id", group_id="session"),
        application_properties={"colour": "red"},
        body=DataBody([b"body"]),
        footer={Symbol("crc"): UInt(7)},
    )
    assert decode_sections(encode_sections(sections)) == sections


@pytest.mark.parametrize(
    "body", [None, DataBody([b"a", b""]), SequenceBody([[1], ["a", None]]), ValueBody({"a": 1}), ValueBody(None)]
)
def test_every_kind_of_body_comes_back_as_it_was(body: Body | None) -> None:
    assert decode_sections(encode_sections(Sections(body=body))).body == body


def test_a_body_may_have_as_many_sections_as_the_limit_says_whatever_is_beside_it() -> None:
    front = [HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES]
    beside = b"".join([section(code, [] if code in (HEADER, PROPERTIES) else {}) for code in front]) + section(
        FOOTER, {}
    )
    decoded = decode_sections(beside + section(DATA, b"") * BODY_SECTIONS_MAX)
    assert isinstance(decoded.body, DataBody)
    assert len(decoded.body.parts) == BODY_SECTIONS_MAX
    with pytest.raises(TooManySections):
        decode_sections(beside + section(DATA, b"") * (BODY_SECTIONS_MAX + 1))


def test_sections_have_smallulong_descriptors_and_no_trailing_nulls() -> None:
    encoded = encode_sections(Sections(properties=MessageProperties(message_id="a"), body=DataBody([b"b"])))
    assert encoded.hex(" ") == "00 53 73 c0 04 01 a1 01 61 00 53 75 a0 01 62"


def test_an_empty_section_is_told_from_one_that_is_not_there() -> None:
    assert decode_sections(section(0x72, {})).message_annotations == {}
    assert decode_sections(b"").message_annotations is None


@pytest.mark.parametrize("name", [ULong(0x73), Symbol("amqp:properties:list")])
def test_descriptors_are_read_as_code_and_as_symbol(name: Value) -> None:
    payload = b"\x00" + (b"\x80" + bytes(7) + b"\x73" if isinstance(name, ULong) else encode_value(name))
    payload += encode_value(["id"])
    assert decode_sections(payload).properties == MessageProperties(message_id="id")
    assert canonical(payload) == section(0x73, ["id"])


def test_sections_out_of_order_are_put_in_order() -> None:
    header, properties, body = section(0x70, [True]), section(0x73, ["id"]), section(0x75, b"x")
    delivery = section(0x71, {Symbol("a"): 1})
    assert canonical(body + properties + header + delivery) == header + delivery + properties + body


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (section(0x72, {}) * 2, "more than one message-annotations"),
        (section(0x77, 1) * 2, "more than one amqp-value"),
        (section(0x75, b"") + section(0x77, 1), "different kinds"),
        (section(0x79, 1), "not the descriptor of a message section"),
        (encode_value(Described(Symbol("amqp:accepted:list"), [])), "not the descriptor of a message section"),
        (encode_value(Described([1], [])), "not the descriptor of a message section"),
        (section(0x73, [None] * 14), "at most 13 fields"),
        (section(0x73, {}), "at most 13 fields"),
        (section(0x74, []), "application-properties section is not a dict"),
        (section(0x75, "text"), "data section is not a bytes"),
        (b"\x40", "every section starts with 0x00"),
    ],
)
def test_what_is_no_message_is_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_sections(payload)


@given(st.lists(st.tuples(st.integers(0x6F, 0x79), st.binary(max_size=20)), max_size=5))
def test_hostile_sections_raise_nothing_but_a_decode_error(parts: list[tuple[int, bytes]]) -> None:
    payload = b"".join(b"\x00\x53" + bytes((code,)) + value for code, value in parts)
    with contextlib.suppress(DecodeError):
        decode_sections(payload)


LISTS = (b"\x45", b"\xc0\x01\x00", b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00")
MAPS = (b"\xc1\x01\x00", b"\xd1\x00\x00\x00\x04\x00\x00\x00\x00")
BINARIES = (b"\xa0\x00", b"\xb0\x00\x00\x00\x00")


@pytest.mark.parametrize(
    ("code", "forms"),
    [
        (HEADER, LISTS),
        (DELIVERY_ANNOTATIONS, MAPS),
        (MESSAGE_ANNOTATIONS, MAPS),
        (PROPERTIES, LISTS),
        (APPLICATION_PROPERTIES, MAPS),
        (DATA, BINARIES),
        (SEQUENCE, LISTS),
        (FOOTER, MAPS),
    ],
)
def test_a_section_may_be_written_in_each_form_of_its_own_type_and_in_no_other(
    code: int, forms: tuple[bytes, ...]
) -> None:
    for form in (*LISTS, *MAPS, *BINARIES, b"\x40"):
        payload = bytes((0x00, 0x53, code)) + form
        if form in forms:
            assert section_bounds(payload) is not None
        else:
            with pytest.raises(DecodeError):
                section_bounds(payload)


@pytest.mark.parametrize(
    "body", [b"", section(0x75, b"x") * 2, section(0x76, [1]), section(0x77, Described(ULong(1), 2))]
)
@pytest.mark.parametrize("footer", [b"", section(0x78, {})])
def test_the_bounds_of_an_ordinary_message_are_where_its_sections_start(body: bytes, footer: bytes) -> None:
    front = [section(0x70, [True]), section(0x71, {}), section(0x72, {}), section(0x73, ["a"]), section(0x74, {})]
    for missing in range(len(front) + 1):
        parts = [part for index, part in enumerate(front) if index != missing]
        lengths = [0 if index == missing else len(part) for index, part in enumerate(front)]
        bounds = section_bounds(b"".join(parts) + body + footer)
        assert bounds == tuple(sum(lengths[:index]) for index in range(6))


@pytest.mark.parametrize(
    "payload",
    [
        section(0x73, []) + section(0x72, {}),
        section(0x73, []) * 2,
        section(0x75, b"") + section(0x76, []),
        section(0x77, 1) * 2,
        section(0x78, {}) + section(0x75, b""),
        b"\x00\xa3\x0famqp:data:binary\xa0\x00",
    ],
)
def test_a_message_out_of_the_ordinary_has_no_bounds(payload: bytes) -> None:
    assert section_bounds(payload) is None


@pytest.mark.parametrize("payload", [b"\x00", b"\x00\x53\x75\xb0\x00", b"\x00\x53\x75\xa0\x02x", section(0x75, "text")])
def test_a_section_that_cannot_be_has_no_bounds_but_an_error(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        section_bounds(payload)


@pytest.mark.parametrize(("code", "value"), [(DATA, b""), (SEQUENCE, [])])
def test_a_body_of_the_most_sections_takes_no_longer_for_each_than_a_short_one(code: int, value: Value) -> None:
    """Goal: no client can stall a namespace with a request. To begin the body again with each section takes four seconds."""
    payload = section(code, value) * BODY_SECTIONS_MAX
    before = time.thread_time()
    body = decode_sections(payload).body
    assert time.thread_time() - before < 1
    assert isinstance(body, DataBody | SequenceBody)
    parts = body.parts if isinstance(body, DataBody) else body.rows
    assert parts == [value] * BODY_SECTIONS_MAX
