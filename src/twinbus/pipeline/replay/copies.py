"""The copy of a dead letter that is sent again: its payload in, the message to send out.

Body and footer pass byte for byte, and keys and properties stay; so does the id, unless the destination would drop it
(`copy_ids`). What the broker wrote is left behind: numbers, times, locks, the delivery count, and why the message was
dead-lettered. A time to live starts again, or a message that has expired would expire again at once.
"""

from twinbus.amqp.codec.sections import Header, MessageProperties, Sections, encode_sections
from twinbus.amqp.codec.types import Timestamp, Value
from twinbus.clock import Millis
from twinbus.model import wire_names
from twinbus.model.message_limits import DATE_MAX
from twinbus.model.received_payload import BROKER_ANNOTATIONS, read_front, without
from twinbus.pipeline.copy_ids import rename

DEAD_LETTER_PROPERTIES = frozenset({wire_names.DEAD_LETTER_REASON, wire_names.DEAD_LETTER_DESCRIPTION})
_ANNOTATIONS = BROKER_ANNOTATIONS | {wire_names.SCHEDULED_ENQUEUE_TIME, wire_names.CLAIMED_BY}


def copy_of(payload: bytes, now: Millis, renamed_from: str | None = None) -> bytes:
    """`renamed_from`: the path that it was received from, if the copy gets an id of its own.

    Raises DecodeError if the bytes are not a message.
    """
    front, rest = read_front(payload)
    if renamed_from is not None:
        rename(front, renamed_from)
    return (
        encode_sections(
            Sections(
                header=_header(front.header),
                message_annotations=without(front.message_annotations, _ANNOTATIONS) or None,
                properties=_properties(front.properties, now),
                application_properties=_without_reasons(front.application_properties),
            )
        )
        + rest
    )


def _header(header: Header | None) -> Header | None:
    if header is None:
        return None
    kept = Header(durable=header.durable, priority=header.priority, ttl=header.ttl)
    return None if kept == Header() else kept


def _properties(properties: MessageProperties | None, now: Millis) -> MessageProperties | None:
    if properties is None:
        return None
    # Senders write what they like there, and not all of it is a time.
    created: object = properties.creation_time
    expires: object = properties.absolute_expiry_time
    if isinstance(created, int) and isinstance(expires, int):
        properties.creation_time = Timestamp(now)
        properties.absolute_expiry_time = Timestamp(max(now, min(now + expires - created, DATE_MAX)))
    return properties


def _without_reasons(properties: dict[str, Value] | None) -> dict[str, Value] | None:
    return without(properties, DEAD_LETTER_PROPERTIES) or None
