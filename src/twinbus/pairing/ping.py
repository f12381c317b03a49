"""The message that asks an entity whether it is there."""

from azure.servicebus import ServiceBusMessage

from twinbus.model import wire_names
from twinbus.model.pairing_limits import PING_TIME_TO_LIVE


def ping_message(session_id: str) -> ServiceBusMessage:
    """Empty and gone after a second. With a session id, so that queues which require one take it too."""
    return ServiceBusMessage(
        b"", content_type=wire_names.PING_CONTENT_TYPE, time_to_live=PING_TIME_TO_LIVE, session_id=session_id
    )
