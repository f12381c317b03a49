"""Transfers and dispositions in their common encodings: a frame's bounds in, fields out (AMQP 1.0 part 2, sections 2.7.5 and 2.7.6).

These readers run for every single message. They understand a list of at most 255 bytes with fields in their usual
encodings, which is what every known client sends, and return None for everything else, malformed bytes included: the
general decoder decides about those. A reader that runs past the end of its list notices it at the end, when its
position is not the one that the size gives. The readers make no calls and repeat the same few branches instead: a
call per field would double the cost of receiving a message.
"""

from itertools import product
from struct import Struct, error
from typing import TypeAlias

from twinbus.amqp.codec.delivery_state import Accepted, DeliveryState, Modified, Released
from twinbus.amqp.codec.performatives import Disposition, decode_performative

TRANSFER_MARK = 0x005314C0
DISPOSITION_MARK = 0x005315C0
"""First four bytes of a body: descriptor, and list8."""

TransferFields: TypeAlias = tuple[int, int, bytes, int, bool, bool, int]
"""Handle, delivery-id (NO_ID if it has none), delivery-tag, message-format, settled, more, start of the payload."""
NO_ID = -1
"""Of a frame that continues a delivery."""

DispositionFields: TypeAlias = tuple[bool, int, int, bool, DeliveryState | None]
"""Role, first, last, settled, state."""

_U32 = Struct(">I").unpack_from

_NULL_OR_NO = (b"\x40", b"\x42", b"\x56\x00")
_ANY_BOOLEAN = (*_NULL_OR_NO, b"\x41", b"\x56\x01")

# What may follow `more` in a transfer that asks for nothing special: no settle mode of its own, no state, neither
# resumed nor aborted; batchable is a hint that a receiver may ignore. The field count by the encoding of these fields.
_PLAIN_TAILS: dict[bytes, int] = {
    b"".join(tail[:count]): 6 + count
    for tail in product((b"\x40",), (b"\x40",), _NULL_OR_NO, _NULL_OR_NO, _ANY_BOOLEAN)
    for count in range(6)
}

_BOOLEANS = {0x40: False, 0x41: True, 0x42: False}
_BOOLEAN_BYTES = {0: False, 1: True}
_ROLES = {0x41: True, 0x42: False}

# What follows `last` in dispositions, by its encoding: the field count, settled and state. There is a handful of them
# in practice; the limit is for peers that encode the same fields in ever new ways.
_DISPOSITION_TAILS: dict[bytes, tuple[int, bool, DeliveryState | None]] = {}
_DISPOSITION_TAILS_MAX = 256


def read_transfer(data: bytes, start: int, end: int) -> TransferFields | None:
    """The fields of a whole transfer frame that starts with TRANSFER_MARK; None if it is uncommon."""
    try:
        payload_start = start + 5 + data[start + 4]
        count = data[start + 5]
        if count < 4 or payload_start > end:
            return None
        pos = start + 6
        code = data[pos]
        if code == 0x43:
            handle = 0
            pos += 1
        elif code == 0x52:
            handle = data[pos + 1]
            pos += 2
        elif code == 0x70:
            handle = _U32(data, pos + 1)[0]
            pos += 5
        else:
            return None
        code = data[pos]
        if code == 0x70:
            delivery_id = _U32(data, pos + 1)[0]
            pos += 5
        elif code == 0x52:
            delivery_id = data[pos + 1]
            pos += 2
        elif code == 0x43:
            delivery_id = 0
            pos += 1
        elif code == 0x40:
            delivery_id = NO_ID
            pos += 1
        else:
            return None
        code = data[pos]
        if code == 0xA0 and delivery_id != NO_ID:
            tag_start = pos + 2
            pos = tag_start + data[pos + 1]
            tag = data[tag_start:pos]
        elif code == 0x40 and delivery_id == NO_ID:
            tag = b""
            pos += 1
        else:
            return None
        code = data[pos]
        if code == 0x43 or code == 0x40:
            message_format = 0
            pos += 1
        elif code == 0x70:
            message_format = _U32(data, pos + 1)[0]
            pos += 5
        else:
            return None
        if count == 4:
            return (handle, delivery_id, tag, message_format, False, False, pos) if pos == payload_start else None
        code = data[pos]
        if code == 0x56:
            settled = _BOOLEAN_BYTES[data[pos + 1]]
            pos += 2
        else:
            settled = _BOOLEANS[code]
            pos += 1
        if count == 5:
            return (handle, delivery_id, tag, message_format, settled, False, pos) if pos == payload_start else None
        code = data[pos]
        if code == 0x56:
            more = _BOOLEAN_BYTES[data[pos + 1]]
            pos += 2
        else:
            more = _BOOLEANS[code]
            pos += 1
        if pos > payload_start or _PLAIN_TAILS.get(data[pos:payload_start]) != count:
            return None
        return handle, delivery_id, tag, message_format, settled, more, payload_start
    except (IndexError, KeyError, error):
        return None


def read_disposition(data: bytes, start: int, end: int) -> DispositionFields | None:
    """The fields of a disposition frame that starts with DISPOSITION_MARK; None if it is uncommon."""
    try:
        list_end = start + 5 + data[start + 4]
        if list_end > end or data[start + 5] < 3:
            return None
        pos = start + 6
        code = data[pos]
        if code == 0x56:
            role = _BOOLEAN_BYTES[data[pos + 1]]
            pos += 2
        else:
            role = _ROLES[code]
            pos += 1
        code = data[pos]
        if code == 0x70:
            first = _U32(data, pos + 1)[0]
            pos += 5
        elif code == 0x52:
            first = data[pos + 1]
            pos += 2
        elif code == 0x43:
            first = 0
            pos += 1
        else:
            return None
        code = data[pos]
        if code == 0x70:
            last = _U32(data, pos + 1)[0]
            pos += 5
        elif code == 0x52:
            last = data[pos + 1]
            pos += 2
        elif code == 0x40:
            last = first
            pos += 1
        elif code == 0x43:
            last = 0
            pos += 1
        else:
            return None
        tail = _DISPOSITION_TAILS.get(data[pos:list_end])
        if tail is None or tail[0] != data[start + 5]:
            tail = _learn_tail(data, start, pos, list_end)
        return role, first, last, tail[1], tail[2]
    except (IndexError, KeyError, error):
        return None


def _learn_tail(data: bytes, start: int, tail_start: int, end: int) -> tuple[int, bool, DeliveryState | None]:
    """Read the tail with the general decoder, and remember it if it is one of the few that occur again and again."""
    disposition, _ = decode_performative(data[start:end])
    assert isinstance(disposition, Disposition)
    state = disposition.state
    tail = data[start + 5], disposition.settled, state
    is_plain = state is None or isinstance(state, Accepted | Released) or state == Modified()
    if is_plain and len(_DISPOSITION_TAILS) < _DISPOSITION_TAILS_MAX:
        _DISPOSITION_TAILS[data[tail_start:end]] = tail
    return tail
