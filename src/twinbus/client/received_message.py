"""A received message: the payload in, its parts out, each decoded when it is first asked for.

Code that moves messages needs a key or a property of them at most, so nothing is decoded in advance. The value never changes; what
was decoded once is kept.
"""

from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cached_property
from uuid import UUID

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.section_bounds import ordered_sections, section_bounds
from twinbus.amqp.codec.sections import (
    DataBody,
    Header,
    MessageProperties,
    SequenceBody,
    ValueBody,
    decode_properties,
    decode_sections,
)
from twinbus.amqp.codec.types import Value
from twinbus.amqp.errors import DecodeError
from twinbus.clock import Millis
from twinbus.model import wire_names
from twinbus.model.content import DESCRIPTOR_SIZE
from twinbus.model.wire_names import MessageState

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST: Millis = -((_EPOCH - datetime.min.replace(tzinfo=UTC)) // _MILLISECOND)
_LAST: Millis = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_HEADER_FIELD_COUNT = len(fields(Header))
# Code of the section and constructor of its value.
_DATA_SHORT, _DATA_LONG = b"\x75\xa0", b"\x75\xb0"
# Places of the sections in what `section_bounds` returns.
_HEADER, _DELIVERY_ANNOTATIONS, _ANNOTATIONS, _PROPERTIES, _APPLICATION_PROPERTIES, _BODY = range(6)


@dataclass(frozen=True, eq=False)
class ReceivedMessage:
    """Reading a part that is malformed raises DecodeError.

    `delivery_tag` is the lock token as links carry it, empty if there is no lock. `delivery_id` is the number of the delivery on
    its link, None if there is nothing to settle.
    """

    payload: bytes
    delivery_tag: bytes = b""
    delivery_id: int | None = None

    @cached_property
    def header(self) -> Header:
        found = self._section(_HEADER) or []
        if len(found) > _HEADER_FIELD_COUNT:
            raise DecodeError(f"a header section has at most {_HEADER_FIELD_COUNT} fields, not {len(found)}")
        return Header(*found)

    @cached_property
    def annotations(self) -> dict[str, Value]:
        return self._section(_ANNOTATIONS) or {}

    @cached_property
    def properties(self) -> MessageProperties:
        return decode_properties(self._section(_PROPERTIES) or [])

    @cached_property
    def application_properties(self) -> dict[str, Value]:
        return self._section(_APPLICATION_PROPERTIES) or {}

    @cached_property
    def body(self) -> Value:
        """Data as bytes, an amqp-value as its value, a sequence as its elements; None if there is no body."""
        payload, bounds = self._ordered
        found = only_data(payload, bounds[_BODY])
        if found is not None:
            return found
        match decode_sections(payload[bounds[_BODY] :]).body:
            case DataBody(parts):
                return b"".join(parts)
            case SequenceBody(rows):
                return [element for row in rows for element in row]
            case ValueBody(value):
                return value
        return None

    @property
    def message_id(self) -> Value:
        return self.properties.message_id

    @property
    def session_id(self) -> str | None:
        return self.properties.group_id

    @property
    def subject(self) -> str | None:
        return self.properties.subject

    @property
    def partition_key(self) -> str | None:
        return self.annotations.get(wire_names.PARTITION_KEY)

    @property
    def sequence_number(self) -> int | None:
        return self.annotations.get(wire_names.SEQUENCE_NUMBER)

    @property
    def enqueued_sequence_number(self) -> int | None:
        return self.annotations.get(wire_names.ENQUEUED_SEQUENCE_NUMBER)

    @property
    def enqueued_at(self) -> datetime | None:
        return _time(self.annotations.get(wire_names.ENQUEUED_TIME))

    @property
    def scheduled_at(self) -> datetime | None:
        return _time(self.annotations.get(wire_names.SCHEDULED_ENQUEUE_TIME))

    @property
    def locked_until(self) -> datetime | None:
        return _time(self.annotations.get(wire_names.LOCKED_UNTIL))

    @property
    def state(self) -> MessageState:
        return MessageState(self.annotations.get(wire_names.MESSAGE_STATE, MessageState.ACTIVE))

    @property
    def delivery_count(self) -> int:
        """How often it was delivered before without being completed, deferred or dead-lettered."""
        return self.header.delivery_count or 0

    @property
    def time_to_live(self) -> timedelta | None:
        return None if self.header.ttl is None else timedelta(milliseconds=self.header.ttl)

    @property
    def lock_token(self) -> UUID | None:
        """The lock as `$management` requests name it."""
        return UUID(bytes_le=self.delivery_tag) if self.delivery_tag else None

    @property
    def dead_letter_reason(self) -> str | None:
        return self.application_properties.get(wire_names.DEAD_LETTER_REASON)

    @property
    def dead_letter_description(self) -> str | None:
        return self.application_properties.get(wire_names.DEAD_LETTER_DESCRIPTION)

    @cached_property
    def _ordered(self) -> tuple[bytes, tuple[int, ...]]:
        """The payload with its sections in the standard order, which it nearly always has, and where they start."""
        payload, bounds = ordered_sections(self.payload)
        return payload, (*bounds, len(payload))

    def _section(self, place: int) -> Value:
        """The value of a section, None if there is none."""
        payload, bounds = self._ordered
        start = bounds[place]
        return None if start == bounds[place + 1] else decode_value(payload, start + DESCRIPTOR_SIZE)[0]


def only_data(payload: bytes, pos: int) -> bytes | None:
    """The body if it is one data section and nothing follows, as in nearly every message; otherwise None."""
    mark = payload[pos + 2 : pos + 4]
    if mark == _DATA_SHORT:
        start = pos + 5
        size = payload[pos + 4]
    elif mark == _DATA_LONG:
        start = pos + 8
        size = int.from_bytes(payload[pos + 4 : start], "big")
    else:
        return None
    return payload[start:] if start + size == len(payload) else None


def split_payload(payload: bytes) -> tuple[bytes, bytes]:
    """Up to where the data of its body begin, and those; no data if the body is anything but one section of them."""
    try:
        bounds = section_bounds(payload)
    except DecodeError:
        bounds = None
    data = None if bounds is None else only_data(payload, bounds[_BODY])
    return (payload, b"") if data is None else (payload[: len(payload) - len(data)], data)


def time_of(millis: Millis) -> datetime:
    """The first or last time that a datetime can hold, if it is beyond: AMQP has 64 bits for a time."""
    return _EPOCH + timedelta(milliseconds=min(_LAST, max(_FIRST, millis)))


def _time(millis: Millis | None) -> datetime | None:
    return None if millis is None else time_of(millis)
