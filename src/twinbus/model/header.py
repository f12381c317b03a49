"""The header section: the sender's in, the one to store out (AMQP 1.0 part 3, section 3.2.1)."""

from functools import lru_cache
from reprlib import repr as shortened

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.encode import encode_descriptor, encode_list, encode_value
from twinbus.amqp.codec.sections import HEADER
from twinbus.amqp.codec.types import UByte, UInt, Value
from twinbus.amqp.errors import DecodeError
from twinbus.clock import Millis
from twinbus.model.content import DESCRIPTOR_SIZE

_FIELD_COUNT = 5
_TYPES: tuple[tuple[str, type], ...] = (
    ("durable", bool),
    ("priority", UByte),
    ("ttl", UInt),
    ("first-acquirer", bool),
)
_DELIVERY_COUNT = ("delivery-count", int)
_NO_FAILED_DELIVERIES = b"\x43"


def _section(fields: list[Value]) -> bytes:
    elements = [encode_value(field) for field in fields]
    return encode_descriptor(HEADER) + encode_list([*elements, _NO_FAILED_DELIVERIES])


NO_HEADER = _section([None] * len(_TYPES))


def with_time_to_live(section: bytes, encoded: bytes) -> bytes:
    """A section that `read_header` made, with another time to live."""
    fields, _ = decode_value(section, DESCRIPTOR_SIZE)
    elements = [encode_value(field) for field in fields[: len(_TYPES)]]
    elements[2] = encoded
    return encode_descriptor(HEADER) + encode_list([*elements, _NO_FAILED_DELIVERIES])


# Senders use the same few headers over and over.
@lru_cache(maxsize=1024)
def read_header(value: bytes) -> tuple[bytes, Millis | None]:
    """The whole section to store, with a delivery count of 0 in its last byte, and the time to live."""
    fields, _ = decode_value(value, 0)
    if not isinstance(fields, list) or len(fields) > _FIELD_COUNT:
        raise DecodeError(f"the header section is not a list of at most {_FIELD_COUNT} fields")
    fields += [None] * (_FIELD_COUNT - len(fields))
    # The last one is not kept; but a header of any length would be, in the cache.
    for (name, kind), field in zip((*_TYPES, _DELIVERY_COUNT), fields, strict=True):
        if field is not None and not isinstance(field, kind):
            raise DecodeError(f"{name} of the header is {shortened(field)}, which has the wrong type")
    fields = fields[: len(_TYPES)]
    ttl = fields[2]
    return _section(fields), None if ttl is None else int(ttl)
