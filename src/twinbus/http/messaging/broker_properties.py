"""The `BrokerProperties` of the REST API: JSON in, fields of a message out; a delivery in, JSON out.

    {"MessageId": "a", "SessionId": "s", "TimeToLive": 90, "ScheduledEnqueueTimeUtc": "Sun, 06 Nov 1994 08:49:37 GMT"}

`TimeToLive` is in seconds. Other names are ignored, as the service does: clients send back what they received.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from twinbus.amqp.codec.sections import Header, MessageProperties, Sections
from twinbus.amqp.codec.types import Symbol, Timestamp, UInt, Value
from twinbus.broker.consumer import TakenMessage
from twinbus.clock import NEVER, Millis
from twinbus.errors import ArgumentError
from twinbus.http.messaging.header_values import (
    as_json,
    checked_text,
    read_json,
    read_time,
    read_time_span,
    write_http_time,
)
from twinbus.model import wire_names
from twinbus.model.content import properties
from twinbus.model.message import read_content
from twinbus.model.message_limits import TIME_TO_LIVE_MAX
from twinbus.model.wire_names import MessageState

LONGEST_TIME_TO_LIVE_S = 922_337_203_685.4775
"""What the service shows for a message that never expires: .NET's longest span of time."""

STATES = {MessageState.ACTIVE: "Active", MessageState.DEFERRED: "Deferred", MessageState.SCHEDULED: "Scheduled"}

# Texts by their place in the message.
PROPERTY_FIELDS = {
    "MessageId": "message_id",
    "To": "to",
    "Label": "subject",
    "ReplyTo": "reply_to",
    "CorrelationId": "correlation_id",
    "SessionId": "group_id",
    "ReplyToSessionId": "reply_to_group_id",
}
ANNOTATIONS = {
    "PartitionKey": Symbol(wire_names.PARTITION_KEY),
    "ViaPartitionKey": Symbol(wire_names.VIA_PARTITION_KEY),
}
SCHEDULED_FOR = Symbol(wire_names.SCHEDULED_ENQUEUE_TIME)


def read_broker_properties(text: str | None) -> Mapping[str, object]:
    """The header's object; no header is an empty one."""
    return _object(read_json(text, "The header BrokerProperties")) if text else {}


def apply_broker_properties(given: object, sections: Sections, now: Millis) -> None:
    """Put what JSON says into a message. Raises ArgumentError where a value is not of its type."""
    values = _object(given)
    fields = sections.properties or MessageProperties()
    for name, field in PROPERTY_FIELDS.items():
        setattr(fields, field, _text(values, name))
    sections.properties = fields
    annotations: dict[Value, Value] = {key: _text(values, name) for name, key in ANNOTATIONS.items()}
    scheduled_for = _text(values, "ScheduledEnqueueTimeUtc")
    if scheduled_for is not None:
        annotations[SCHEDULED_FOR] = Timestamp(read_time(scheduled_for, "ScheduledEnqueueTimeUtc"))
    sections.message_annotations = {key: value for key, value in annotations.items() if value is not None} or None
    _set_time_to_live(_time_to_live(values), sections, now)


def _set_time_to_live(time_to_live: Millis | None, sections: Sections, now: Millis) -> None:
    if time_to_live is None:
        return
    sections.header = Header(ttl=UInt(min(time_to_live, TIME_TO_LIVE_MAX)))
    if time_to_live > TIME_TO_LIVE_MAX and time_to_live < NEVER - now:
        assert sections.properties is not None
        sections.properties.creation_time = Timestamp(now)
        sections.properties.absolute_expiry_time = Timestamp(now + time_to_live)


def _time_to_live(values: Mapping[str, object]) -> Millis | None:
    seconds = values.get("TimeToLive")
    span = _text(values, "TimeToLiveTimeSpan")
    if seconds is not None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < NEVER / 1000:
            raise ArgumentError("TimeToLive has to be a number of seconds greater than 0.")
        return min(round(seconds * 1000), NEVER)
    if span is not None:
        time_to_live = read_time_span(span, "TimeToLiveTimeSpan")
        if time_to_live <= 0:
            raise ArgumentError("TimeToLiveTimeSpan has to be longer than 0.")
        return time_to_live
    return None


def _object(given: object) -> Mapping[str, object]:
    if not isinstance(given, dict):
        raise ArgumentError("BrokerProperties has to be a JSON object, such as {}.")
    return given


def _text(values: Mapping[str, object], name: str) -> str | None:
    value = values.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ArgumentError(f"{name} of BrokerProperties has to be a string.")
    return checked_text(value, name)


def write_broker_properties(delivery: TakenMessage) -> dict[str, Any]:
    """What a receiver over HTTP gets of a message besides its body and custom properties."""
    row, fields, facts = delivery.message, properties(delivery.message.content), read_content(delivery.message.content)
    shown: dict[str, Any] = {
        # The delivery that is under way counts here; in AMQP only those that failed do.
        "DeliveryCount": row.delivery_count + 1,
        "EnqueuedSequenceNumber": row.enqueued_sequence_number or row.sequence_number,
        "EnqueuedTimeUtc": write_http_time(row.enqueued_at),
        "SequenceNumber": row.sequence_number,
        "State": STATES[row.state],
        "TimeToLive": LONGEST_TIME_TO_LIVE_S if row.expires_at == NEVER else (row.expires_at - row.enqueued_at) / 1000,
    }
    for name, field in PROPERTY_FIELDS.items():
        shown[name] = as_json(getattr(fields, field))
    shown["PartitionKey"] = facts.partition_key
    shown["ViaPartitionKey"] = facts.via_partition_key
    if facts.scheduled_at is not None:
        shown["ScheduledEnqueueTimeUtc"] = write_http_time(facts.scheduled_at)
    if delivery.lock_token:
        shown["LockToken"] = str(UUID(bytes_le=delivery.lock_token))
        shown["LockedUntilUtc"] = write_http_time(delivery.locked_until)
    return {name: value for name, value in shown.items() if value is not None}
