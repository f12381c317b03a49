"""Payloads as senders write them, for tests of what becomes of them."""

from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.sections import Sections, decode_sections
from twinbus.amqp.codec.types import Described, Symbol, ULong, Value
from twinbus.model.delivery import encode_delivery
from twinbus.model.message import Message, read_message

NEW_ID = "0123456789abcdef0123456789abcdef"
LOCK_TOKEN = bytes(range(16))


def section(code: int, value: Value) -> bytes:
    return encode_value(Described(ULong(code), value))


def header(*fields: Value) -> bytes:
    return section(0x70, list(fields))


def delivery_annotations(entries: dict[str, Value]) -> bytes:
    return section(0x71, {Symbol(name): value for name, value in entries.items()})


def annotations(entries: dict[str, Value]) -> bytes:
    return section(0x72, {Symbol(name): value for name, value in entries.items()})


def properties_section(message_id: Value = "id-1", **fields: Value) -> bytes:
    """As the Python SDK writes it: all thirteen fields, null where not set."""
    names = [
        "user_id",
        "to",
        "subject",
        "reply_to",
        "correlation_id",
        "content_type",
        "content_encoding",
        "absolute_expiry_time",
        "creation_time",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
    ]
    return section(0x73, [message_id, *(fields.get(name) for name in names)])


def application(entries: dict[str, Value]) -> bytes:
    return section(0x74, entries)


def body(data: bytes = b"body") -> bytes:
    return section(0x75, data)


def received(payload: bytes) -> Message:
    return read_message(payload, lambda: NEW_ID)


def delivered(content: bytes) -> Sections:
    """What a receiver decodes of a first peek-lock delivery."""
    return decode_sections(
        encode_delivery(
            content,
            sequence_number=7,
            enqueued_at=1_000,
            delivery_count=0,
            lock_token=LOCK_TOKEN,
            locked_until=61_000,
        )
    )
