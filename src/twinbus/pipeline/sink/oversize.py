"""What is left of a message that is too large for its entity: the message in, one without a body that says why out."""

from twinbus.amqp.codec.sections import Sections, decode_sections, encode_sections
from twinbus.client.message import SCHEDULED_TIME
from twinbus.client.received_message import ReceivedMessage
from twinbus.model import wire_names

REASON = "MessageSizeExceeded"


def notice_of(payload: bytes, entity: str, size_max: int) -> bytes:
    """It keeps ids, keys and properties, has the properties that the service gives to dead letters, and does not wait
    or expire.
    """
    sections = decode_sections(payload)
    description = (
        f"'{entity}' takes messages of up to {size_max} bytes; this one has {len(payload)}. Its body was removed."
    )
    reasons = {wire_names.DEAD_LETTER_REASON: REASON, wire_names.DEAD_LETTER_DESCRIPTION: description}
    annotations = dict(sections.message_annotations or {})
    annotations.pop(SCHEDULED_TIME, None)
    return encode_sections(
        Sections(
            message_annotations=annotations or None,
            properties=sections.properties,
            application_properties={**(sections.application_properties or {}), **reasons},
        )
    )


def name_of(payload: bytes) -> str:
    """For people."""
    return f"message '{ReceivedMessage(payload).message_id}' of {len(payload)} bytes"
