"""Rows by the shapes of messages are those of messages that are decoded one by one."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest

from twinbus.amqp.codec.types import Int, Long, Value
from twinbus.client.entity_extras import PackedPage
from twinbus.client.message import encode_message
from twinbus.client.received_message import ReceivedMessage
from twinbus.clock import NEVER
from twinbus.model.content import without_body
from twinbus.model.delivery import encode_peeked_row
from twinbus.model.message import read_message
from twinbus.model.wire_names import MessageState
from twinbus.pipeline.source.rows import shaped_rows
from twinbus.pipeline.source.rows.columns import NAMES
from twinbus.pipeline.source.rows.message_rows import record_batch
from twinbus.pipeline.source.rows.shaped_rows import Payloads, ShapedRows, record_batches
from twinbus.store.changes import StoredMessage

NOON_MS = 1_767_355_200_000
TEXTS = ("session_id", "subject", "to", "reply_to", "reply_to_session_id", "correlation_id", "content_type")
NOON = datetime.fromtimestamp(NOON_MS / 1000, UTC)


def payloads(messages: list[ReceivedMessage]) -> Payloads:
    return Payloads.of_page(PackedPage.of([message.payload for message in messages], None))


def text(dice: Random, length: int) -> str:
    return ("ä" if dice.random() < 0.05 else "") + "".join(dice.choice("abc0") for _ in range(length))


def kinds(dice: Random) -> dict[str, Any]:
    """What messages of one sender have in common: which properties, and of which types and lengths."""
    made: dict[str, Any] = {}
    for name in TEXTS:
        if dice.random() < 0.4:
            made[name] = dice.choice([1, 5, 40])
    made["application"] = {text(dice, 3) + str(n): dice.choice("isbftnu") for n in range(dice.choice([0, 0, 1, 4]))}
    made["ttl"] = dice.random() < 0.3
    made["scheduled"] = dice.random() < 0.2
    made["id"] = dice.choice(["text", "text", "uuid", "number", "bytes"])
    made["body"] = dice.choice(["data", "data", "empty", "none", "value", "long"])
    return made


def value_of(dice: Random, kind: str) -> Value:
    made: dict[str, Value] = {
        "i": dice.randrange(-5, 2**40),
        "s": text(dice, 4),
        "b": dice.random() < 0.5,
        "f": dice.random(),
        "t": NOON,
        "n": None,
        "u": UUID(int=dice.getrandbits(128)),
    }
    return made[kind]


def sent(dice: Random, kind: dict[str, Any]) -> bytes:
    ids: dict[str, Any] = {
        "text": text(dice, 12) if dice.random() < 0.9 else text(dice, 3),
        "uuid": UUID(int=dice.getrandbits(128)),
        "number": dice.randrange(2**40),
        "bytes": dice.randbytes(9),
    }
    bodies: dict[str, Any] = {
        "data": dice.randbytes(dice.choice([10, 10, 20])),
        "empty": b"",
        "none": None,
        "value": text(dice, 6),
        "long": dice.randbytes(300),
    }
    given: dict[str, Any] = {name: text(dice, kind[name]) for name in TEXTS if name in kind}
    application = {name: value_of(dice, each) for name, each in kind["application"].items()}
    return encode_message(
        bodies[kind["body"]],
        message_id=ids[kind["id"]],
        partition_key=given.get("session_id") or (text(dice, 2) if dice.random() < 0.5 else None),
        time_to_live=timedelta(seconds=90) if kind["ttl"] else None,
        scheduled_at=NOON if kind["scheduled"] else None,
        application_properties=application or None,
        **given,
    )


def peeked(dice: Random, kind: dict[str, Any], number: int, *, with_body: bool) -> ReceivedMessage:
    message = read_message(sent(dice, kind), lambda: "made-here")
    row = StoredMessage(
        number,
        message.content,
        NOON_MS + number % 1000,
        NOON_MS + 90_000 if kind["ttl"] else NEVER,
        dice.choice([MessageState.ACTIVE, MessageState.ACTIVE, MessageState.DEFERRED]),
        delivery_count=dice.choice([0, 0, 0, 1, 300]),
        enqueued_sequence_number=dice.choice([0, 0, 7, 2**50]),
    )
    if not with_body:
        row.content = without_body(row.content)
    return ReceivedMessage(encode_peeked_row(row))


@pytest.mark.parametrize("seed", range(80))
def test_rows_by_shape_are_those_of_messages_decoded_one_by_one(seed: int) -> None:
    dice = Random(seed)
    senders = [kinds(dice) for _ in range(dice.choice([1, 1, 2, 4]))]
    messages = [
        peeked(dice, dice.choice(senders), (3 << 48) + number, with_body=dice.random() < 0.97) for number in range(120)
    ]
    names = NAMES if seed % 3 else tuple(dice.sample(NAMES, 5))
    rows = ShapedRows("orders", names)
    assert rows.batch(payloads(messages[:50])).equals(record_batch(messages[:50], "orders", names))
    assert rows.batch(payloads(messages[50:])).equals(record_batch(messages[50:], "orders", names))


def ordinary(count: int) -> list[ReceivedMessage]:
    """Ids and keys of a few lengths."""
    found = []
    for number in range(count):
        payload = encode_message(b"x", message_id=str(number), partition_key=f"k{number % 20}")
        row = StoredMessage(number + 1, read_message(payload, lambda: "made-here").content, NOON_MS + number, NEVER)
        found.append(ReceivedMessage(encode_peeked_row(row)))
    return found


def test_properties_of_messages_that_look_alike_are_those_that_each_message_has() -> None:
    """Numbers of any size are no part of a shape; a text that JSON escapes is escaped."""
    dice = Random(1)
    given = [
        {
            "n": n,
            "small": Int(n % 90),
            "big": Long(n * 2**30),
            "who": f"w{n % 7}",
            "odd": '"' if n == 77 else "x",
            "ok": n % 2 > 0,
        }
        for n in range(100)
    ]
    for names in (("n", "small", "big", "who", "ok"), ("odd", "who")):
        sent = [
            encode_message(b"x", message_id=text(dice, 6), application_properties={k: v[k] for k in names})
            for v in given
        ]
        received = [ReceivedMessage(payload) for payload in sent]
        rows = ShapedRows("orders", ("properties", "messageId"))
        assert rows.batch(payloads(received)).equals(record_batch(received, "orders", ("properties", "messageId")))
        assert rows._hits > 90


def test_messages_of_one_sender_have_a_few_shapes() -> None:
    rows = ShapedRows("orders", NAMES)
    rows.batch(payloads(ordinary(500)))
    assert len(rows._plans) <= shaped_rows.SHAPES_MAX
    assert rows._hits > 400


def test_a_body_that_was_cut_off_has_no_known_shape() -> None:
    messages = ordinary(40)
    broken = [
        ReceivedMessage(message.payload[:-1]) if place % 9 == 0 else message for place, message in enumerate(messages)
    ]
    (found,) = record_batches([payloads(broken)], "orders")
    assert found.equals(record_batch(broken, "orders"))


def test_text_that_is_not_utf_8_is_null_where_it_is() -> None:
    messages = [encode_message(b"x", message_id="abcdef", subject=f"s{number}") for number in range(20)]
    messages[7] = messages[7].replace(b"abcdef", b"abc\xff\xfef")
    received = [ReceivedMessage(payload) for payload in messages]
    (found,) = record_batches([payloads(received)], "orders")
    assert found.equals(record_batch(received, "orders"))
    assert found["messageId"].null_count == 1


def test_where_every_message_has_its_own_shape_nobody_keeps_looking() -> None:
    received = [ReceivedMessage(encode_message(b"x", message_id="i" * number)) for number in range(1, 120)]
    rows = ShapedRows("orders", ("messageId",))
    assert rows.batch(payloads(received)).to_pydict() == {"messageId": ["i" * number for number in range(1, 120)]}
    assert not rows._plans
