"""Copies of received messages, to be sent again: a payload in, one out that no broker has touched.

Body and footer pass byte for byte. What a broker wrote (number, times, state) and the mark of a claim are left behind;
the delivery count starts over, and so does the time to live.
"""

from twinbus.amqp.codec.sections import Header, Sections, encode_sections
from twinbus.model import wire_names
from twinbus.pairing.restore import BROKER_ANNOTATIONS, BROKER_DELIVERY_ANNOTATIONS, read_front, without

_LEFT_BEHIND = BROKER_ANNOTATIONS | {wire_names.CLAIMED_BY}


def copy_of(payload: bytes) -> bytes:
    """Raises DecodeError if the bytes are not a message."""
    sections, rest = read_front(payload)
    header = sections.header or Header()
    header.delivery_count = header.first_acquirer = None
    front = Sections(
        header=header,
        delivery_annotations=without(sections.delivery_annotations, BROKER_DELIVERY_ANNOTATIONS) or None,
        message_annotations=without(sections.message_annotations, _LEFT_BEHIND) or None,
        properties=sections.properties,
        application_properties=without(sections.application_properties, frozenset({wire_names.CLAIMED_BY})) or None,
    )
    return encode_sections(front) + rest
