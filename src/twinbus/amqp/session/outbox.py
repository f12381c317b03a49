"""Frames that wait to be written: parts in, one piece of bytes out.

Sessions keep the disposition that was made last for a moment, since the next one often extends its
range. They register here, and are flushed before the bytes are taken.
"""

from typing import Protocol

from twinbus.amqp.codec.composites import Composite, encode_composite
from twinbus.amqp.codec.frames import FRAME_SIZE_MIN, encode_frame


class Flushable(Protocol):
    def flush(self) -> None: ...


class Outbox:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.frame_size_max = FRAME_SIZE_MIN
        """The largest frame that the peer takes; known once it has opened."""
        self._unflushed: dict[Flushable, None] = {}

    def send(self, channel: int, performative: Composite) -> None:
        self.parts.append(encode_frame(channel, encode_composite(performative)))

    def flush_later(self, settlement: Flushable) -> None:
        self._unflushed[settlement] = None

    def take(self) -> bytes:
        """Everything since the last call, b"" if that is nothing."""
        if self._unflushed:
            unflushed, self._unflushed = self._unflushed, {}
            for settlement in unflushed:
                settlement.flush()
        if not self.parts:
            return b""
        data = b"".join(self.parts)
        # Cleared and not replaced: sessions hold on to the list.
        self.parts.clear()
        return data
