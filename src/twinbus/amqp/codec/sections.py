"""A message's sections: payload in, decoded sections out, and back (AMQP 1.0 part 3, section 3.2).

header  delivery-annotations  message-annotations  properties  application-properties  body  footer
0x70    0x71                  0x72                 0x73        0x74                    0x75-77  0x78

This is for messages that are read or written as a whole: requests to nodes, their responses, and what clients send.
Messages that pass through the broker are never decoded; `twinbus.model.message` reads a few facts of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from reprlib import repr as shortened  # what a peer sent can be as long as a frame
from typing import NamedTuple, TypeAlias, TypeVar

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.encode import encode_descriptor, encode_value
from twinbus.amqp.codec.layout import skip_value
from twinbus.amqp.codec.types import Symbol, Timestamp, UByte, UInt, Value
from twinbus.amqp.errors import DecodeError

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
VALUE = 0x77
FOOTER = 0x78

# The descriptors of sections in their other form, the symbol.
_CODES = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_NAMES = {code: name.split(":")[1] for name, code in _CODES.items()}

BODY_SECTIONS_MAX = 16_384
"""Data or sequence sections of one message. Each takes half a microsecond to pass over, and a message of 100 MB could have twenty
million of them."""


class TooManySections(DecodeError):
    """The body of a message is in more pieces than are passed over at once."""

    @classmethod
    def over(cls, count_max: int) -> "TooManySections":
        return cls(f"the body has more than {count_max} sections; join them to fewer")


_SECTIONS_BESIDE_BODY = len(_NAMES) - len((DATA, SEQUENCE, VALUE))


class Span(NamedTuple):
    """Where the value of a section is in a payload; its descriptor comes before `start`."""

    code: int
    start: int
    end: int


@dataclass(slots=True)
class Header:
    durable: bool | None = None
    priority: UByte | None = None
    ttl: UInt | None = None
    first_acquirer: bool | None = None
    delivery_count: UInt | None = None


@dataclass(slots=True)
class MessageProperties:
    """The immutable properties section, field by field."""

    message_id: Value = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Value = None
    content_type: Symbol | None = None
    content_encoding: Symbol | None = None
    absolute_expiry_time: Timestamp | None = None
    creation_time: Timestamp | None = None
    group_id: str | None = None
    group_sequence: UInt | None = None
    reply_to_group_id: str | None = None


@dataclass(frozen=True, slots=True)
class DataBody:
    parts: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class SequenceBody:
    rows: Sequence[list[Value]]


@dataclass(frozen=True, slots=True)
class ValueBody:
    value: Value


Body: TypeAlias = DataBody | SequenceBody | ValueBody


@dataclass(slots=True)
class Sections:
    """A whole message. None is an absent section, which is not the same as an empty one."""

    header: Header | None = None
    delivery_annotations: dict[Value, Value] | None = None
    message_annotations: dict[Value, Value] | None = None
    properties: MessageProperties | None = None
    application_properties: dict[str, Value] | None = None
    body: Body | None = None
    footer: dict[Value, Value] | None = None


def split_sections(payload: bytes) -> list[Span]:
    """The sections as they come, in any order and with any form of descriptor.

    At most one of each kind and one kind of body; data and sequence sections may repeat.
    """
    spans: list[Span] = []
    pos = 0
    while pos < len(payload):
        if payload[pos] != 0:
            raise DecodeError(f"byte {pos} of the message is 0x{payload[pos]:02x}, but every section starts with 0x00")
        descriptor, start = decode_value(payload, pos + 1)
        pos = skip_value(payload, start)
        spans.append(Span(_code_of(descriptor), start, pos))
        if len(spans) > BODY_SECTIONS_MAX + _SECTIONS_BESIDE_BODY:
            raise TooManySections.over(BODY_SECTIONS_MAX)
    _check_kinds([span.code for span in spans])
    return spans


def canonical(payload: bytes) -> bytes:
    """The same message with its sections in the standard order, each with a `smallulong` descriptor."""
    spans = sorted(split_sections(payload), key=lambda span: span.code)
    return b"".join([encode_descriptor(code) + payload[start:end] for code, start, end in spans])


def decode_sections(payload: bytes) -> Sections:
    sections = Sections()
    body: list[Value] = []
    body_code = 0
    for code, start, _ in split_sections(payload):
        value, _ = decode_value(payload, start)
        if code == HEADER:
            sections.header = _composite(Header, value)
        elif code == DELIVERY_ANNOTATIONS:
            sections.delivery_annotations = _expect(dict, value, code)
        elif code == MESSAGE_ANNOTATIONS:
            sections.message_annotations = _expect(dict, value, code)
        elif code == PROPERTIES:
            sections.properties = decode_properties(value)
        elif code == APPLICATION_PROPERTIES:
            sections.application_properties = _expect(dict, value, code)
        elif code == FOOTER:
            sections.footer = _expect(dict, value, code)
        else:
            body.append(value)
            body_code = code
    if body:
        sections.body = _body(body_code, body)
    return sections


def encode_sections(sections: Sections) -> bytes:
    """The message in the standard order, each section with a `smallulong` descriptor."""
    parts: list[tuple[int, Value]] = [
        (HEADER, None if sections.header is None else trimmed(sections.header)),
        (DELIVERY_ANNOTATIONS, sections.delivery_annotations),
        (MESSAGE_ANNOTATIONS, sections.message_annotations),
        (PROPERTIES, None if sections.properties is None else trimmed(sections.properties)),
        (APPLICATION_PROPERTIES, sections.application_properties),
    ]
    encoded = [encode_descriptor(code) + encode_value(value) for code, value in parts if value is not None]
    match sections.body:
        case DataBody(data):
            encoded += [encode_descriptor(DATA) + encode_value(part) for part in data]
        case SequenceBody(rows):
            encoded += [encode_descriptor(SEQUENCE) + encode_value(row) for row in rows]
        case ValueBody(value):
            encoded.append(encode_descriptor(VALUE) + encode_value(value))
    if sections.footer is not None:
        encoded.append(encode_descriptor(FOOTER) + encode_value(sections.footer))
    return b"".join(encoded)


def decode_properties(value: Value) -> MessageProperties:
    """The decoded value of a properties section, by field names."""
    return _composite(MessageProperties, value)


def trimmed(composite: Header | MessageProperties) -> list[Value]:
    """The fields as a list that ends with the last one that is set: trailing nulls can be omitted."""
    values = list(_FIELDS_OF[type(composite)](composite))
    while values and values[-1] is None:
        values.pop()
    return values


C = TypeVar("C", Header, MessageProperties)
T = TypeVar("T")

_FIELD_COUNTS: dict[type, int] = {kind: len(fields(kind)) for kind in (Header, MessageProperties)}
_FIELDS_OF = {kind: attrgetter(*(field.name for field in fields(kind))) for kind in (Header, MessageProperties)}


def _composite(kind: type[C], value: Value) -> C:
    count_max = _FIELD_COUNTS[kind]
    if not isinstance(value, list) or len(value) > count_max:
        raise DecodeError(f"a {kind.__name__} section is a list of at most {count_max} fields")
    return kind(*value)


def _expect(kind: type[T], value: Value, code: int) -> T:
    if not isinstance(value, kind):
        raise DecodeError(f"the {_NAMES[code]} section is not a {kind.__name__}")
    return value


def _body(code: int, values: list[Value]) -> Body:
    if code == DATA:
        return DataBody([_expect(bytes, value, code) for value in values])
    if code == SEQUENCE:
        return SequenceBody([_expect(list, value, code) for value in values])
    return ValueBody(values[0])


def _code_of(descriptor: Value) -> int:
    code = _CODES.get(descriptor) if isinstance(descriptor, Symbol) else descriptor
    if not isinstance(code, int) or isinstance(code, bool) or code not in _NAMES:
        raise DecodeError(f"{shortened(descriptor)} is not the descriptor of a message section")
    return code


def _check_kinds(codes: list[int]) -> None:
    for code in set(codes):
        if code not in (DATA, SEQUENCE) and codes.count(code) > 1:
            raise DecodeError(f"the message has more than one {_NAMES[code]} section")
    if len({DATA, SEQUENCE, VALUE}.intersection(codes)) > 1:
        raise DecodeError("the message has bodies of different kinds")
