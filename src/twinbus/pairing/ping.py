"""The message that asks an entity whether it is there."""

from datetime import timedelta

from azure.servicebus import ServiceBusMessage

from twinbus.model import wire_names

TIME_TO_LIVE = timedelta(seconds=1)


def ping_message(session_id: str) -> ServiceBusMessage:
    """Empty and gone after a second. With a session id, so that queues which require one take it too."""
    return ServiceBusMessage(
        b"", content_type=wire_names.PING_CONTENT_TYPE, time_to_live=TIME_TO_LIVE, session_id=session_id
    )
