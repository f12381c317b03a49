"""Frames like the one before them: bounds in the received bytes in, shapes out (AMQP 1.0 part 2, sections 2.7.5 and 2.7.6).

The transfers of a link differ in size, delivery-id, delivery-tag and payload, and the dispositions of a receiver in their
ids; everything else is the same from frame to frame:

    transfer      size | front                                 | delivery-id | A0 length | tag | back          | payload
                       | header … list, handle, 70             |             |           |     | format … list |
    disposition   front                                | first | 70 | last | back
                  size, header … list, role, 70        |       |           | settled, state …

So when a frame was read field by field (`transfer_reader`), its shape is remembered, and those that follow it are compared
with it: one `unpack`, and a comparison for each constant part. Whatever differs is read field by field again. Only ids of
four bytes have a shape: shorter ones are rare once a link has been in use for a while.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

_FRAME_HEADER = 8
UINT_CODE, _BINARY8 = 0x70, 0xA0
_HANDLE_SIZES = {0x43: 1, 0x52: 2, 0x70: 5}
_ROLE_SIZES = {0x41: 1, 0x42: 1, 0x56: 2}

Unpack = Callable[[bytes, int], tuple[Any, ...]]


class TransferShape(NamedTuple):
    unpack: Unpack
    """Size, front, delivery-id, tag mark, tag, back."""
    head_size: int
    front: bytes
    tag_mark: bytes
    back: bytes


class DispositionShape(NamedTuple):
    unpack: Unpack
    """Front, first, code of last, last, back."""
    size: int
    front: bytes
    back: bytes


def transfer_shape(data: bytes, start: int, payload_start: int) -> TransferShape | None:
    """Of a transfer that `read_transfer` understood, whose body starts at `start`; None if it has none."""
    pos = start + 6 + _HANDLE_SIZES[data[start + 6]]
    if data[pos] != UINT_CODE or data[pos + 5] != _BINARY8:
        return None
    frame, tag_start = start - _FRAME_HEADER, pos + 7
    front, tag_mark = data[frame + 4 : pos + 1], data[pos + 5 : tag_start]
    back = data[tag_start + tag_mark[1] : payload_start]
    struct = _struct(f">I{len(front)}sI2s{tag_mark[1]}s{len(back)}s")
    return TransferShape(struct.unpack_from, struct.size, front, tag_mark, back)


def disposition_shape(data: bytes, start: int, end: int) -> DispositionShape | None:
    """Of a disposition that `read_disposition` understood, with its body from `start` to `end`; None if it has none."""
    pos = start + 6 + _ROLE_SIZES[data[start + 6]]
    if data[pos] != UINT_CODE or data[pos + 5] != UINT_CODE:
        return None
    front, back = data[start - _FRAME_HEADER : pos + 1], data[pos + 10 : end]
    struct = _struct(f">{len(front)}sIBI{len(back)}s")
    return DispositionShape(struct.unpack_from, struct.size, front, back)


@lru_cache(maxsize=256)
def _struct(layout: str) -> Struct:
    return Struct(layout)
