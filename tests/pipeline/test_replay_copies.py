from itertools import pairwise
from typing import Any

import pytest

from twinbus.amqp.codec.sections import (
    DataBody,
    Header,
    MessageProperties,
    Sections,
    ValueBody,
    decode_sections,
    encode_sections,
)
from twinbus.amqp.codec.types import Long, Symbol, Timestamp, UByte, UInt
from twinbus.errors import ArgumentError
from twinbus.pipeline.replay.copies import copy_of
from twinbus.pipeline.replay.destinations import destinations_of
from twinbus.pipeline.replay.lake_job import slices

NOW = 1_800_000_000_000
HOUR_US = 3_600_000_000
DEAD_LETTER = Sections(
    header=Header(durable=True, priority=UByte(7), ttl=UInt(60_000), delivery_count=UInt(10)),
    delivery_annotations={Symbol("x-opt-lock-token"): b"token"},
    message_annotations={
        Symbol("x-opt-sequence-number"): Long(7),
        Symbol("x-opt-enqueued-time"): Timestamp(5),
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(5),
        Symbol("x-opt-deadletter-source"): "q",
        Symbol("x-opt-claimed-by"): "somebody",
        Symbol("x-opt-partition-key"): "k",
        Symbol("own"): "kept",
    },
    properties=MessageProperties(
        message_id="m", group_id="k", absolute_expiry_time=Timestamp(61_000), creation_time=Timestamp(1_000)
    ),
    application_properties={"n": Long(5), "DeadLetterReason": "Tired", "DeadLetterErrorDescription": "…"},
    body=ValueBody([Long(1)]),
)


def copy(sections: Sections, renamed_from: str | None = None) -> Sections:
    return decode_sections(copy_of(encode_sections(sections), NOW, renamed_from))


def test_what_the_sender_gave_stays_and_what_the_broker_added_goes() -> None:
    made = copy(DEAD_LETTER)
    assert made.header == Header(durable=True, priority=UByte(7), ttl=UInt(60_000))
    assert made.delivery_annotations is None
    assert made.message_annotations == {"x-opt-partition-key": "k", "own": "kept"}
    assert made.application_properties == {"n": 5}
    assert made.body == ValueBody([1])


def test_a_life_starts_anew() -> None:
    found = copy(DEAD_LETTER).properties
    assert found is not None
    assert (found.creation_time, found.absolute_expiry_time) == (NOW, NOW + 60_000)
    assert (found.message_id, found.group_id) == ("m", "k")


@pytest.mark.parametrize(
    ("created", "expires", "new"),
    [
        (Timestamp(-(2**63)), Timestamp(2**63 - 1), (NOW, 253_402_300_799_999)),
        (Timestamp(5), Timestamp(-(2**63)), (NOW, NOW)),
        ("soon", "later", ("soon", "later")),
        (Timestamp(5), "later", (5, "later")),
    ],
)
def test_times_that_no_calendar_has_do_not_stop_a_replay(created: Any, expires: Any, new: tuple[Any, Any]) -> None:
    given = MessageProperties(creation_time=created, absolute_expiry_time=expires)
    found = copy(Sections(properties=given, body=DataBody([b"x"]))).properties
    assert found is not None
    assert (found.creation_time, found.absolute_expiry_time) == new


def test_a_message_of_nothing_but_a_body_is_its_own_copy() -> None:
    payload = encode_sections(Sections(body=DataBody([b"x"])))
    assert copy_of(payload, NOW) == payload


def test_the_body_passes_byte_for_byte() -> None:
    odd = b"\x00\x53\x75\xb0\x00\x00\x00\x01x"  # a long form where the short one would do
    assert copy_of(odd, NOW) == odd


def test_a_message_goes_where_it_was() -> None:
    assert destinations_of(["a", "b/c/$DeadLetterQueue"], None) == {"a": "a", "b/c/$DeadLetterQueue": "b/c"}


def test_one_destination_for_all_is_said_with_to() -> None:
    paths = ["a", "t/Subscriptions/s"]
    assert destinations_of(paths, "t") == dict.fromkeys(paths, "t")
    with pytest.raises(ArgumentError, match="is not a name"):
        destinations_of(paths, "t//")


@pytest.mark.parametrize("path", ["t/Subscriptions/s", "t/Subscriptions/s/$DeadLetterQueue"])
def test_what_was_in_a_subscription_is_not_sent_to_all_of_them_unasked(path: str) -> None:
    with pytest.raises(ArgumentError, match="--to"):
        destinations_of([path], None)


def test_an_hour_is_cut_into_slices_that_leave_nothing_out() -> None:
    assert list(slices(0, None)) == []
    assert list(slices(5, None)) == [(0, HOUR_US)]
    parts = list(slices(1_000, rate=10))
    assert len(parts) == 5
    assert parts[0][0] == 0
    assert parts[-1][1] == HOUR_US
    assert all(before[1] == behind[0] for before, behind in pairwise(parts))


def test_slices_are_never_shorter_than_a_second() -> None:
    assert len(list(slices(1_000_000, rate=0.1))) == 3_600
