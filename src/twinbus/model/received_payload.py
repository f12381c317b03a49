"""The payload of a received message, cut in front of its body, for those who send the message on.

The few sections that change are decoded and written again; body and footer pass byte for byte. What the broker added to the
delivery (lock token, sequence number, times) is left behind by whoever sends a copy.
"""

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.section_bounds import ordered_sections
from twinbus.amqp.codec.sections import Header, Sections, decode_properties
from twinbus.amqp.codec.types import Value
from twinbus.model import wire_names
from twinbus.model.content import DESCRIPTOR_SIZE

# What a broker writes into a delivery; to the destination it would be somebody else's bookkeeping.
BROKER_ANNOTATIONS = frozenset(
    {
        wire_names.SEQUENCE_NUMBER,
        wire_names.ENQUEUED_TIME,
        wire_names.ENQUEUED_SEQUENCE_NUMBER,
        wire_names.LOCKED_UNTIL,
        wire_names.MESSAGE_STATE,
        wire_names.DEAD_LETTER_SOURCE,
    }
)
BROKER_DELIVERY_ANNOTATIONS = frozenset({wire_names.LOCK_TOKEN})


def read_front(payload: bytes) -> tuple[Sections, bytes]:
    """The sections in front of the body, decoded, and the bytes from the body on."""
    payload, bounds = ordered_sections(payload)
    header_at, delivery_at, annotations_at, properties_at, application_at, rest_at = bounds
    sections = Sections()
    if delivery_at > header_at:
        sections.header = Header(*_value(payload, header_at))
    if annotations_at > delivery_at:
        sections.delivery_annotations = _value(payload, delivery_at)
    if properties_at > annotations_at:
        sections.message_annotations = _value(payload, annotations_at)
    if application_at > properties_at:
        sections.properties = decode_properties(_value(payload, properties_at))
    if rest_at > application_at:
        sections.application_properties = _value(payload, application_at)
    return sections, payload[rest_at:]


def read_annotations_of(payload: bytes) -> Sections:
    """The message annotations alone, where the broker's own are: of a message whose other sections nobody can read."""
    payload, (_, _, annotations_at, properties_at, _, _) = ordered_sections(payload)
    is_there = properties_at > annotations_at
    return Sections(message_annotations=_value(payload, annotations_at) if is_there else None)


def _value(payload: bytes, start: int) -> Value:
    """Of the section that starts there, behind its descriptor."""
    return decode_value(payload, start + DESCRIPTOR_SIZE)[0]


def without(entries: dict[Value, Value] | None, names: frozenset[str]) -> dict[Value, Value]:
    return {name: value for name, value in (entries or {}).items() if name not in names}
