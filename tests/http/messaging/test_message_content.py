"""Messages of the REST API both ways: what goes in as HTTP comes out as the same HTTP."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinbus.amqp.codec.sections import Sections, SequenceBody, ValueBody, encode_sections
from twinbus.amqp.codec.types import Timestamp
from twinbus.broker.consumer import TakenMessage
from twinbus.clock import NEVER, Millis
from twinbus.errors import ArgumentError
from twinbus.http.messaging.header_values import read_header_value, write_header_value
from twinbus.http.messaging.message_content import (
    PROPERTY_COUNT_MAX,
    HttpMessage,
    http_message,
    payload_of_request,
    payloads_of_batch,
    read_timeout,
)
from twinbus.model.message import read_message
from twinbus.model.message_limits import BATCH_COUNT_MAX
from twinbus.store.changes import StoredMessage
from twinbus.testing.sim_clock import START

DAY_S = 86_400

# No half characters: JSON can spell them, and they are refused.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NAMES = st.text("abcXYZ-_09", min_size=1, max_size=12).map(lambda name: "p-" + name)
VALUES = TEXTS | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
BROKER = st.fixed_dictionaries(
    {"MessageId": TEXTS},
    optional=dict.fromkeys(
        ("SessionId", "PartitionKey", "ViaPartitionKey", "Label", "CorrelationId", "To", "ReplyTo", "ReplyToSessionId"),
        TEXTS,
    ),
)


def delivered(payload: bytes, expires_at: Millis = NEVER) -> HttpMessage:
    message = read_message(payload, lambda: "new")
    return http_message(TakenMessage(StoredMessage(7, message.content, START, expires_at), b"", 0))


@settings(max_examples=100)
@given(broker=BROKER, custom=st.dictionaries(NAMES, VALUES, max_size=4), body=st.binary(max_size=50))
def test_a_message_comes_out_as_it_went_in(broker: dict[str, str], custom: dict[str, Any], body: bytes) -> None:
    headers = [("BrokerProperties", json.dumps(broker)), ("Content-Type", "x/y")]
    headers += [(name, write_header_value(value)) for name, value in custom.items()]
    found, content = delivered(payload_of_request(headers, body, START))
    assert content == body
    by_name = dict(found)
    shown = json.loads(by_name.pop("BrokerProperties"))
    assert {name: shown.get(name) for name in broker} == broker
    assert by_name.pop("Content-Type") == "x/y"
    assert {name: read_header_value(text) for name, text in by_name.items()} == custom


@settings(max_examples=50)
@given(broker=BROKER, custom=st.dictionaries(NAMES, VALUES | st.none(), max_size=4), body=TEXTS)
def test_a_message_of_a_batch_is_the_one_that_is_sent_alone(
    broker: dict[str, str], custom: dict[str, Any], body: str
) -> None:
    element = {"Body": body, "BrokerProperties": broker, "UserProperties": custom}
    (payload,) = payloads_of_batch(json.dumps([element]).encode(), START)
    found, content = delivered(payload)
    assert content == body.encode()
    shown = json.loads(dict(found)["BrokerProperties"])
    assert {name: shown.get(name) for name in broker} == broker


def test_a_time_to_live_beyond_what_the_header_holds_is_kept() -> None:
    headers = [("BrokerProperties", json.dumps({"TimeToLive": 100 * DAY_S}))]
    message = read_message(payload_of_request(headers, b"", START), lambda: "new")
    assert message.time_to_live == 100 * DAY_S * 1000


def test_a_message_shows_the_time_it_was_given_to_live() -> None:
    payload = payload_of_request([], b"", START)
    assert json.loads(delivered(payload, START + 90_000).headers[0][1])["TimeToLive"] == 90.0
    assert json.loads(delivered(payload).headers[0][1])["TimeToLive"] == 922_337_203_685.4775


def test_bodies_of_other_kinds_are_written_as_text() -> None:
    def body_of(body: Any) -> bytes:
        return delivered(encode_sections(Sections(body=body))).body

    assert body_of(None) == b""
    assert body_of(ValueBody("grüße")) == "grüße".encode()
    assert body_of(ValueBody(b"\x00\x01")) == b"\x00\x01"
    assert json.loads(body_of(ValueBody({"a": [1, None, True], "t": Timestamp(784_111_777_000)}))) == {
        "a": [1, None, True],
        "t": "Sun, 06 Nov 1994 08:49:37 GMT",
    }
    assert json.loads(body_of(SequenceBody([[1, "a"], [2.5]]))) == [[1, "a"], [2.5]]


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, 60), ("0", 0), ("59", 59), ("60", 60), ("61", 60), ("999999999", 60)]
)
def test_nobody_waits_longer_than_a_minute(text: str | None, seconds: int) -> None:
    assert read_timeout(text) == seconds


def test_a_batch_has_a_limit() -> None:
    assert len([*payloads_of_batch(json.dumps([{}] * BATCH_COUNT_MAX).encode(), START)]) == BATCH_COUNT_MAX
    with pytest.raises(ArgumentError, match=f"at most {BATCH_COUNT_MAX}"):
        payloads_of_batch(json.dumps([{}] * (BATCH_COUNT_MAX + 1)).encode(), START)
    with pytest.raises(ArgumentError, match="at least one"):
        payloads_of_batch(b"[]", START)


def test_custom_properties_have_a_limit() -> None:
    many = [(f"p{number}", "1") for number in range(PROPERTY_COUNT_MAX)]
    payload_of_request(many, b"", START)
    with pytest.raises(ArgumentError, match="at most 1000"):
        payload_of_request([*many, ("more", "1")], b"", START)
    with pytest.raises(ArgumentError, match="twice"):
        payload_of_request([("a", "1"), ("a", "2")], b"", START)
