"""Whatever a sender sent before, its messages are read as each alone would be."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.messages import annotations, application, body, header, properties_section, section
from twinbus.amqp.codec.types import Decimal128, Symbol, UInt
from twinbus.errors import MessagingError
from twinbus.model import message_reader, wire_names
from twinbus.model.message import Message, read_message
from twinbus.model.message_reader import PATIENCE_MAX, MessageReader

FRONTS: list[Callable[[str], bytes]] = [
    properties_section,
    lambda name: header(True) + properties_section(name),
    lambda name: header(True, None, UInt(5_000)) + properties_section(name, group_id="s1"),
    lambda name: annotations({"x-opt-partition-key": "k"}) + properties_section(name, subject="x" * 300),
    lambda name: properties_section(name) + application({"kind": "order", "n": 7}),
    lambda name: properties_section(name, content_type=Symbol(wire_names.PING_CONTENT_TYPE)),
    lambda name: section(0x73, [name.encode()]),
    lambda _: b"",
]
BODIES = [b"", b"a", b"b", b"x" * 255, b"x" * 256, b"y" * 256, b"x" * 1024]


def read(payload: bytes) -> Message | str:
    return outcome(lambda: read_message(payload, lambda: "new"))


def outcome(work: Callable[[], Message]) -> Message | str:
    try:
        return work()
    except MessagingError as error:
        return f"{type(error).__name__}: {error}"


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    name = draw(st.sampled_from(["a", "b", "ab", "é", "x" * 128, "x" * 129, ""]))
    payload = draw(st.sampled_from(FRONTS))(name) + body(draw(st.sampled_from(BODIES)))
    if draw(st.integers(0, 4)) == 0:
        payload += draw(st.sampled_from([b"\0", body(b"more"), section(0x78, {})]))
    if draw(st.integers(0, 3)) == 0:
        damaged = bytearray(payload)
        damaged[draw(st.integers(0, len(payload) - 1))] = draw(st.integers(0, 255))
        payload = bytes(damaged)
    return payload[: draw(st.integers(0, len(payload)))] if draw(st.integers(0, 9)) == 0 else payload


@given(st.lists(payloads(), min_size=2, max_size=8))
@settings(max_examples=400)
def test_a_message_is_read_as_it_would_be_alone(sent: list[bytes]) -> None:
    reader = MessageReader(lambda: "new")
    for payload in sent:
        assert outcome(lambda payload=payload: reader.read(payload)) == read(payload)  # type: ignore[misc]


@given(st.sampled_from(FRONTS), st.data())
@settings(max_examples=300)
def test_a_message_like_the_one_before_with_a_damaged_byte_is_read_as_it_would_be_alone(
    front: Callable[[str], bytes], data: st.DataObject
) -> None:
    reader = MessageReader(lambda: "new")
    usual = front("abcdef") + body(b"x" * data.draw(st.sampled_from([10, 300])))
    reader.read(usual)
    damaged = bytearray(usual)
    damaged[data.draw(st.integers(0, len(usual) - 1))] = data.draw(st.integers(0, 255))
    assert outcome(lambda: reader.read(bytes(damaged))) == read(bytes(damaged))


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("size", [10, 300])
def test_a_message_like_the_one_before_that_ends_early_is_read_as_it_would_be_alone(
    front: Callable[[str], bytes], size: int
) -> None:
    usual = front("abcdef") + body(b"x" * size)
    reader = MessageReader(lambda: "new")
    reader.read(usual)
    for end in range(len(usual) - size - 10, len(usual)):
        assert outcome(lambda end=end: reader.read(usual[:end])) == read(usual[:end])  # type: ignore[misc]


def test_decimals_are_stored_in_the_layout_that_receivers_read_in_every_message() -> None:
    decimal = Decimal128(bytes.fromhex("303e" + "00" * 13 + "7b"))  # as the Python SDK writes it
    reader = MessageReader(lambda: "new")
    for name in "abc":
        payload = properties_section(name) + application({"price": decimal}) + body(b"x")
        assert reader.read(payload) == read(payload)


@pytest.mark.parametrize("fields", ["c00100", "d00000000400000000", "c0020140"])
def test_a_message_may_end_with_properties_that_say_nothing(fields: str) -> None:
    payload = bytes.fromhex("005373" + fields)
    assert outcome(lambda: MessageReader(lambda: "new").read(payload)) == read(payload)
    assert read(payload) == read(b"")


@pytest.mark.parametrize("first", [b"first", b""])
def test_a_message_like_the_one_before_is_not_read_from_its_beginning(
    first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read(header(True) + properties_section("two") + body(b"the second"))
    reader = MessageReader(lambda: "new")
    reader.read(header(True) + properties_section("one") + body(first))
    monkeypatch.setattr(message_reader, "read_message", None)
    assert reader.read(header(True) + properties_section("two") + body(b"the second")) == expected


def test_a_sender_that_changes_its_ways_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = MessageReader(lambda: "new")
    for turn in range(12):
        for _ in range(PATIENCE_MAX):
            reader.read(properties_section("id", subject="s" * turn) + body())
    monkeypatch.setattr(message_reader, "read_message", None)
    assert reader.read(properties_section("id", subject="s" * 11) + body()).message_id == "id"
