"""Two real connections joined by a wire in memory, so that every test exercises both roles.

`Wire.run` carries bytes back and forth until both sides are silent, in chunks of a chosen size. The
events of each side are kept, in order, until they are asked for. `Script` is for what no connection of
ours would say: one real connection, and a peer that speaks frame by frame.
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from twinbus.amqp.codec.composites import encode_composite
from twinbus.amqp.codec.frames import AMQP_FRAME, AMQP_HEADER, FrameReader, encode_frame
from twinbus.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Flow,
    Open,
    Performative,
    decode_performative,
)
from twinbus.amqp.codec.sasl import SaslCode
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.amqp.events import Event, LinkAttached, LinkOpened, Opened, SaslInit, SessionBegun
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.link import Link
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.session import Session

E = TypeVar("E")

NOON = 1_800_000_000_000


@dataclass
class End:
    """One side of the wire: a connection, and what it reported."""

    connection: Connection
    events: list[Event] = field(default_factory=list)
    sent: bytes = b""
    """Everything this side ever wrote."""

    def take(self, kind: type[E]) -> list[E]:
        """The events of one kind, which are then gone."""
        found: list[E] = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found

    def only(self, kind: type[E]) -> E:
        (event,) = self.take(kind)
        return event


class Wire:
    def __init__(
        self, client: dict[str, Any] | None = None, server: dict[str, Any] | None = None, chunk_size: int = 1 << 20
    ) -> None:
        self.now = NOON
        self.chunk_size = chunk_size
        self.client = End(
            Connection(Role.CLIENT, ConnectionSettings(container_id="client", hostname="here", **(client or {})), NOON)
        )
        self.server = End(Connection(Role.SERVER, ConnectionSettings(container_id="server", **(server or {})), NOON))
        self.sasl_code = SaslCode.OK

    def open(self) -> "Wire":
        self.client.connection.open()
        self.run()
        return self

    def run(self) -> None:
        while self._carry(self.client, self.server) or self._carry(self.server, self.client):
            pass

    def _carry(self, source: End, sink: End) -> bool:
        data = source.connection.data_to_send()
        source.sent += data
        for pos in range(0, len(data), self.chunk_size):
            self.feed(sink, data[pos : pos + self.chunk_size])
        return bool(data)

    def feed(self, sink: End, data: bytes) -> None:
        events = sink.connection.receive_data(data, self.now)
        while events:
            sink.events += events
            init = [event for event in events if isinstance(event, SaslInit)]
            events = sink.connection.sasl_outcome(self.sasl_code) if init else []

    def session(self) -> tuple[Session, Session]:
        """A session from the client: its client end and its server end."""
        session = self.client.connection.begin()
        self.run()
        assert self.client.only(SessionBegun).session is session
        return session, self.server.only(SessionBegun).session

    def client_sender(
        self, session: Session, name: str = "sender", credit: int = 100, **accept: Any
    ) -> tuple[OutgoingLink, IncomingLink]:
        """A link on which the client sends, attached and with credit: its client end and its server end."""
        ours = session.attach(name, is_sender=True, source=Source(address="me"), target=Target(address="queue"))
        self.run()
        theirs = self.server.only(LinkAttached).link
        assert isinstance(theirs, IncomingLink)
        theirs.accept(credit=credit, **accept)
        self.run()
        assert self.client.only(LinkOpened).link is ours
        assert isinstance(ours, OutgoingLink)
        return ours, theirs

    def client_receiver(
        self, session: Session, name: str = "receiver", credit: int = 100
    ) -> tuple[IncomingLink, OutgoingLink]:
        """A link on which the client receives, attached and with credit: its client end and its server end."""
        ours = session.attach(name, is_sender=False, source=Source(address="queue"), target=Target(address="me"))
        self.run()
        theirs = self.server.only(LinkAttached).link
        assert isinstance(theirs, OutgoingLink)
        theirs.accept()
        self.run()
        assert self.client.only(LinkOpened).link is ours
        assert isinstance(ours, IncomingLink)
        if credit:
            ours.grant(credit)
            self.run()
        return ours, theirs


def frames_in(data: bytes) -> list[tuple[int, Performative, bytes]]:
    """(channel, performative, payload) of every AMQP frame in `data` that has a body."""
    reader = FrameReader(1 << 24)
    reader.expects_header = False
    found = []
    for frame_type, channel, _, whole, start, end in reader.frames(data):
        if frame_type == AMQP_FRAME and end > start:
            performative, payload_start = decode_performative(whole[start:end])
            found.append((channel, performative, whole[start + payload_start : end]))
    return found


class Script:
    """A peer that says exactly what the test says, to a real connection in the server role."""

    def __init__(self, **server: Any) -> None:
        self.end = End(Connection(Role.SERVER, ConnectionSettings(container_id="server", **server), NOON))
        self.connection = self.end.connection
        self.now = NOON

    def open(self, **fields: Any) -> "Script":
        self.feed(AMQP_HEADER)
        self.say(Open(container_id="peer", **fields))
        self.end.only(Opened)
        self.raw()
        return self

    def begin(self, channel: int = 0, **fields: Any) -> Session:
        numbers = {"next_outgoing_id": 0, "incoming_window": 1000, "outgoing_window": 1000}
        self.say(Begin(**(numbers | fields)), channel=channel)
        return self.end.only(SessionBegun).session

    def attach(self, handle: int = 0, *, role: bool, channel: int = 0, **fields: Any) -> Link:
        given: dict[str, Any] = {"source": Source(address="a"), "target": Target(address="b")}
        self.say(Attach(name=f"link-{handle}", handle=handle, role=role, **(given | fields)), channel=channel)
        return self.end.only(LinkAttached).link

    def sender(self, handle: int = 0, credit: int = 100, **accept: Any) -> IncomingLink:
        link = self.attach(handle, role=SENDER)
        assert isinstance(link, IncomingLink)
        link.accept(credit=credit, **accept)
        self.raw()
        return link

    def receiver(self, handle: int = 0, credit: int = 100) -> OutgoingLink:
        link = self.attach(handle, role=RECEIVER)
        assert isinstance(link, OutgoingLink)
        link.accept()
        self.flow(handle=handle, delivery_count=0, link_credit=credit)
        self.raw()
        self.end.events.clear()
        return link

    def flow(self, *, channel: int = 0, **fields: Any) -> None:
        numbers = {"next_incoming_id": 0, "incoming_window": 1000, "next_outgoing_id": 0, "outgoing_window": 1000}
        self.say(Flow(**(numbers | fields)), channel=channel)

    def say(self, *performatives: Performative, channel: int = 0, payload: bytes = b"") -> None:
        """Each in a frame of its own, all in one piece of data."""
        frames = [encode_frame(channel, encode_composite(performative) + payload) for performative in performatives]
        self.feed(b"".join(frames))

    def feed(self, data: bytes) -> None:
        self.end.events += self.connection.receive_data(data, self.now)

    def raw(self) -> bytes:
        return self.connection.data_to_send()

    def heard(self) -> list[Performative]:
        return [performative for _, performative, _ in frames_in(self.raw())]

    def heard_payloads(self) -> list[tuple[Performative, bytes]]:
        return [(performative, payload) for _, performative, payload in frames_in(self.raw())]
