"""AMQP frames and protocol headers: bytes in, frame bounds out (AMQP 1.0 part 2, sections 2.2 and 2.3).

frame   bytes 0-3  size of the whole frame       byte 5     type: 0 AMQP, 1 SASL
        byte  4    doff: header in 4-byte words  bytes 6-7  channel (SASL: ignored)
header  "AMQP", protocol id (0 AMQP, 3 SASL), version 1 0 0

A frame is given by its bounds in the received bytes and is not cut out of them: a burst holds hundreds of
frames, and the only bytes that have to be copied are the payloads of messages.
"""

from collections.abc import Iterator
from struct import Struct
from typing import TypeAlias

from twinbus.amqp.errors import ConnectionFault

FRAME_SIZE_MIN = 512
"""Every peer has to accept frames up to this size (section 2.4.1)."""

AMQP_FRAME, SASL_FRAME, PROTOCOL_HEADER = 0, 1, -1

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"

NO_LIMIT = 1 << 62

LARGE = 8 * 1024
"""From this size on, a view costs less than a slice."""

_HEADER = Struct(">IBBH")
_HEADER_AND_MARK = Struct(">IBBHI")


Frame: TypeAlias = tuple[int, int, int, bytes, int, int]
"""Frame type, channel, mark, data, start, end: the body is data[start:end].

The mark is the body's first four bytes as a number, by which the common performatives are recognized; 0 if unknown.
"""


def encode_frame(channel: int, body: bytes, frame_type: int = AMQP_FRAME) -> bytes:
    return _HEADER.pack(len(body) + 8, 2, frame_type, channel) + body


class FrameReader:
    """Cuts received bytes into frames, and keeps what is not a whole frame yet."""

    def __init__(self, frame_size_max: int) -> None:
        assert frame_size_max >= FRAME_SIZE_MIN
        self._frame_size_max = frame_size_max
        self._rest = bytearray()
        self.unread = b""
        """Holds bytes that wait because the caller stopped early, or its share was used up: call `frames` again."""
        self._unread_start = 0
        self._wanted = 8
        self.last_start = -1
        """Frames that start later do not belong to the share of the caller of `frames`."""
        self.taken_to = 0
        """A caller that took frames behind the one that it was given says here up to where."""
        self.expects_header = True
        """The next 8 bytes are a protocol header. The connection sets this again after SASL."""

    @property
    def unread_size(self) -> int:
        """How many bytes of `unread` wait."""
        return len(self.unread) - self._unread_start if self.unread else 0

    def keep(self, data: bytes) -> None:
        """Keep bytes for a later call of `frames`; ConnectionFault if they are more than one frame may hold."""
        if self.unread:
            self._rest += self.unread[self._unread_start :]
            self.unread = b""
        self._rest += data
        if len(self._rest) > self._frame_size_max:
            raise ConnectionFault(f"{len(self._rest)} bytes arrived before this side could read them.")

    def frames(self, data: bytes, share: int = NO_LIMIT) -> Iterator[Frame]:
        """Every whole frame (a header is a frame of its own type), oldest first, that starts within `share` bytes.

        A caller that stops early gets the remaining frames from the next call. ConnectionFault for a frame over
        the limit, as soon as its size has arrived, and for a data offset outside of the frame.
        """
        pos = 0
        joined = b""  # a large frame that began in an earlier call
        if self.unread:
            # Not cut off at the position: a slice of a long read would cost as much as the whole read.
            if data:
                data = self.unread[self._unread_start :] + data
            else:
                data, pos = self.unread, self._unread_start
            self.unread = b""
        elif self._rest:
            missing = self._wanted - len(self._rest)
            # Joined once per frame and not once per chunk: chunks may be single bytes.
            if len(data) < missing:
                self._rest += data
                return
            if self._wanted >= LARGE:
                # Alone, or everything that came with its end would be copied as well.
                joined = b"".join((self._rest, memoryview(data)[:missing]))
                pos, share = missing, share - self._wanted
            else:
                data = bytes(self._rest) + data
            self._rest.clear()
        length, size_max = len(data), self._frame_size_max
        last_start = min(length - 8, pos + share - 1)
        self.taken_to = 0
        self._wanted = 8
        is_readable = True
        unpack = _HEADER_AND_MARK.unpack_from
        try:
            if joined:
                self.last_start = -1
                _, doff, frame_type, channel, mark = unpack(joined)
                yield frame_type, channel, mark if doff == 2 else 0, joined, doff * 4, len(joined)
            self.last_start = last_start
            while pos <= last_start:
                if self.expects_header:
                    self.expects_header = False
                    pos += 8
                    yield PROTOCOL_HEADER, 0, 0, data, pos - 8, pos
                    continue
                if length - pos >= 12:
                    size, doff, frame_type, channel, mark = unpack(data, pos)
                else:
                    size, doff, frame_type, channel = _HEADER.unpack_from(data, pos)
                    mark = 0
                # Checked before the body has arrived: a peer that announces 4 GiB has to
                # fail now, not once we have buffered it.
                if size > size_max:
                    raise ConnectionFault(
                        f"The peer sends a frame of {size} bytes; this side accepts at most {size_max}."
                    )
                if doff != 2:
                    mark = 0
                    if not 8 <= doff * 4 <= size:
                        raise ConnectionFault(f"A frame of {size} bytes has a data offset of {doff} words.")
                elif size < 8:
                    raise ConnectionFault(f"A frame of {size} bytes is shorter than its own header.")
                if length - pos < size:
                    self._wanted = size
                    is_readable = False
                    return
                start = pos + doff * 4
                pos += size
                yield frame_type, channel, mark, data, start, pos
                if self.taken_to > pos:
                    pos = self.taken_to
        except ConnectionFault:
            is_readable = False
            raise
        finally:
            if is_readable and length - pos >= 8:
                self.unread, self._unread_start = data, pos
            elif pos < length:
                self._rest += data if not pos else data[pos:] if length - pos < LARGE else memoryview(data)[pos:]
