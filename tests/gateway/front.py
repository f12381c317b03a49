"""The gateway in front of a simulated namespace, and AMQP clients on wires in memory. Nothing happens by itself."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from twinbus.amqp.codec.performatives import ReceiverSettleMode, SenderSettleMode
from twinbus.amqp.codec.sasl import SaslCredentials, plain_credentials
from twinbus.amqp.codec.sections import (
    DataBody,
    MessageProperties,
    Sections,
    ValueBody,
    decode_sections,
    encode_sections,
)
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.codec.types import Value
from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.amqp.events import Deliveries, Dispositions, Event, Incoming
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.session import Session
from twinbus.clock import Millis
from twinbus.errors import MessagingError
from twinbus.gateway.authorization import signature
from twinbus.gateway.connection_gateway import ConnectionGateway
from twinbus.gateway.namespace_view import NamespaceView, Traffic
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane
from twinbus.meter.book import OperationsBook
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.testing.simulation import Simulation

E = TypeVar("E")

ROOT = AuthorizationRule("Root", "root-key", "other-key", frozenset(Right))
SENDS = AuthorizationRule("Sends", "send-key", "other-key", frozenset({Right.SEND}))
LISTENS = AuthorizationRule("Listens", "listen-key", "other-key", frozenset({Right.LISTEN}))

STEP: Millis = 60_000


def payload(text: str, **properties: Any) -> bytes:
    return encode_sections(Sections(properties=MessageProperties(**properties), body=DataBody([text.encode()])))


def text_of(delivered: bytes) -> str:
    body = decode_sections(delivered).body
    assert isinstance(body, DataBody)
    return b"".join(body.parts).decode()


class Front:
    def __init__(self, folder: Path, store_count: int = 1) -> None:
        self.sim = Simulation(store_count)
        self.catalog = catalog = Catalog.in_file(folder / "catalog.db", "test", self.sim.now)
        for rule in (ROOT, SENDS, LISTENS):
            catalog.set_namespace_rule(rule)
        self.traffic = Traffic()
        self.book = OperationsBook(self.sim.clock)
        for broker in self.sim.brokers:
            broker.meter = self.book
        self.view = NamespaceView(
            entities=self.sim.entities,
            control=ControlPlane(catalog, self.sim.entities, self.sim.clock),
            rules=catalog,
            traffic=self.traffic,
            new_id=lambda: "0" * 32,
            book=self.book,
        )

    def client(
        self,
        rule: AuthorizationRule | None = ROOT,
        refusal: MessagingError | None = None,
        container_id: str = "client",
    ) -> "Client":
        """A connection authenticated with the rule's key, or anonymous."""
        credentials = SaslCredentials() if rule is None else plain_credentials(rule.name, rule.primary_key)
        return Client(self, credentials, refusal, container_id)

    async def settled(self, change: Coroutine[Any, Any, object]) -> None:
        """Await a change of the control plane while the stores work."""
        task = asyncio.ensure_future(change)
        while not task.done():
            self.sim.run()
            await asyncio.sleep(0)
        await task

    async def until_answered(self, client: "Client") -> None:
        """Let the control plane work until the client has a reply."""
        while not any(isinstance(event, Deliveries) for event in client.events):
            await asyncio.sleep(0)
            client.run()

    def token(self, path: str, rule: AuthorizationRule = ROOT, lifetime: Millis = 600_000) -> str:
        resource, expiry = f"sb://host/{path}", str((self.sim.now + lifetime) // 1000)
        encoded = signature(resource, expiry, rule.primary_key).replace("+", "%2B")
        return f"SharedAccessSignature sr={resource}&sig={encoded}&se={expiry}&skn={rule.name}"


class Client:
    def __init__(
        self, front: Front, credentials: SaslCredentials, refusal: MessagingError | None, container_id: str
    ) -> None:
        self.front = front
        now = front.sim.now
        settings = ConnectionSettings(container_id=container_id, sasl_credentials=credentials)
        self.connection = Connection(Role.CLIENT, settings, now)
        server = Connection(Role.SERVER, ConnectionSettings(container_id="server"), now)
        self._is_flush_due = False
        self.gateway = ConnectionGateway(server, front.view, now, self._wake)
        self.gateway.refusal = refusal
        self.events: list[Event] = []
        self.session: Session
        self._link_count = 0
        self.connection.open()
        self.run()

    def _wake(self) -> None:
        self._is_flush_due = True

    def run(self) -> None:
        """Carry bytes and let the stores work until nothing is left to send. As at the listener, answers leave after a read or
        another call from outside, or when the gateway has asked for it: what it only keeps does not arrive."""
        is_busy = self._is_flush_due = True
        while is_busy:
            sent = self.connection.data_to_send()
            if sent:
                self.gateway.receive(sent, self.front.sim.now)
            answered = self.gateway.data_to_send() if sent or self._is_flush_due else b""
            self._is_flush_due = False
            if answered:
                self.events += self.connection.receive_data(answered, self.front.sim.now)
            self.front.sim.run()
            is_busy = bool(sent or answered) or self._is_flush_due

    def advance(self, by: Millis, step_max: Millis = STEP) -> None:
        """Let time pass, with heartbeats both ways."""
        while by > 0:
            step = min(by, step_max)
            by -= step
            self.front.sim.advance(step)
            self.connection.tick(self.front.sim.now)
            self.gateway.tick(self.front.sim.now)
            self.run()

    def take(self, kind: type[E]) -> list[E]:
        found: list[E] = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found

    def begin(self) -> Session:
        if not hasattr(self, "session"):
            self.session = self.connection.begin()
            self.run()
        return self.session

    def sender(self, address: str, properties: dict[Any, Any] | None = None) -> OutgoingLink:
        link = self.begin().attach(
            self._name(),
            is_sender=True,
            source=Source(address="me"),
            target=Target(address=address),
            properties=properties,
        )
        assert isinstance(link, OutgoingLink)
        self.run()
        return link

    def receiver(
        self,
        address: str,
        *,
        credit: int = 0,
        mode: SenderSettleMode = SenderSettleMode.UNSETTLED,
        session_filter: dict[Any, Any] | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> IncomingLink:
        link = self.begin().attach(
            self._name(),
            is_sender=False,
            source=Source(address=address, filter=session_filter),
            target=Target(address="me"),
            snd_settle_mode=mode,
            rcv_settle_mode=ReceiverSettleMode.SECOND,
            properties=properties,
        )
        assert isinstance(link, IncomingLink)
        self.run()
        if credit:
            link.grant(credit)
            self.run()
        return link

    def received(self) -> list[Incoming]:
        """What was delivered since the last time."""
        return [each for event in self.take(Deliveries) for each in event.deliveries]

    def hold(self, address: str = "orders", text: str = "a", credit: int = 1) -> tuple[IncomingLink, Incoming]:
        """Send a message and receive it again: the link it came on, and its delivery. Answers to the send are dropped."""
        self.sender(address).transfer(payload(text), b"1")
        receiver = self.receiver(address, credit=credit)
        (message,) = self.received()
        self.take(Dispositions)
        return receiver, message

    def node(self, address: str) -> "NodeClient":
        return NodeClient(self, address)

    def _name(self) -> str:
        self._link_count += 1
        return f"link-{self._link_count}"


class NodeClient:
    """A pair of links to a `$cbs` or `$management` node."""

    def __init__(self, client: Client, address: str) -> None:
        self._client = client
        self.replies = client.receiver(address, credit=100, mode=SenderSettleMode.MIXED)
        self.requests = client.sender(address)
        self._count = 0

    def ask(self, operation: str, body: Value, **properties: Value) -> Sections:
        self.send(operation, body, **properties)
        (reply,) = self.answers()
        return reply

    def send(self, operation: str, body: Value, **properties: Value) -> None:
        self._count += 1
        request = Sections(
            properties=MessageProperties(message_id=f"request-{self._count}"),
            application_properties={
                "operation": operation,
                **{name.replace("_", "-"): value for name, value in properties.items()},
            },
            body=ValueBody(body),
        )
        self.requests.transfer(encode_sections(request), b"%d" % self._count)
        self._client.run()

    def answers(self) -> list[Sections]:
        return [decode_sections(each.payload) for each in self._client.received()]
