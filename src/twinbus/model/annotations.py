"""The entries of annotation and application property maps, scanned without decoding them.

The bytes of a map's elements in; the few values that route a message and the entries to store out. Annotations that
only the broker may set are dropped, everything else is kept byte for byte.
"""

from struct import Struct
from typing import TypeAlias

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.layout import SIZE8, WIDTHS, skip_value
from twinbus.amqp.errors import DecodeError
from twinbus.clock import NEVER, Millis
from twinbus.errors import ArgumentError
from twinbus.model import wire_names
from twinbus.model.decimal128 import to_net_layout

_U32 = Struct(">I").unpack_from
_DECIMAL128 = 0x94
KEY_LENGTH_MAX = 128

_DROPPED, _PARTITION_KEY, _VIA_PARTITION_KEY, _SCHEDULED = range(4)

# A message that is received and sent again brings these along; they belong to its previous delivery.
_BROKER_OWN = (
    wire_names.SEQUENCE_NUMBER.encode(),
    wire_names.ENQUEUED_TIME.encode(),
    wire_names.ENQUEUED_SEQUENCE_NUMBER.encode(),
    wire_names.LOCKED_UNTIL.encode(),
    wire_names.MESSAGE_STATE.encode(),
    wire_names.DEAD_LETTER_SOURCE.encode(),
    wire_names.PARTITION_ID.encode(),
    wire_names.LOCK_TOKEN.encode(),
)
_MEANINGS: dict[bytes, int] = {
    **dict.fromkeys(_BROKER_OWN, _DROPPED),
    wire_names.PARTITION_KEY.encode(): _PARTITION_KEY,
    wire_names.VIA_PARTITION_KEY.encode(): _VIA_PARTITION_KEY,
    wire_names.SCHEDULED_ENQUEUE_TIME.encode(): _SCHEDULED,
}


Annotations: TypeAlias = tuple[bytes, int, str | None, str | None, Millis | None]
"""Entries to store, count of their elements; partition key, via partition key, and when the message is scheduled for."""

NO_ANNOTATIONS: Annotations = (b"", 0, None, None, None)


def read_annotations(data: bytes, pos: int, end: int, count: int) -> Annotations:
    """Scan the `count` elements between `pos` and `end`; DecodeError unless they end exactly there."""
    partition_key = via_partition_key = scheduled_at = None
    kept: list[bytes] = []
    kept_from = pos
    dropped = elements = 0
    while pos < end:
        start = pos
        code = data[pos]
        if code == 0xA3 or code == 0xA1:
            value_at = pos + 2 + data[pos + 1]
            meaning = _MEANINGS.get(data[pos + 2 : value_at])
        else:
            value_at = skip_value(data, pos)
            # Rare: SDKs use the short form of a name wherever it fits.
            meaning = _MEANINGS.get(data[pos + 5 : value_at]) if code == 0xB3 or code == 0xB1 else None
        if WIDTHS[data[value_at]] == SIZE8:
            pos = value_at + 2 + data[value_at + 1]
        else:
            pos = skip_value(data, value_at)
        elements += 2
        if meaning == _PARTITION_KEY:
            partition_key = _key(data, value_at)
        elif meaning == _DROPPED:
            kept.append(data[kept_from:start])
            kept_from = pos
            dropped += 2
        elif meaning == _SCHEDULED:
            scheduled_at = _time(data, value_at)
        elif meaning == _VIA_PARTITION_KEY:
            via_partition_key = _key(data, value_at)
        elif data[value_at] == _DECIMAL128:
            kept += (data[kept_from:value_at], _net_decimal(data[value_at:pos]))
            kept_from = pos
    if pos != end or elements != count:
        raise DecodeError(f"annotations of {count} elements do not end at byte {end}, as their size says")
    entries = data[kept_from:end]
    if kept:
        entries = b"".join((*kept, entries))
    return entries, elements - dropped, partition_key, via_partition_key, scheduled_at


def check_entries(data: bytes, pos: int, end: int, count: int) -> bool:
    """Whether the application properties between `pos` and `end` have a decimal value; DecodeError if they are malformed."""
    has_decimal = False
    elements = 0
    while pos < end:
        code = data[pos]
        if code == 0xA1 or code == 0xA3:
            pos += 2 + data[pos + 1]
        elif code == 0xB1 or code == 0xB3:
            pos += 5 + _U32(data, pos + 1)[0]
        else:
            raise DecodeError(f"the name of an application property starts with 0x{code:02x}; it has to be a string")
        code = data[pos]
        width = WIDTHS[code]
        if width >= 0:
            pos += 1 + width
            has_decimal = has_decimal or code == _DECIMAL128
        elif width == SIZE8:
            pos += 2 + data[pos + 1]
        else:
            pos = skip_value(data, pos)
        elements += 2
    if pos != end or elements != count:
        raise DecodeError(f"application properties of {count} elements do not end at byte {end}, as their size says")
    return has_decimal


def with_net_decimals(data: bytes, pos: int, end: int) -> bytes:
    """The data with each decimal between `pos` and `end` in the layout that SDKs read. Sizes stay the same."""
    pieces = [data[:pos]]
    while pos < end:
        value_at = skip_value(data, pos)
        value_end = skip_value(data, value_at)
        pieces += (data[pos:value_at], _net_decimal(data[value_at:value_end]))
        pos = value_end
    pieces.append(data[end:])
    return b"".join(pieces)


def _net_decimal(value: bytes) -> bytes:
    return value[:1] + to_net_layout(value[1:]) if value[0] == _DECIMAL128 else value


def _key(data: bytes, pos: int) -> str | None:
    if data[pos] == 0xA1:
        value = data[pos + 2 : pos + 2 + data[pos + 1]].decode()
    else:
        value, _ = decode_value(data, pos)
        if value is None:
            return None
        if isinstance(value, bytes):
            # The Python SDK reads strings as bytes, so it forwards a received message with bytes.
            value = value.decode()
        if not isinstance(value, str):
            raise ArgumentError("A partition key is not a string; send it as one.")
    if len(value) > KEY_LENGTH_MAX:
        raise ArgumentError(f"A partition key has {len(value)} characters; use at most {KEY_LENGTH_MAX}.")
    return str(value)


def _time(data: bytes, pos: int) -> Millis | None:
    value, _ = decode_value(data, pos)
    if value is None:
        return None
    # Some clients read a timestamp as a long and send it back as one; an unsigned long may exceed every timestamp.
    if not isinstance(value, int) or isinstance(value, bool) or value > NEVER:
        raise ArgumentError("x-opt-scheduled-enqueue-time is not a timestamp; send it as one.")
    return int(value)
