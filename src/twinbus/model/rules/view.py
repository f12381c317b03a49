"""What a filter can see of one message: system properties, user properties, never the body.

Decoding a message costs more than most filters, so each part is decoded when a filter first asks
for it: a message that only meets true filters is not decoded at all.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from twinbus.amqp.codec.sections import MessageProperties
from twinbus.amqp.codec.types import Described, Timestamp
from twinbus.clock import Millis
from twinbus.model.content import PropertyPlaces, application_properties, properties
from twinbus.model.message import Message, read_content
from twinbus.model.rules.values import text_of, understood


class FilterView:
    """One message for as long as its filters and actions run.

    `user` holds the application properties by their names in lower case (names of properties are
    case-insensitive in filters), `properties` the properties section and `facts` what the broker
    knows of the message. `names` has the names of the application properties as the sender spells them, and `places` where they
    are, for actions. All of them fill themselves when they are first read.
    """

    __slots__ = ("content", "enqueued_at", "facts", "names", "places", "properties", "sequence_number", "user")

    names: dict[str, str]
    places: PropertyPlaces
    user: dict[str, object]
    properties: MessageProperties
    facts: Message

    def __init__(self, content: bytes, sequence_number: int = 0, enqueued_at: Millis = 0) -> None:
        self.content = content
        self.sequence_number = sequence_number
        self.enqueued_at = enqueued_at

    if not TYPE_CHECKING:  # a checker that saw this would believe in attributes of any name

        def __getattr__(self, name: str) -> object:
            # Reached only while the slot is empty, so that later reads cost no call.
            if name not in _FILLINGS:
                raise AttributeError(name)
            value = _FILLINGS[name](self.content)
            setattr(self, name, value)
            return value


def user_properties(content: bytes) -> dict[str, object]:
    found = {name.lower(): value for name, value in application_properties(content).items()}
    for name, value in found.items():
        if type(value) is Described:
            found[name] = understood(value)
    return found


def spelled_names(content: bytes) -> dict[str, str]:
    return {name.lower(): name for name in application_properties(content)}


_FILLINGS: dict[str, Callable[[bytes], object]] = {
    "names": spelled_names,
    "places": PropertyPlaces,
    "user": user_properties,
    "properties": properties,
    "facts": read_content,
}


class SystemProperty(NamedTuple):
    """A property of the `sys` scope, and the field of the properties section that an action may set."""

    name: str
    read: Callable[[FilterView], object]
    field: str | None = None


def _text_or_none(value: object) -> object:
    return value if value is None or type(value) is str else text_of(value)


def _time_or_none(value: Millis | None) -> object:
    return None if value is None else Timestamp(value)


def _time_to_live(view: FilterView) -> object:
    millis = view.facts.time_to_live
    return None if millis is None else timedelta(milliseconds=millis)


def _expires_at(view: FilterView) -> object:
    millis = view.facts.time_to_live
    return None if millis is None else Timestamp(view.enqueued_at + millis)


_LABEL = SystemProperty("Label", lambda view: _text_or_none(view.properties.subject), "subject")
_SCHEDULED = SystemProperty("ScheduledEnqueueTimeUtc", lambda view: _time_or_none(view.facts.scheduled_at))
_ENQUEUED = SystemProperty("EnqueuedTimeUtc", lambda view: Timestamp(view.enqueued_at))
_EXPIRES = SystemProperty("ExpiresAtUtc", _expires_at)
_VIA_KEY = SystemProperty("ViaPartitionKey", lambda view: view.facts.via_partition_key)

SYSTEM_PROPERTIES: dict[str, SystemProperty] = {
    "messageid": SystemProperty("MessageId", lambda view: _text_or_none(view.properties.message_id), "message_id"),
    "correlationid": SystemProperty(
        "CorrelationId", lambda view: _text_or_none(view.properties.correlation_id), "correlation_id"
    ),
    "to": SystemProperty("To", lambda view: _text_or_none(view.properties.to), "to"),
    "replyto": SystemProperty("ReplyTo", lambda view: _text_or_none(view.properties.reply_to), "reply_to"),
    "label": _LABEL,
    "subject": _LABEL,
    "sessionid": SystemProperty("SessionId", lambda view: _text_or_none(view.properties.group_id), "group_id"),
    "replytosessionid": SystemProperty(
        "ReplyToSessionId", lambda view: _text_or_none(view.properties.reply_to_group_id), "reply_to_group_id"
    ),
    "contenttype": SystemProperty(
        "ContentType", lambda view: _text_or_none(view.properties.content_type), "content_type"
    ),
    "timetolive": SystemProperty("TimeToLive", _time_to_live),
    "expiresat": _EXPIRES,
    "expiresatutc": _EXPIRES,
    "enqueuedtime": _ENQUEUED,
    "enqueuedtimeutc": _ENQUEUED,
    "scheduledenqueuetime": _SCHEDULED,
    "scheduledenqueuetimeutc": _SCHEDULED,
    "sequencenumber": SystemProperty("SequenceNumber", lambda view: view.sequence_number),
    "partitionkey": SystemProperty("PartitionKey", lambda view: view.facts.partition_key),
    "viapartitionkey": _VIA_KEY,
    "transactionpartitionkey": _VIA_KEY,
}
"""By name in lower case. Two names of one property (Label is called Subject by newer clients) share one value."""
