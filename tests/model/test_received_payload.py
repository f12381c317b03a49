"""The payload of a received message, cut in front of its body, for those who send it on."""

import pytest

from tests.model.messages import annotations, application, body, delivery_annotations, header, properties_section
from twinbus.amqp.codec.sections import Sections, decode_sections
from twinbus.amqp.errors import DecodeError
from twinbus.model.received_payload import BROKER_ANNOTATIONS, read_annotations_of, read_front, without

FRONT = {
    "header": header(True),
    "delivery_annotations": delivery_annotations({"x-opt-lock-token": b"token"}),
    "message_annotations": annotations({"x-opt-sequence-number": 7, "mine": 1}),
    "properties": properties_section("id-1", subject="red"),
    "application_properties": application({"size": 3}),
}


@pytest.mark.parametrize("missing", [None, *FRONT])
def test_the_sections_in_front_of_the_body_are_decoded_and_body_and_footer_stay_bytes(missing: str | None) -> None:
    rest = body(b"content") + b"\x00\x53\x78\xc1\x01\x00"
    front = b"".join(section for name, section in FRONT.items() if name != missing)
    sections, found = read_front(front + rest)
    assert found == rest
    assert sections == decode_sections(front)


def test_sections_in_another_order_are_found_as_well() -> None:
    rest = body()
    sections, found = read_front(rest + FRONT["application_properties"] + FRONT["header"])
    assert found == rest
    assert sections == decode_sections(FRONT["header"] + FRONT["application_properties"])


def test_annotations_of_the_broker_are_left_out_and_those_of_the_sender_stay() -> None:
    sections, _ = read_front(FRONT["message_annotations"] + body())
    assert without(sections.message_annotations, BROKER_ANNOTATIONS) == {"mine": 1}
    assert without(None, BROKER_ANNOTATIONS) == {}


@pytest.mark.parametrize("has_annotations", [True, False])
def test_the_annotations_alone_are_read_where_nobody_can_read_the_rest(has_annotations: bool) -> None:
    unreadable = b"\x00\x53\x74\xc1\x02\x02\x01"
    with pytest.raises(DecodeError):
        read_front(unreadable)
    front = FRONT["header"] + (FRONT["message_annotations"] if has_annotations else b"")
    sections = read_annotations_of(front + FRONT["properties"] + unreadable + body())
    expected = {"x-opt-sequence-number": 7, "mine": 1} if has_annotations else None
    assert sections == Sections(message_annotations=expected)
