"""The bulk client: one connection to a namespace (twinbus or Azure), senders and receivers over it.

    async with await Namespace.connect(connection_string) as namespace:
        sender = await namespace.sender("orders")
        outcomes = await sender.send_batches([encode_message(text) for text in texts])

It speaks the protocol of the official SDKs with the official connection strings, and is for moving many messages: payloads are
encoded messages, settlements are pipelined. Applications that send a few messages at a time are better off with the SDK.

Nothing here reconnects or retries: `is_transient` of an error says whether that can help, and the caller, who knows what may be
done twice, decides.
"""

import asyncio
import ssl
from types import TracebackType
from typing import Any
from uuid import uuid4

from twinbus.amqp.codec.performatives import ReceiverSettleMode, SenderSettleMode
from twinbus.amqp.codec.sasl import SaslCredentials
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.codec.types import Symbol, UInt, Value
from twinbus.amqp.connection import ConnectionSettings
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.client.connecting.connection_string import ConnectionString, parse_connection_string
from twinbus.client.connecting.dialling import Address, Transport, address_of
from twinbus.client.connecting.token_sources import TokenCredential, token_source
from twinbus.client.connecting.tokens import Tokens
from twinbus.client.connecting.trust import tls_context
from twinbus.client.connecting.wire import Wire
from twinbus.client.entity_extras import EntityExtras
from twinbus.client.entity_node import EntityNode
from twinbus.client.receiver import Receiver
from twinbus.client.request_node import Answer, RequestNode
from twinbus.client.sender import Sender
from twinbus.client.transaction import ControlLink, Transaction
from twinbus.clock import Clock, Millis, SystemClock
from twinbus.errors import ArgumentError, MessagingError, OperationTimeout
from twinbus.model import wire_names
from twinbus.model.paths import path_key

TIMEOUT_S = 60.0
PRODUCT = "twinbus"
SESSION_FILTER = Symbol(wire_names.SESSION_FILTER)
SESSION_WAIT = Symbol(wire_names.SESSION_TIMEOUT)
TRANSFER_DESTINATION = Symbol(wire_names.TRANSFER_DESTINATION_ADDRESS)
DELIVERY_SIZE_MAX = 128 * 1_048_576
"""The largest message that is accepted: more than any tier of the service sends."""
_CREDIT_DEFAULT = 1_000
_TICKS_AT_EPOCH = 621_355_968_000_000_000
_TICKS_PER_MILLI = 10_000


class Namespace:
    """Open until `close`, or until the peer ends the connection; then every call raises the reason."""

    def __init__(self, wire: Wire, tokens: Tokens, entity_path: str | None, timeout_s: float) -> None:
        self._wire = wire
        self._tokens = tokens
        self._entity_path = entity_path
        self._timeout_s = timeout_s
        self._nodes: dict[str, RequestNode] = {}
        self._control: ControlLink | None = None
        self._opening = asyncio.Lock()

    @classmethod
    async def connect(
        cls,
        connection_string: str,
        *,
        credential: TokenCredential | None = None,
        transport: Transport = Transport.AMQP,
        endpoint: str | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        timeout_s: float = TIMEOUT_S,
        product: str = PRODUCT,
    ) -> "Namespace":
        """With a `credential`, such as one of azure-identity, the connection string has only its Endpoint.

        `endpoint` is for `Transport.WEB_SOCKET` where HTTP is not at the port of the connection string: http://localhost:5300.
        `tls` replaces the default context if the connection string asks for TLS; that one trusts what `trust` says.
        `product` is the name of the connection in the operations log.
        """
        target = parse_connection_string(connection_string, needs_key=credential is None)
        address = address_of(target, transport, endpoint)
        if credential is not None:
            _check_credential(target, address)
        clock = clock or SystemClock()
        wire = await Wire.open(
            address.host,
            address.port,
            _settings(target.host, product),
            tls=(tls or tls_context()) if address.uses_tls else None,
            timeout_s=timeout_s,
            clock=clock,
            is_websocket=transport is Transport.WEB_SOCKET,
        )
        source = token_source(target, credential, timeout_s)
        return cls(wire, Tokens(wire, target.authority, source, clock, timeout_s), target.entity_path, timeout_s)

    @property
    def fault(self) -> MessagingError | None:
        """Why the connection ended; None while it is open."""
        return self._wire.fault

    @property
    def timeout_s(self) -> float:
        """For each request. Whoever waits for the outcomes of a sender or receiver limits that as it sees fit."""
        return self._timeout_s

    async def sender(self, path: str, *, via: str | None = None) -> Sender:
        """Raises EntityNotFound, Unauthorized, or another error of the namespace.

        `via` is a queue that takes the messages and forwards them, so that they can be part of a transaction on it.
        """
        await self.authorize(path)
        if via is not None:
            await self.authorize(via)
        sender = Sender(self._wire)
        link = await self._wire.attach(
            sender,
            await self._wire.begin(self._timeout_s),
            f"sender-{uuid4().hex}",
            self._timeout_s,
            is_sender=True,
            source=Source(),
            target=Target(address=via or path),
            snd_settle_mode=SenderSettleMode.UNSETTLED,
            properties=None if via is None else {TRANSFER_DESTINATION: path},
        )
        assert isinstance(link, OutgoingLink)
        sender.bind(link)
        return sender

    async def receiver(
        self, path: str, *, credit: int = _CREDIT_DEFAULT, deletes: bool = False, size_max: int | None = None
    ) -> Receiver:
        """Peek-lock, or receive-and-delete with `deletes`; at most `credit` messages are unsettled, or not taken yet.

        `size_max`, in peek-lock: so many bytes may be unsettled, and what is on its way when they pass that. Whoever neither
        settles nor forgets what it took gets no more.
        """
        return await self._receiver(
            Source(address=path), path, credit, deletes=deletes, timeout_s=self._timeout_s, size_max=size_max
        )

    async def session_receiver(
        self,
        path: str,
        session_id: str | None = None,
        *,
        credit: int = _CREDIT_DEFAULT,
        deletes: bool = False,
        wait_s: float | None = None,
    ) -> Receiver:
        """Lock this message session, or the next free one, for as long as the receiver is open.

        With a credit of 0 no message comes: the receiver holds the session, as its state requires, and nothing else.
        Raises SessionCannotBeLocked if another receiver has it, OperationTimeout if none becomes free within `wait_s`.
        """
        wait_s = self._timeout_s if wait_s is None else wait_s
        source = Source(address=path, filter={SESSION_FILTER: session_id})
        properties = {SESSION_WAIT: UInt(max(1, int(wait_s * 1000)))}
        # The namespace answers when the wait is over; waiting for that answer has its own timeout.
        timeout_s = wait_s + self._timeout_s
        receiver = await self._receiver(
            source, path, credit, deletes=deletes, timeout_s=timeout_s, properties=properties
        )
        if receiver.session_id is None:
            await receiver.close()
            raise OperationTimeout(f"The namespace did not lock a message session of '{path}'. Try again.")
        return receiver

    async def ask(self, path: str, operation: str, body: dict[str, Value]) -> Answer:
        """A `$management` operation of an entity, such as `com.microsoft:peek-message`; see also `entity`."""
        node = self._nodes.get(path)
        if node is None or node.fault is not None:
            node = await self._open_node(path)
        return await node.ask({"operation": operation}, body, self._timeout_s)

    def entity(self, path: str) -> EntityNode:
        """Operations on an entity that need no link of their own: peek, locks, deferred and scheduled messages."""
        return EntityNode(path, self.ask)

    def extras(self, path: str) -> EntityExtras:
        """Operations that only a twinbus namespace has."""
        return EntityExtras(path, self.ask, self.authorize)

    def transaction(self) -> Transaction:
        """For `async with`: operations that happen together or not at all."""
        return Transaction(self._open_control)

    async def authorize(self, path: str) -> None:
        """Put a token for the entity, and renew it for as long as the connection is open."""
        only = self._entity_path
        if only is not None and not _is_at_or_below(path, only):
            raise ArgumentError(
                f"The connection string is only for '{only}', not for '{path}'. Use one of the namespace."
            )
        await self._tokens.authorize(path)

    async def renew_tokens(self) -> list[str]:
        """Renew the tokens that are due, which also happens by itself. Returns their paths."""
        return await self._tokens.renew_due()

    async def close(self) -> None:
        """Everything still under way fails with ConnectionLost."""
        await self._tokens.close()
        await self._wire.close()

    async def __aenter__(self) -> "Namespace":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _receiver(
        self,
        source: Source,
        path: str,
        credit: int,
        *,
        deletes: bool,
        timeout_s: float,
        properties: dict[Any, Any] | None = None,
        size_max: int | None = None,
    ) -> Receiver:
        if credit < (0 if source.filter is not None else 1):
            raise ArgumentError("A receiver needs a credit of at least 1.")
        await self.authorize(path)
        receiver = Receiver(self._wire, waits_for_outcome=not deletes, deletes=deletes, size_max=size_max)
        link = await self._wire.attach(
            receiver,
            await self._wire.begin(self._timeout_s),
            f"receiver-{uuid4().hex}",
            timeout_s,
            is_sender=False,
            source=source,
            target=Target(),
            snd_settle_mode=SenderSettleMode.SETTLED if deletes else SenderSettleMode.UNSETTLED,
            rcv_settle_mode=ReceiverSettleMode.FIRST if deletes else ReceiverSettleMode.SECOND,
            properties=properties,
        )
        assert isinstance(link, IncomingLink)
        if source.filter is not None:
            receiver.session_id = _session_of(link)
            receiver.session_locked_until = _session_end(link)
        receiver.bind(link, credit)
        return receiver

    async def _open_control(self) -> ControlLink:
        async with self._opening:
            if self._control is None or self._control.fault is not None:
                self._control = await ControlLink.attach(self._wire, self._timeout_s)
            return self._control

    async def _open_node(self, path: str) -> RequestNode:
        async with self._opening:
            node = self._nodes.get(path)
            if node is None or node.fault is not None:
                await self.authorize(path)
                node = await RequestNode.attach(self._wire, f"{path}/$management", self._timeout_s)
                self._nodes[path] = node
            return node


def _settings(host: str, product: str) -> ConnectionSettings:
    return ConnectionSettings(
        container_id=f"twinbus-{uuid4().hex}",
        hostname=host,
        properties={Symbol("product"): product},
        incoming_window=100_000,
        frame_size_max=1_048_576,
        message_size_max=DELIVERY_SIZE_MAX,
        reassembly_size_max=2 * DELIVERY_SIZE_MAX,
        sasl_credentials=SaslCredentials(),
    )


def _check_credential(target: ConnectionString, address: Address) -> None:
    if target.key or target.signature:
        raise ArgumentError("A credential replaces the key of a connection string. Give only one of the two.")
    # Anyone who reads such a token on its way has all rights of its owner.
    if not address.uses_tls:
        raise ArgumentError("Tokens of a credential are sent only over TLS. Remove UseDevelopmentEmulator.")


def _is_at_or_below(path: str, entity_path: str) -> bool:
    path, entity_path = path_key(path), path_key(entity_path)
    return path == entity_path or path.startswith(entity_path + "/")


def _session_of(link: IncomingLink) -> str | None:
    filters = (link.source.filter if link.source is not None else None) or {}
    found = filters.get(SESSION_FILTER)
    return found if isinstance(found, str) else None


def _session_end(link: IncomingLink) -> Millis | None:
    ticks = link.properties.get(wire_names.SESSION_LOCKED_UNTIL)
    return (ticks - _TICKS_AT_EPOCH) // _TICKS_PER_MILLI if isinstance(ticks, int) else None
