"""Stored messages that are asked for their properties, or changed."""

from dataclasses import replace
from uuid import UUID

import pytest

from tests.model.messages import (
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
from twinbus.amqp.codec.sections import FOOTER, DataBody, MessageProperties
from twinbus.amqp.codec.types import Decimal128, Symbol, Timestamp, UByte, UInt, Value
from twinbus.errors import ArgumentError
from twinbus.model.content import (
    NewProperties,
    annotation,
    application_properties,
    properties,
    with_annotations,
    with_application_properties,
    with_properties,
    without_body,
)
from twinbus.model.message import read_content


def test_properties_are_decoded_by_field() -> None:
    content = received(properties_section(UUID(int=1), subject="label", reply_to_group_id="r") + body()).content
    assert properties(content) == MessageProperties(message_id=UUID(int=1), subject="label", reply_to_group_id="r")


def test_application_properties_are_decoded_with_their_types() -> None:
    values: dict[str, Value] = {"a": UInt(1), "b": 1.5, "c": None, "d": Timestamp(9), "e": Symbol("s"), "f": b"x"}
    found = application_properties(received(properties_section() + application(values)).content)
    assert found == values
    assert [type(value) for value in found.values()] == [type(value) for value in values.values()]
    assert application_properties(received(properties_section()).content) == {}


def test_without_its_body_a_content_has_everything_before_it() -> None:
    facts = annotations({"a": 1}) + properties_section(subject="label") + application({"n": 1})
    cut = without_body(received(facts + body(b"x") * 2 + section(FOOTER, {"f": 1})).content)
    assert cut == without_body(cut)
    shown, whole = delivered(cut), delivered(received(facts).content)
    assert shown == whole


def test_a_malformed_value_hides_itself_and_no_other() -> None:
    bad_text = b"\xa1\x01\xff"
    entries = b"\xa1\x01a" + bad_text + b"\xa1\x01b" + b"\x41"
    payload = properties_section() + b"\x00\x53\x74\xc1" + bytes((len(entries) + 1, 4)) + entries
    assert application_properties(received(payload).content) == {"b": True}
    fields = b"\xa1\x01i" + b"\x40\x40" + bad_text
    payload = b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, 4)) + fields
    assert properties(received(payload).content) == MessageProperties(message_id="i")


@pytest.mark.parametrize("before", [b"", application({}), application({"b": 2, "DeadLetterReason": "old"})])
def test_application_properties_are_set_whether_or_not_there_were_any(before: bytes) -> None:
    content = received(annotations({"m": 1}) + properties_section() + before + body()).content
    changed = with_application_properties(
        content, NewProperties({"DeadLetterReason": "new", "DeadLetterErrorDescription": "d" * 300})
    )
    sections = delivered(changed)
    kept = {"b": 2} if b"b" in before else {}
    assert sections.application_properties == {
        **kept,
        "DeadLetterReason": "new",
        "DeadLetterErrorDescription": "d" * 300,
    }
    assert sections.body == DataBody([b"body"])
    assert read_content(changed).message_id == "id-1"


def test_application_properties_can_be_removed() -> None:
    content = received(properties_section() + application({"a": 1, "b": 2}) + body()).content
    assert application_properties(
        with_application_properties(content, NewProperties({"c": 3}), removed=("a", "z"))
    ) == {
        "b": 2,
        "c": 3,
    }


def test_fields_of_the_properties_are_set_and_cleared() -> None:
    content = received(section(0x73, ["id-1", None, None, "label"]) + application({"a": 1}) + body()).content
    changed = with_properties(content, {"subject": None, "group_id": "s", "to": "x" * 300})
    assert properties(changed) == MessageProperties(message_id="id-1", group_id="s", to="x" * 300)
    assert read_content(changed).session_id == "s"
    assert application_properties(changed) == {"a": 1}


@pytest.mark.parametrize("cleared", [None, ""])
def test_a_stored_message_keeps_a_message_id(cleared: str | None) -> None:
    content = received(properties_section()).content
    assert read_content(with_properties(content, {"message_id": "new"})).message_id == "new"
    with pytest.raises(ArgumentError):
        with_properties(content, {"message_id": cleared})


def test_annotations_are_set_and_removed() -> None:
    content = received(annotations({"x-opt-partition-key": "k", "a": 1, "b": 2}) + properties_section()).content
    changed = with_annotations(content, {"a": None, "x-opt-partition-key": "new", "c": 3})
    assert read_content(changed).partition_key == "new"
    kept = delivered(changed).message_annotations
    assert kept is not None
    assert {name: value for name, value in kept.items() if len(name) == 1} == {"b": 2, "c": 3}


def test_decimals_in_properties_and_annotations_reach_receivers_in_the_layout_they_read() -> None:
    decimal = Decimal128(bytes.fromhex("303e" + "00" * 13 + "7b"))  # 12.3 as the Python SDK writes it
    content = received(
        annotations({"m": decimal, "x-opt-locked-until": 1})
        + properties_section()
        + application({"a": 1, "price": decimal, "z": "z"})
        + body(bytes(decimal))
    ).content
    expected = bytes.fromhex("0c3e" + "00" * 13 + "7b")
    sections = delivered(content)
    assert sections.message_annotations is not None
    assert sections.message_annotations["m"] == expected
    assert sections.application_properties == {"a": 1, "price": expected, "z": "z"}
    assert sections.body == DataBody([bytes(decimal)])


def test_a_message_with_names_that_are_no_text_can_still_be_changed() -> None:
    odd_name = b"\xa3\x01\xff"
    payload = (
        b"\x00\x53\x72\xc1\x06\x02" + odd_name + b"\x54\x07" + properties_section() + b"\x00\x53\x74\xc1\x06\x02"
        b"\xa1\x01\xff\x54\x07"
    )
    content = received(payload).content
    changed = with_application_properties(with_annotations(content, {"a": 1}), NewProperties({"DeadLetterReason": "r"}))
    assert application_properties(changed) == {"\ufffd": 7, "DeadLetterReason": "r"}
    assert odd_name in changed


def test_a_map_of_as_many_entries_as_fit_can_still_be_changed() -> None:
    entries = b"\x40" * 65_400
    head = b"\x00\x53\x72\xd1" + (len(entries) + 4).to_bytes(4, "big") + len(entries).to_bytes(4, "big")
    content = received(head + entries + properties_section()).content
    changes = {f"a{number}": number for number in range(100)}
    assert read_content(with_annotations(content, changes)).message_id == "id-1"


@pytest.mark.parametrize(
    "before", [b"", header(True, UByte(7)), delivery_annotations({"d": 1})], ids=["", "header", "delivery"]
)
def test_what_comes_before_the_annotations_moves_nothing_and_stays(before: bytes) -> None:
    front = before + annotations({"a": 1}) + properties_section("id", subject="label") + application({"n": 1})
    content = received(front + body(b"x")).content
    shown = delivered(content)
    assert (properties(content).subject, application_properties(content)) == ("label", {"n": 1})
    assert annotation(content, "a") == 1
    annotated = delivered(with_annotations(content, {"b": 2}))
    assert shown.message_annotations is not None
    assert annotated == replace(shown, message_annotations={**shown.message_annotations, Symbol("b"): 2})
    noted = delivered(with_application_properties(content, NewProperties({"m": 2})))
    assert noted == replace(shown, application_properties={"n": 1, "m": 2})
    assert delivered(without_body(content)) == replace(shown, body=None)
