"""Messages for tests: encoded as a sender does, and read as the gateway reads them."""

from twinbus.amqp.codec.sections import DataBody, Header, MessageProperties, Sections, encode_sections
from twinbus.amqp.codec.types import Symbol, Timestamp, UInt, Value
from twinbus.clock import Millis
from twinbus.model import wire_names
from twinbus.model.content import properties
from twinbus.model.message import Message, read_message


def make_message(
    message_id: str,
    *,
    body: bytes = b"",
    session_id: str | None = None,
    partition_key: str | None = None,
    via_partition_key: str | None = None,
    time_to_live: Millis | None = None,
    scheduled_at: Millis | None = None,
    is_ping: bool = False,
    application_properties: dict[str, Value] | None = None,
) -> Message:
    annotations: dict[Value, Value] = {}
    if partition_key is not None:
        annotations[Symbol(wire_names.PARTITION_KEY)] = partition_key
    if via_partition_key is not None:
        annotations[Symbol(wire_names.VIA_PARTITION_KEY)] = via_partition_key
    if scheduled_at is not None:
        annotations[Symbol(wire_names.SCHEDULED_ENQUEUE_TIME)] = Timestamp(scheduled_at)
    sections = Sections(
        header=Header(ttl=UInt(time_to_live)) if time_to_live is not None else None,
        message_annotations=annotations or None,
        properties=MessageProperties(
            message_id=message_id,
            group_id=session_id,
            content_type=Symbol(wire_names.PING_CONTENT_TYPE) if is_ping else None,
        ),
        application_properties=application_properties,
        body=DataBody([body]),
    )
    return read_message(encode_sections(sections), lambda: "unused")


def message_id_of(content: bytes) -> str:
    return str(properties(content).message_id)
