"""Transfers and dispositions: fields in, frames out, for every single message (AMQP 1.0 part 2, sections 2.7.5 and 2.7.6).

Everything in front of the payload is built with one `pack`, because the transfers of a link differ in size,
delivery-id and delivery-tag only. All fields are written, as in every composite: clients find the payload of a
transfer behind its eleventh field.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, TypeAlias

from twinbus.amqp.codec.delivery_state import DeliveryState, encode_state
from twinbus.amqp.codec.encode import ENCODED_NULL, encode_binary, encode_list, encode_value
from twinbus.amqp.codec.frames import encode_frame
from twinbus.amqp.codec.transfer_reader import DISPOSITION_MARK, TRANSFER_MARK
from twinbus.amqp.codec.types import UInt

Part: TypeAlias = bytes | memoryview
"""A frame, a part of one, or several: what is sent is joined from these."""


class FrontedPayload(NamedTuple):
    """A large payload whose beginning was made for this delivery: the rest is sent from where it is."""

    front: bytes
    rest: memoryview

    @property
    def size(self) -> int:
        return len(self.front) + len(self.rest)


Payload: TypeAlias = bytes | FrontedPayload


_DISPOSITION_HEAD = Struct(">IBBHIBBBBIBIB")
_FRAME_HEAD = Struct(">IBBH")
_FRONT = Struct(">BBHIBB")

_YES, _NO = b"\x41", b"\x42"
_HEAD_SIZE_MAX = 8 + 3 + 9
"""Frame header, descriptor and the head of a list: what a transfer has in front of its fields."""

# The last fields of a transfer: rcv-settle-mode and state, then resume, aborted and batchable.
_NEITHER_RESUMED_NOR_ABORTED = [_NO, _NO, _NO]
_NO_STATE = [ENCODED_NULL, ENCODED_NULL, *_NEITHER_RESUMED_NOR_ABORTED]


def encode_disposition(
    channel: int, role: bool, first: int, last: int, settled: bool, state: DeliveryState | None
) -> bytes:
    encoded_state = ENCODED_NULL if state is None else encode_state(state)
    role_code, settled_code = 0x41 if role else 0x42, 0x41 if settled else 0x42
    if len(encoded_state) < 200:
        size = len(encoded_state)
        # Field by field: frame header, descriptor and list8, role, first, last, settled; then state and batchable.
        return (
            _DISPOSITION_HEAD.pack(
                27 + size,
                2,
                0,
                channel,
                DISPOSITION_MARK,
                14 + size,
                6,
                role_code,
                0x70,
                first,
                0x70,
                last,
                settled_code,
            )
            + encoded_state
            + _NO
        )
    fields = [bytes((role_code,)), encode_value(UInt(first)), encode_value(UInt(last)), bytes((settled_code,))]
    return encode_frame(channel, b"\x00\x53\x15" + encode_list([*fields, encoded_state, _NO]))


class TransferWriter:
    """Writes the transfers of one outgoing link, split into frames that the peer accepts.

    Each frame is two parts, head (with the front of a payload that has one) and payload, one after the other in a flat list:
    the caller joins them once with everything else that is to be sent, or writes them in one call.
    """

    def __init__(self, channel: int, handle: int, frame_size_max: int) -> None:
        self._channel = channel
        self._handle = encode_value(UInt(handle))
        self._frame_size_max = frame_size_max
        self._heads: dict[tuple[int, bool], tuple[Struct, bytes, bytes, bytes]] = {}

    def write_all(self, first_id: int, deliveries: Sequence[tuple[bytes, Payload]], settled: bool) -> list[Part]:
        """Parts for (tag, payload) pairs with ids from `first_id` on."""
        parts: list[Part] = []
        delivery_id = first_id
        size_max = self._frame_size_max
        tag_size, overhead = -1, 0
        for tag, payload in deliveries:
            if len(tag) != tag_size:
                tag_size = len(tag)
                head, front, tag_mark, back = self._head(tag_size, settled)
                pack, overhead = head.pack, head.size
            size = overhead + (payload.size if isinstance(payload, FrontedPayload) else len(payload))
            if size > size_max:
                parts += self.write(delivery_id, tag, payload, 0, settled, None)
            elif isinstance(payload, FrontedPayload):
                parts += (pack(size, front, delivery_id, tag_mark, tag, back) + payload.front, payload.rest)
            else:
                parts += (pack(size, front, delivery_id, tag_mark, tag, back), payload)
            delivery_id = (delivery_id + 1) & 0xFFFFFFFF
        return parts

    def write(
        self,
        delivery_id: int,
        tag: bytes,
        payload: Payload,
        message_format: int,
        settled: bool,
        state: DeliveryState | None,
    ) -> list[Part]:
        """Parts for one delivery of any size, format and state."""
        flag = _YES if settled else _NO
        fields = [
            self._handle,
            encode_value(UInt(delivery_id)),
            encode_binary(tag),
            encode_value(UInt(message_format)),
            flag,
        ]
        last_fields = _NO_STATE
        if state is not None:
            last_fields = [ENCODED_NULL, encode_state(state), *_NEITHER_RESUMED_NOR_ABORTED]
        room = self._frame_size_max - _HEAD_SIZE_MAX - sum(map(len, [*fields, _NO, *last_fields]))
        front, view = payload if isinstance(payload, FrontedPayload) else (b"", memoryview(payload))
        if len(front) > room:
            front, view = b"", memoryview(front + view)
        if len(front) + len(view) <= room:
            return self._frame([*fields, _NO, *last_fields], view, front)
        assert room > 0, "delivery-tag and state leave no room for a payload in the frames that the peer accepts"
        pos = room - len(front)
        parts = self._frame([*fields, _YES, *last_fields], view[:pos], front)
        # Continuations omit both delivery-id and delivery-tag: one client fails if only one of them is repeated.
        rest = [self._handle, ENCODED_NULL, ENCODED_NULL, ENCODED_NULL, flag]
        room = self._frame_size_max - _HEAD_SIZE_MAX - sum(map(len, [*rest, _YES, *_NO_STATE]))
        # All but the last are alike, and there may be two hundred thousand.
        head = self._frame([*rest, _YES, *_NO_STATE], view[:room])[0]
        while len(view) - pos > room:
            parts.append(head)
            parts.append(view[pos : pos + room])
            pos += room
        return parts + self._frame([*rest, _NO, *_NO_STATE], view[pos:])

    def _frame(self, fields: list[bytes], payload: Part, front: bytes = b"") -> list[Part]:
        head = b"\x00\x53\x14" + encode_list(fields) + front
        return [_FRAME_HEAD.pack(8 + len(head) + len(payload), 2, 0, self._channel) + head, payload]

    def _head(self, tag_size: int, settled: bool) -> tuple[Struct, bytes, bytes, bytes]:
        """How to pack the head for tags of this size: the struct of (size, front, delivery-id, tag mark, tag, back), and its constants."""
        found = self._heads.get((tag_size, settled))
        if found is None:
            tag_mark = encode_binary(bytes(tag_size))[:-tag_size] if tag_size else b"\xa0\x00"
            # message-format 0 is explicit: the JavaScript SDK leaves messages without it undecoded.
            back = b"".join([b"\x43", _YES if settled else _NO, _NO, *_NO_STATE])
            list_size = 1 + len(self._handle) + 5 + len(tag_mark) + tag_size + len(back)
            assert list_size < 256, "a delivery-tag has at most 32 bytes"
            front = _FRONT.pack(2, 0, self._channel, TRANSFER_MARK, list_size, 11) + self._handle + b"\x70"
            head = Struct(f">I{len(front)}sI{len(tag_mark)}s{tag_size}s{len(back)}s")
            found = self._heads[tag_size, settled] = (head, front, tag_mark, back)
        return found
