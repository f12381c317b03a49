"""The parts of a message that columns need, decoded once: a message in, its sections out.

`ReceivedMessage` decodes a part when it is first read, which suits callers that need one or two of them. A row needs
nearly all, and a task makes thousands of rows: so here they are taken out in one go, and only those that are wanted.
A section that is malformed is None, like one that nobody wants; one that is not there is empty.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.section_bounds import ordered_sections
from twinbus.amqp.codec.types import Value
from twinbus.amqp.errors import DecodeError
from twinbus.client.received_message import ReceivedMessage, only_data
from twinbus.model.content import DESCRIPTOR_SIZE

HEADER, ANNOTATIONS, PROPERTIES, APPLICATION, BODY = 0, 2, 3, 4, 5
"""Places of the sections, as `section_bounds` counts them."""

_HEADER_FIELDS = [None] * 5
_PROPERTIES_FIELDS = [None] * 13


class Parts(NamedTuple):
    header: list[Value] | None  # all of its fields
    annotations: dict[str, Value] | None
    properties: list[Value] | None  # all of its fields
    application: dict[str, Value] | None
    body: Value


def parts_of(message: ReceivedMessage, wanted: Collection[int]) -> Parts:
    try:
        payload, bounds = ordered_sections(message.payload)
    except DecodeError:
        return Parts(None, None, None, None, None)
    header = annotations = properties = application = body = None
    if HEADER in wanted:
        header = _fields(payload, bounds[0], bounds[1], _HEADER_FIELDS)
    if ANNOTATIONS in wanted:
        annotations = _map(payload, bounds[2], bounds[3])
    if PROPERTIES in wanted:
        properties = _fields(payload, bounds[3], bounds[4], _PROPERTIES_FIELDS)
    if APPLICATION in wanted:
        application = _map(payload, bounds[4], bounds[5])
    if BODY in wanted:
        body = only_data(payload, bounds[5])
        if body is None:
            body = _other_body(message)
    return Parts(header, annotations, properties, application, body)


def _other_body(message: ReceivedMessage) -> Value:
    try:
        return message.body
    except DecodeError:
        return None


def _fields(payload: bytes, start: int, end: int, empty: list[None]) -> list[Value] | None:
    if start == end:
        return empty
    try:
        found: list[Any] = decode_value(payload, start + DESCRIPTOR_SIZE)[0]
    except DecodeError:
        return None
    return found + empty[len(found) :]


def _map(payload: bytes, start: int, end: int) -> dict[str, Value] | None:
    if start == end:
        return {}
    try:
        found: dict[str, Value] = decode_value(payload, start + DESCRIPTOR_SIZE)[0]
    except DecodeError:
        return None
    return found
