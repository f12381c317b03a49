"""Restoring what was set aside: the payload of a message from a backlog queue in, the original out.

The payload is cut at its sections. The few that change are written again; body and footer pass
through byte for byte, so a restored message has the types its sender gave it. What the backlog
queue's broker added (lock token, sequence number, times) is left behind.
"""

from dataclasses import dataclass

from twinbus.amqp.codec.sections import Header, MessageProperties, Sections, encode_sections
from twinbus.amqp.codec.types import Symbol, Timestamp, UInt, Value
from twinbus.amqp.errors import DecodeError
from twinbus.clock import Millis
from twinbus.errors import MessagingError
from twinbus.model import wire_names
from twinbus.model.message_limits import TIME_TO_LIVE_MAX
from twinbus.model.received_payload import BROKER_ANNOTATIONS, BROKER_DELIVERY_ANNOTATIONS, read_front, without
from twinbus.pairing.rewriting.stages import Stage, parse_stage
from twinbus.pairing.rewriting.transfer import RESERVED_NAMES

ABSOLUTE_EXPIRY_MAX = 253_402_300_799_000  # the last second of the year 9999


class NotATransfer(MessagingError):
    """A message in a backlog queue that no paired sender put there; the text is the dead-letter reason."""


@dataclass(frozen=True, slots=True)
class Restored:
    """An original message and what its route depends on."""

    path: str
    payload: bytes
    message_id: Value
    session_id: str | None
    partition_key: str | None
    sequence_number: int
    locked_until: Millis
    enqueued_at: Millis
    """These are the backlog queue's; 0 in a payload that no broker delivered."""
    stage: Stage | None = None


def restore(payload: bytes) -> Restored:
    """Raises NotATransfer, or DecodeError if the bytes are not a message."""
    try:
        return _restore(*read_front(payload))
    except (NotATransfer, DecodeError):
        raise
    except Exception as error:
        # Whoever wrote it, no other message may have to wait for this one.
        raise NotATransfer(f"A property of the message has a value that cannot be sent on: {error}") from error


def _restore(sections: Sections, rest: bytes) -> Restored:
    aside = sections.application_properties or {}
    path = take_path(aside)
    session_id = take_text(aside, wire_names.TRANSFER_SESSION_ID)
    time_to_live = take_millis(aside, wire_names.TRANSFER_TIME_TO_LIVE)
    scheduled_at = take_millis(aside, wire_names.TRANSFER_SCHEDULED_ENQUEUE_TIME)
    kept = {name: value for name, value in aside.items() if name not in RESERVED_NAMES}
    annotations = without(sections.message_annotations, BROKER_ANNOTATIONS)
    if scheduled_at is not None:
        annotations[Symbol(wire_names.SCHEDULED_ENQUEUE_TIME)] = Timestamp(scheduled_at)
    properties = sections.properties or MessageProperties()
    properties.group_id = session_id
    front = Sections(
        header=_header(sections.header, properties, time_to_live),
        delivery_annotations=without(sections.delivery_annotations, BROKER_DELIVERY_ANNOTATIONS) or None,
        message_annotations=annotations or None,
        properties=properties,
        application_properties=kept or None,
    )
    partition_key = annotations.get(wire_names.PARTITION_KEY)
    number, locked_until, enqueued_at = delivery_facts(sections)
    return Restored(
        path,
        encode_sections(front) + rest,
        properties.message_id,
        session_id,
        partition_key,
        number,
        locked_until,
        enqueued_at,
        _stage(aside),
    )


def _stage(aside: dict[str, Value]) -> Stage | None:
    text = take_text(aside, wire_names.TRANSFER_FOLLOWS)
    if text is None:
        return None
    try:
        return parse_stage(text)
    except ValueError as error:
        raise NotATransfer(f"The property {wire_names.TRANSFER_FOLLOWS} is {text!r}, which is not a stage.") from error


def delivery_facts(sections: Sections) -> tuple[int, Millis, Millis]:
    """Sequence number, end of the lock and when it came, as the broker of the backlog queue wrote them."""
    annotations = sections.message_annotations or {}
    names = wire_names.SEQUENCE_NUMBER, wire_names.LOCKED_UNTIL, wire_names.ENQUEUED_TIME
    number, locked_until, enqueued_at = (annotations.get(name, 0) for name in names)
    return number, locked_until, enqueued_at


def take_path(aside: dict[str, Value]) -> str:
    path = take_text(aside, wire_names.TRANSFER_PATH)
    if not path:
        raise NotATransfer(f"The message has no {wire_names.TRANSFER_PATH} property, so its destination is unknown.")
    if "$" in path:
        # Such a node takes messages as requests and keeps none of them: what is sent there is gone.
        raise NotATransfer(
            f"The property {wire_names.TRANSFER_PATH} is {path!r}, which is neither a queue nor a topic."
        )
    return path


def take_text(aside: dict[str, Value], name: str) -> str | None:
    value = aside.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise NotATransfer(f"The property {name} is {type(value).__name__}, but a text is expected.")
    return value


def take_millis(aside: dict[str, Value], name: str) -> int | None:
    value = aside.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise NotATransfer(f"The property {name} is {value!r}, but milliseconds are expected.")
    return int(value)


def _header(header: Header | None, properties: MessageProperties, time_to_live: int | None) -> Header | None:
    """The sender's header: without the broker's delivery count, with the time to live it had."""
    made = Header() if header is None else header
    made.delivery_count = None
    made.ttl = None
    if time_to_live is not None:
        made.ttl = UInt(min(time_to_live, TIME_TO_LIVE_MAX))
        if properties.creation_time is not None:
            expiry = min(ABSOLUTE_EXPIRY_MAX, properties.creation_time + time_to_live)
            properties.absolute_expiry_time = Timestamp(expiry)
    return None if made == Header() else made
