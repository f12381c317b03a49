"""Transfers and dispositions as the common encodings write them: the part of the codec that runs per message.

Readers take a frame's body as borders in the received bytes. They understand a list of at most 255
bytes with fields in their usual encodings, which is what every known client sends, and return None
for everything else: the general decoder then has the word, also on what is malformed. A reader that
runs over its list's end notices at the end, since it then stands elsewhere than the size says.

Writers build the part of a frame in front of the payload with one `pack`; of a link's transfers only
size, delivery-id and delivery-tag differ.
"""

from collections.abc import Sequence
from itertools import product
from struct import Struct, error
from typing import TypeAlias

from twinbus.amqp.delivery_state import Accepted, DeliveryState, Modified, Released, encode_state
from twinbus.amqp.encode import ENCODED_NULL, encode_binary, encode_list, encode_value
from twinbus.amqp.frames import encode_frame
from twinbus.amqp.performatives import Disposition, decode_performative
from twinbus.amqp.types import UInt

TRANSFER_MARK = 0x005314C0
DISPOSITION_MARK = 0x005315C0
"""First four bytes of a body: descriptor, and list8."""

TransferFields: TypeAlias = tuple[int, int, bytes, int, bool, bool, int]
"""Handle, delivery-id, delivery-tag, message-format, settled, more, start of the payload."""

DispositionFields: TypeAlias = tuple[bool, int, int, bool, DeliveryState | None]
"""Role, first, last, settled, state."""

_U32 = Struct(">I").unpack_from

_NULL_OR_NO = (b"\x40", b"\x42", b"\x56\x00")
_ANY_BOOLEAN = (*_NULL_OR_NO, b"\x41", b"\x56\x01")

# What may follow `more` in a transfer that wants nothing special: no settle mode of its own, no
# state, neither resumed nor aborted; batchable is a hint that we need not take. By encoding, the field count.
_PLAIN_TAILS: dict[bytes, int] = {
    b"".join(tail[:count]): 6 + count
    for tail in product((b"\x40",), (b"\x40",), _NULL_OR_NO, _NULL_OR_NO, _ANY_BOOLEAN)
    for count in range(6)
}

_BOOLEANS = {0x40: False, 0x41: True, 0x42: False}
_BOOLEAN_BYTES = {0: False, 1: True}
_ROLES = {0x41: True, 0x42: False}

# What follows `last` in dispositions, by its encoding: the field count, settled and state. A handful
# in practice; the bound is for peers that write the same things in ever new ways.
_DISPOSITION_TAILS: dict[bytes, tuple[int, bool, DeliveryState | None]] = {}
_DISPOSITION_TAILS_MAX = 256


def read_transfer(data: bytes, start: int, end: int) -> TransferFields | None:
    """The fields of a whole first transfer frame that starts with TRANSFER_MARK; None if it is uncommon."""
    try:
        payload_start = start + 5 + data[start + 4]
        count = data[start + 5]
        if count < 5 or payload_start > end:
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
        else:
            return None
        if data[pos] != 0xA0:
            return None
        tag_start = pos + 2
        pos = tag_start + data[pos + 1]
        tag = data[tag_start:pos]
        code = data[pos]
        if code == 0x43 or code == 0x40:
            message_format = 0
            pos += 1
        elif code == 0x70:
            message_format = _U32(data, pos + 1)[0]
            pos += 5
        else:
            return None
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
        if (pos != payload_start or count != 6) and _PLAIN_TAILS.get(data[pos:payload_start]) != count:
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
    """Read by the general decoder, and kept if it is one of the few that come again and again."""
    disposition, _ = decode_performative(data[start:end])
    assert isinstance(disposition, Disposition)
    state = disposition.state
    tail = data[start + 5], disposition.settled, state
    is_plain = state is None or isinstance(state, Accepted | Released) or state == Modified()
    if is_plain and len(_DISPOSITION_TAILS) < _DISPOSITION_TAILS_MAX:
        _DISPOSITION_TAILS[data[tail_start:end]] = tail
    return tail


def encode_disposition(
    channel: int, role: bool, first: int, last: int, settled: bool, state: DeliveryState | None
) -> bytes:
    encoded_state = ENCODED_NULL if state is None else encode_state(state)
    role_code, settled_code = 0x41 if role else 0x42, 0x41 if settled else 0x42
    if len(encoded_state) < 200:
        size = len(encoded_state)
        # Field by field: frame header, descriptor and list8, role, first, last, settled; the state behind.
        return (
            _DISPOSITION_HEAD.pack(
                26 + size,
                2,
                0,
                channel,
                DISPOSITION_MARK,
                13 + size,
                5,
                role_code,
                0x70,
                first,
                0x70,
                last,
                settled_code,
            )
            + encoded_state
        )
    fields = [bytes((role_code,)), encode_value(UInt(first)), encode_value(UInt(last)), bytes((settled_code,))]
    return encode_frame(channel, b"\x00\x53\x15" + encode_list([*fields, encoded_state]))


_DISPOSITION_HEAD = Struct(">IBBHIBBBBIBIB")


class TransferWriter:
    """Writes the transfers of one outgoing link, split into frames that the peer takes.

    Frames come as pairs of parts, head and payload, one behind the other: whoever sends them joins
    them once with everything else.
    """

    def __init__(self, channel: int, handle: int, frame_size_max: int) -> None:
        self._channel = channel
        self._handle = encode_value(UInt(handle))
        self._frame_size_max = frame_size_max
        self._heads: dict[tuple[int, bool], tuple[Struct, bytes, bytes, bytes]] = {}

    def write_all(self, first_id: int, deliveries: Sequence[tuple[bytes, bytes]], settled: bool) -> list[bytes]:
        """Parts for (tag, payload) pairs with ids from `first_id` on."""
        parts: list[bytes] = []
        delivery_id = first_id
        size_max = self._frame_size_max
        tag_size, overhead = -1, 0
        for tag, payload in deliveries:
            if len(tag) != tag_size:
                tag_size = len(tag)
                head, front, tag_mark, back = self._head(tag_size, settled)
                pack, overhead = head.pack, head.size
            size = overhead + len(payload)
            if size <= size_max:
                parts += (pack(size, front, delivery_id, tag_mark, tag, back), payload)
            else:
                parts += self.write(delivery_id, tag, payload, 0, settled, None)
            delivery_id = (delivery_id + 1) & 0xFFFFFFFF
        return parts

    def write(
        self,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        message_format: int,
        settled: bool,
        state: DeliveryState | None,
    ) -> list[bytes]:
        """Parts for one delivery of any size, format and state."""
        flag = b"\x41" if settled else b"\x42"
        fields = [
            self._handle,
            encode_value(UInt(delivery_id)),
            encode_binary(tag),
            encode_value(UInt(message_format)),
            flag,
        ]
        last_fields = [b"\x42"] if state is None else [b"\x42", ENCODED_NULL, encode_state(state)]
        if len(payload) + 24 + sum(map(len, fields)) + sum(map(len, last_fields)) <= self._frame_size_max:
            return self._frame([*fields, *last_fields], payload)
        more_fields = [b"\x41", *last_fields[1:]]
        # Continuations omit delivery-id and delivery-tag, both: one client fails where only one is repeated.
        rest = [self._handle, ENCODED_NULL, ENCODED_NULL, ENCODED_NULL, flag]
        room = self._frame_size_max - 24 - sum(map(len, fields)) - sum(map(len, more_fields))
        assert room > 0, "delivery-tag and state fill a frame of the peer"
        parts = self._frame([*fields, *more_fields], payload[:room])
        pos = room
        room = self._frame_size_max - 32
        while len(payload) - pos > room:
            parts += self._frame([*rest, b"\x41"], payload[pos : pos + room])
            pos += room
        return parts + self._frame([*rest, b"\x42"], payload[pos:])

    def _frame(self, fields: list[bytes], payload: bytes) -> list[bytes]:
        performative = b"\x00\x53\x14" + encode_list(fields)
        return [_FRAME_HEAD.pack(8 + len(performative) + len(payload), 2, 0, self._channel) + performative, payload]

    def _head(self, tag_size: int, settled: bool) -> tuple[Struct, bytes, bytes, bytes]:
        """How to pack the head for tags of this size: size, front, delivery-id, tag mark, tag, back."""
        found = self._heads.get((tag_size, settled))
        if found is None:
            tag_mark = encode_binary(bytes(tag_size))[:-tag_size] if tag_size else b"\xa0\x00"
            # message-format 0 is explicit: the JavaScript SDK leaves messages without it undecoded.
            back = b"\x43" + (b"\x41" if settled else b"\x42")
            list_size = 1 + len(self._handle) + 5 + len(tag_mark) + tag_size + len(back)
            assert list_size < 256, "a delivery-tag has at most 32 bytes"
            front = _FRONT.pack(2, 0, self._channel, TRANSFER_MARK, list_size, 5) + self._handle + b"\x70"
            head = Struct(f">I{len(front)}sI{len(tag_mark)}s{tag_size}s{len(back)}s")
            found = self._heads[tag_size, settled] = (head, front, tag_mark, back)
        return found


_FRAME_HEAD = Struct(">IBBH")
_FRONT = Struct(">BBHIBB")
