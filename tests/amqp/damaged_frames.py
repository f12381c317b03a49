"""Frames that no client would send: frames of a conversation in, damaged ones out.

Bits, bytes, lengths, types and fields are changed, or a performative comes with fields of any type; some frames stay as they are,
so that others get deeper. A seed decides everything.
"""

import os
from collections.abc import Collection
from random import Random
from typing import NamedTuple

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.frames import AMQP_FRAME, EMPTY_FRAME, SASL_FRAME, encode_frame
from twinbus.amqp.codec.performatives import Close, decode_performative
from twinbus.amqp.codec.sasl import decode_sasl
from twinbus.amqp.codec.types import Byte, Described, Short, Symbol, Timestamp, UByte, UInt, ULong, UShort, Value

FRAME_BYTES_MAX = 4_096
"""Longer ones of the conversation are left out."""
WHOLE = 0.4
"""Part of the frames that is not damaged."""

# Constructors of the type system, and the bytes at the borders of numbers.
BYTES = bytes.fromhex("00 01 40 41 42 43 44 45 50 53 54 56 60 70 71 80 83 a0 a1 a3 b0 b1 b3 c0 c1 d0 d1 e0 f0 7f fe ff")
FIELDS: list[Value] = [
    None,
    True,
    False,
    UInt(0),
    UInt(1),
    UInt(0xFFFFFFFF),
    ULong(0xFFFFFFFFFFFFFFFF),
    -1,
    1 << 62,
    0.5,
    "",
    "orders",
    "orders/$management",
    "x" * 300,
    b"",
    b"\x00" * 32,
    Symbol("amqp:accepted:list"),
    Timestamp(-1),
    [],
    [None] * 20,
    {},
    {Symbol("a"): {Symbol("b"): [1, 2, 3]}},
    *[
        Described(ULong(code), [None] * 3)
        for code in (0x1D, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x30, 0x33, 0x34)
    ],
]
OPEN, BEGIN, END, CLOSE = 0x10, 0x11, 0x17, 0x18
SASL = range(0x40, 0x45)
NUMBER_MASKS: dict[type, int] = {
    UByte: 0xFF,
    UShort: 0xFFFF,
    UInt: 0xFFFFFFFF,
    ULong: 0xFFFFFFFF,
    Byte: 0x7F,
    Short: 0x7FFF,
}
PERFORMATIVES = (*range(OPEN, CLOSE + 1), *SASL, 0x77)


def split_frames(stream: bytes) -> list[bytes]:
    """Frames and protocol headers of what one side said; what is left if a size is wrong."""
    found, pos = [], 0
    while pos < len(stream):
        size = 8 if stream.startswith(b"AMQP", pos) else max(8, int.from_bytes(stream[pos : pos + 4]))
        found.append(stream[pos : pos + size])
        pos += size
    return found


class _Spoken(NamedTuple):
    """A frame of the conversation, taken apart."""

    channel: int
    kind: int
    code: int
    fields: list[Value]
    payload: bytes


class Damager:
    """Draws frames, most of them damaged. Whole frames that begin or end something are left out: a second one ends the connection."""

    def __init__(
        self, frames: list[bytes], random: Random, left_out: Collection[int] = (OPEN, BEGIN, END, CLOSE, *SASL)
    ) -> None:
        usable = [frame for frame in frames if 8 < len(frame) <= FRAME_BYTES_MAX]
        spoken = {frame: _taken_apart(frame) for frame in usable}
        self._random = random
        self._frames = usable + [frame for frame in frames if len(frame) == 8]
        self._harmless = [frame for frame in usable if spoken[frame].code not in left_out]
        self._spoken = [spoken[frame] for frame in self._harmless]
        ways = {
            self._flip: 4,
            self._place: 4,
            self._field: 12,
            self._cut: 1,
            self._insert: 1,
            self._delete: 1,
            self._splice: 2,
            self._header: 4,
            self._lie: 1,
            self._typed: 2,
        }
        self._ways = [way for way, count in ways.items() for _ in range(count)]

    def draw(self) -> bytes:
        random = self._random
        chance = random.random()
        if chance < WHOLE:
            return random.choice(self._harmless)
        frame = random.choice(self._frames if chance > 0.95 else self._harmless)
        return random.choice(self._ways)(frame) if len(frame) >= 12 else frame

    def _field(self, _: bytes) -> bytes:
        """One field of another type or value."""
        random = self._random
        channel, kind, code, fields, payload = random.choice(self._spoken)
        fields = list(fields)
        if fields:
            place = random.randrange(len(fields))
            value = random.choice(FIELDS)
            if random.random() < 0.5 and isinstance(fields[place], int):
                value = _like(fields[place], random.choice((0, 1, 2, 100, 0x7FFFFFFF, 0xFFFFFFFF)))
            fields[place] = value
        return encode_frame(channel, encode_value(Described(ULong(code), fields)) + payload, kind)

    def _flip(self, frame: bytes) -> bytes:
        data = bytearray(frame)
        data[self._random.randrange(8, len(data))] ^= 1 << self._random.randrange(8)
        return bytes(data)

    def _place(self, frame: bytes) -> bytes:
        data = bytearray(frame)
        data[self._random.randrange(8, len(data))] = self._random.choice(BYTES)
        return bytes(data)

    def _cut(self, frame: bytes) -> bytes:
        return _sized(frame[: self._random.randrange(8, len(frame))])

    def _insert(self, frame: bytes) -> bytes:
        at, count = self._random.randrange(8, len(frame)), self._random.randrange(1, 9)
        return _sized(frame[:at] + self._random.randbytes(count) + frame[at:])

    def _delete(self, frame: bytes) -> bytes:
        at = self._random.randrange(8, len(frame))
        return _sized(frame[:at] + frame[at + self._random.randrange(1, 9) :])

    def _splice(self, frame: bytes) -> bytes:
        other = self._random.choice(self._frames)
        return _sized(frame[: self._random.randrange(8, len(frame))] + other[self._random.randrange(len(other)) :])

    def _header(self, frame: bytes) -> bytes:
        data = bytearray(frame)
        data[self._random.choice((4, 5, 6, 7, 7, 7))] = self._random.choice((0, 1, 2, 3, 4, 255))
        return bytes(data)

    def _lie(self, frame: bytes) -> bytes:
        """A size that is not that of the frame: what follows it is taken for something else."""
        if self._random.random() < 0.9:
            return frame
        size = self._random.choice((0, 7, 8, len(frame) - 1, len(frame) + 1, 65_537, 1 << 31))
        return size.to_bytes(4) + frame[4:]

    def _typed(self, frame: bytes) -> bytes:
        """A performative in the right form with fields of any type."""
        random = self._random
        fields = random.choices(FIELDS, k=random.randrange(15))
        body = encode_value(Described(ULong(random.choice(PERFORMATIVES)), fields))
        kind = SASL_FRAME if random.random() < 0.05 else AMQP_FRAME
        return encode_frame(random.choice((0, 0, 1, 2, 4_999)), body + frame[8 : random.choice((8, 40))], kind)


def _taken_apart(frame: bytes) -> _Spoken:
    value, end = decode_value(frame, 8)
    assert isinstance(value, Described)
    assert isinstance(value.value, list)
    return _Spoken(int.from_bytes(frame[6:8]), frame[5], int(value.descriptor), value.value, frame[end:])


def _like(value: Value, number: int) -> Value:
    """A number of the same type, or what fits into it."""
    if isinstance(value, bool):
        return bool(number & 1)
    kind = type(value)
    assert issubclass(kind, int)
    return kind(number & NUMBER_MASKS.get(kind, 0x7FFFFFFF))


def _sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4) + frame[4:]


def check_answer(answer: bytes) -> None:
    """Our own words stay well-formed, and a close names what was wrong."""
    for frame in split_frames(answer):
        if frame.startswith(b"AMQP") or frame == EMPTY_FRAME:
            continue
        assert len(frame) == int.from_bytes(frame[:4])
        if frame[5] == SASL_FRAME:
            decode_sasl(frame[8:])
            continue
        said, _ = decode_performative(frame[8:])
        if isinstance(said, Close) and said.error is not None:
            assert said.error.condition
            assert said.error.description


def memory_kb() -> int:
    """Of this process; 0 where the system does not say."""
    if not os.path.exists("/proc/self/statm"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
