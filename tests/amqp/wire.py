"""Two real connections joined by a wire in memory, so that every test exercises both roles.

`Wire.run` carries bytes back and forth until both sides are silent, in chunks of a chosen size. The
events of each side are kept, in order, until they are asked for.
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.amqp.events import Event, LinkAttached, LinkOpened, SaslInit, SessionBegun
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.sasl import SaslCode
from twinbus.amqp.session import Session
from twinbus.amqp.terminus import Source, Target

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
