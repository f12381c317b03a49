"""What the handshake, the sessions and the links of one connection share: settings, frames to write, events to report, budgets."""

from dataclasses import dataclass, field
from typing import Protocol

from twinbus.amqp.codec.composites import Composite, encode_composite
from twinbus.amqp.codec.frames import FRAME_SIZE_MIN, encode_frame
from twinbus.amqp.codec.transfer_writer import Part
from twinbus.amqp.connection_settings import ConnectionSettings
from twinbus.amqp.events import Reports
from twinbus.amqp.reassembly import ReassemblyBudget, SharedReassembly
from twinbus.amqp.windows import HeldTotal

PIECE_SIZE_MIN = 16 * 1024
"""To copy less costs less than a piece of its own."""


class Flushable(Protocol):
    def flush(self) -> None: ...


class Outbox:
    """Frames that wait to be written: parts in, one piece of bytes out.

    A session holds its newest disposition back for a moment, because the next one often extends its
    range. It registers here, and is flushed before the bytes are taken.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.frame_size_max = FRAME_SIZE_MIN
        """The largest frame that the peer accepts; known once it has opened."""
        self._unflushed: dict[Flushable, None] = {}

    def send(self, channel: int, performative: Composite) -> None:
        self.parts.append(encode_frame(channel, encode_composite(performative)))

    def flush_later(self, dispositions: Flushable) -> None:
        self._unflushed[dispositions] = None

    def take(self) -> bytes:
        """Everything since the last call, b"" if that is nothing."""
        if self._unflushed:
            self._flush()
        if not self.parts:
            return b""
        data = b"".join(self.parts)
        # Cleared and not replaced: sessions hold references to the list.
        self.parts.clear()
        return data

    def take_pieces(self) -> list[Part]:
        """The same in pieces: what is large is not copied, and everything else between two large parts is joined."""
        if self._unflushed:
            self._flush()
        pieces: list[Part] = []
        parts, start = self.parts, 0
        for position, part in enumerate(parts):
            if len(part) >= PIECE_SIZE_MIN:
                if position > start:
                    pieces.append(b"".join(parts[start:position]))
                pieces.append(part)
                start = position + 1
        if start < len(parts):
            pieces.append(b"".join(parts[start:]))
        parts.clear()
        return pieces

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, {}
        for dispositions in unflushed:
            dispositions.flush()


@dataclass(slots=True)
class Inflow:
    """Deliveries that wait for the application, counted so that reading can pause.

    Credit cannot bound what a sender sends, because one SDK ignores it. The socket can: the server stops
    reading while `is_flooded` holds, and TCP slows the sender down.
    """

    count_max: int
    size_max: int
    count: int = 0
    size: int = 0
    is_flooded: bool = False

    def received(self, count: int, size: int) -> None:
        self.count += count
        self.size += size
        if self.count > self.count_max or self.size > self.size_max:
            self.is_flooded = True

    def settled(self, count: int) -> None:
        """Sizes are not kept per delivery: those that leave are assumed to be of average size."""
        count = min(count, self.count)
        if count:
            self.size -= self.size * count // self.count
            self.count -= count
        # Half of the limit, so that reading does not stop and start for every message.
        if self.is_flooded and self.count <= self.count_max // 2 and self.size <= self.size_max // 2:
            self.is_flooded = False


@dataclass(slots=True)
class ConnectionContext:
    settings: ConnectionSettings
    inflow: Inflow
    reassembly: ReassemblyBudget
    outbox: Outbox = field(default_factory=Outbox)
    reports: Reports = field(default_factory=Reports)
    held_total: HeldTotal = field(default_factory=HeldTotal)
    link_count: int = 0
    link_count_max: int = 0
    session_count_max: int = 0

    @classmethod
    def of(cls, settings: ConnectionSettings, shared: SharedReassembly | None) -> "ConnectionContext":
        context = cls(
            settings,
            Inflow(settings.inflow_count_max, settings.inflow_size_max),
            ReassemblyBudget(settings.reassembly_size_max, shared),
        )
        context.trust()
        return context

    def restrain(self) -> None:
        """The peer is a stranger: enough for it to prove who it is."""
        settings = self.settings
        self.reassembly.size_max = min(settings.reassembly_size_max, settings.stranger_size_max)
        self.link_count_max = min(settings.link_count_max, settings.stranger_link_count_max)
        self.session_count_max = min(settings.channel_max + 1, settings.stranger_session_count_max)

    def trust(self) -> None:
        settings = self.settings
        self.reassembly.size_max = max(self.reassembly.size_max, settings.reassembly_size_max)
        self.link_count_max = settings.link_count_max
        self.session_count_max = settings.channel_max + 1
