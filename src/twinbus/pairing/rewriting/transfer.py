"""Setting aside what a backlog queue would act on: a message in, the message to put there out.

A message waits in a backlog queue as long as the outage lasts. Three of its properties would
be obeyed there, so they are set aside as application properties, next to the destination:

    session id (group-id)                 ->  x-ms-sessionid                 string
    time to live (header ttl)             ->  x-ms-timetolive                long, milliseconds
    scheduled enqueue time (annotation)   ->  x-ms-scheduledenqueuetimeutc   timestamp
    destination path                      ->  x-ms-path                      string

`restore.py` is the exact reverse. A time to live also shows as absolute-expiry-time, which a
service may obey as well: it is cleared too and made again from the creation time.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from twinbus.clock import Millis
from twinbus.model import wire_names

RESERVED_NAMES = frozenset(
    {
        wire_names.TRANSFER_PATH,
        wire_names.TRANSFER_SESSION_ID,
        wire_names.TRANSFER_TIME_TO_LIVE,
        wire_names.TRANSFER_SCHEDULED_ENQUEUE_TIME,
        wire_names.TRANSFER_FOLLOWS,
    }
)


# The SDK writes a bare int as AMQP int, which ends at 24 days of milliseconds. A value of this
# form carries its AMQP type.
_TYPE, _VALUE = "TYPE", "VALUE"

AnyMessage: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage
T = TypeVar("T")


def set_aside(
    message: AnyMessage, destination: str, new_message_id: Callable[[], str], now: Millis
) -> AmqpAnnotatedMessage:
    """A copy of `message` for a backlog queue; the message itself stays as it is.

    `new_message_id` is called for a message without one: copies of it that reach two backlog queues
    must be recognised as one message by a destination that detects duplicates.
    """
    raw = annotated(message)
    copy = clone(raw)
    properties = AmqpMessageProperties() if raw.properties is None else clone(raw.properties)
    aside: dict[str | bytes, Any] = dict(raw.application_properties) if raw.application_properties else {}
    aside[wire_names.TRANSFER_PATH] = destination
    if properties.message_id is None:
        properties.message_id = new_message_id()
    if properties.group_id is not None:
        aside[wire_names.TRANSFER_SESSION_ID] = _text(properties.group_id)
        properties.group_id = None
    if raw.header is not None and raw.header.time_to_live is not None:
        aside[wire_names.TRANSFER_TIME_TO_LIVE] = {_TYPE: "LONG", _VALUE: int(raw.header.time_to_live)}
        header = clone(raw.header)
        header.time_to_live = None
        copy.header = header
        properties.creation_time, properties.absolute_expiry_time = now, None
    if raw.annotations:
        copy.annotations = dict(raw.annotations)
        scheduled_at = _take_scheduled_time(copy.annotations)
        if scheduled_at is not None:
            aside[wire_names.TRANSFER_SCHEDULED_ENQUEUE_TIME] = scheduled_at
    copy.properties = properties
    copy.application_properties = aside
    return copy


def sessions_of(messages: Iterable[AnyMessage]) -> frozenset[str]:
    """The session ids of these messages."""
    found: set[str] = set()
    for message in messages:
        properties = annotated(message).properties
        if properties is not None and properties.group_id is not None:
            found.add(_text(properties.group_id))
    return frozenset(found)


def annotated(message: AnyMessage) -> AmqpAnnotatedMessage:
    return message if isinstance(message, AmqpAnnotatedMessage) else message.raw_amqp_message


def as_it_is_now(message: AnyMessage) -> AmqpAnnotatedMessage:
    """A copy that does not change when its sender changes the message. Bodies cannot be changed."""
    raw = annotated(message)
    copy = clone(raw)
    if raw.header is not None:
        copy.header = clone(raw.header)
    if raw.properties is not None:
        copy.properties = clone(raw.properties)
    if raw.annotations is not None:
        copy.annotations = dict(raw.annotations)
    if raw.application_properties is not None:
        copy.application_properties = dict(raw.application_properties)
    return copy


def clone(value: T) -> T:
    """`copy.copy` for these plain objects, several times as fast: it is on the way of every message."""
    made = object.__new__(type(value))
    made.__dict__.update(value.__dict__)
    return made


def _take_scheduled_time(annotations: dict[str | bytes, Any]) -> datetime | dict[str, Any] | None:
    """Remove the scheduled time and return it as the SDK writes a timestamp."""
    value = annotations.pop(wire_names.SCHEDULED_ENQUEUE_TIME, None)
    if value is None:
        value = annotations.pop(wire_names.SCHEDULED_ENQUEUE_TIME.encode(), None)
    if value is None or isinstance(value, datetime):
        return value
    return {_TYPE: "TIMESTAMP", _VALUE: value[_VALUE] if isinstance(value, dict) else int(value)}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
