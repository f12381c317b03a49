"""The identity of a message: message id and session id, read from its properties section, which stays as it is.

message-id user-id to subject reply-to correlation-id content-type content-encoding absolute-expiry-time
creation-time group-id group-sequence reply-to-group-id: fields 0 to 12, of which 0 and 10 are read for every message.
"""

from collections.abc import Callable
from struct import Struct
from uuid import UUID

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.encode import encode_descriptor, encode_list, encode_string
from twinbus.amqp.codec.layout import SIZE8, WIDTHS, skip_value
from twinbus.amqp.codec.sections import PROPERTIES, MessageProperties, decode_properties
from twinbus.amqp.codec.types import Value
from twinbus.amqp.errors import DecodeError
from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.model import wire_names
from twinbus.model.content import DESCRIPTOR_SIZE, compound_start

ID_LENGTH_MAX = 128
LIFETIME_MAX: Millis = 922_337_203_685_477
"""The longest time span of the service, which is that of .NET; two timestamps can be further apart."""

_PING = wire_names.PING_CONTENT_TYPE.encode()
_NULL = 0x40
_FIELD_COUNT = 13
_GROUP_ID = 10
_U32 = Struct(">I").unpack_from


def read_identity(data: bytes, pos: int, end: int) -> tuple[str | None, str | None]:
    """Message id as text and session id, from the list between `pos` and `end`; None for one that is not set.

    Every field is passed over, so that a list that does not end where it says is noticed here and not later.
    """
    form = data[pos]
    if form == 0xC0:
        count = data[pos + 2]
        pos += 3
    elif form == 0xD0:
        count = _U32(data, pos + 5)[0]
        pos += 9
    else:
        return None, None
    if not 0 < count <= _FIELD_COUNT:
        if count == 0 and pos == end:
            return None, None
        raise DecodeError(f"a properties section of {count} fields; it has at most {_FIELD_COUNT}")
    message_id: str | None = None
    if data[pos] == 0xA1:
        value_end = pos + 2 + data[pos + 1]
        message_id = data[pos + 2 : value_end].decode()
        pos = value_end
    else:
        value, pos = decode_value(data, pos)
        message_id = _as_text(value)
    if message_id is not None and len(message_id) > ID_LENGTH_MAX:
        raise ArgumentError(f"The message id has {len(message_id)} characters; use at most {ID_LENGTH_MAX}.")
    session_id: str | None = None
    # Often nothing else is set: then there are as many bytes left as fields, and all of them are null.
    if end - pos != count - 1 or data.count(_NULL, pos, end) != count - 1:
        session_id, pos = _group_id(data, pos, count)
        if pos != end:
            raise DecodeError(f"a properties section of {count} fields does not end where its size says")
    return message_id or None, session_id


def _group_id(data: bytes, pos: int, count: int) -> tuple[str | None, int]:
    """The group id among the fields after the first, and the position after the last of them."""
    group_id = None
    for index in range(1, count):
        code = data[pos]
        if code == _NULL:
            pos += 1
        elif index == _GROUP_ID:
            group_id, pos = decode_value(data, pos)
            _check_group_id(group_id)
        elif WIDTHS[code] == SIZE8:
            pos += 2 + data[pos + 1]
        else:
            pos = skip_value(data, pos)
    return group_id, pos


def _check_group_id(group_id: Value) -> None:
    if type(group_id) is not str:
        raise DecodeError("the group id (session id) is not a string")
    if len(group_id) > ID_LENGTH_MAX:
        raise ArgumentError(f"The session id has {len(group_id)} characters; use at most {ID_LENGTH_MAX}.")


def _as_text(message_id: Value) -> str | None:
    """A message id of any of its types, as the text that duplicate detection compares."""
    match message_id:
        case None:
            return None
        case str():
            return str(message_id)
        case bool():
            pass
        case UUID() | int():
            return str(message_id)
        case bytes():
            return message_id.hex()
    raise DecodeError(f"the message id is a {type(message_id).__name__}; it has to be a string, uuid, ulong or binary")


def is_ping(data: bytes, pos: int, end: int) -> bool:
    """Whether the content type in the properties section is that of a ping."""
    if data.find(_PING, pos, end) < 0:
        return False
    return _decoded(data, pos).content_type == wire_names.PING_CONTENT_TYPE


def lifetime(data: bytes, pos: int) -> Millis | None:
    """Time to live as the span from creation to absolute expiry: how SDKs send one of more than 49 days."""
    decoded = _decoded(data, pos)
    begin, end = decoded.creation_time, decoded.absolute_expiry_time
    if not isinstance(begin, int) or not isinstance(end, int):
        return None
    return min(max(0, end - begin), LIFETIME_MAX)


def with_message_id(section: bytes, new_id: Callable[[], str]) -> tuple[bytes, str]:
    """The properties section (empty bytes if there is none) with a new id in its first field; and that id."""
    message_id = new_id()
    elements = []
    if section:
        decode_value(section, DESCRIPTOR_SIZE)  # DecodeError if a field is malformed
        count, pos = compound_start(section, DESCRIPTOR_SIZE)
        for _ in range(count):
            end = skip_value(section, pos)
            elements.append(section[pos:end])
            pos = end
    elements[:1] = [encode_string(message_id)]
    return encode_descriptor(PROPERTIES) + encode_list(elements), message_id


def _decoded(data: bytes, pos: int) -> MessageProperties:
    return decode_properties(decode_value(data, pos)[0])
