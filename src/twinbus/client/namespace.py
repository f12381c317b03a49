"""The bulk client: one connection to a namespace (twinbus or Azure), senders and receivers over it.

    async with await Namespace.connect(connection_string) as namespace:
        sender = await namespace.sender("orders")
        outcomes = await sender.send(payloads)

It speaks the official SDKs' protocol with the official connection strings, and is for moving many
messages: payloads are encoded messages, settlements are pipelined. Applications that send a few at a
time are better served by the SDK itself.
"""

import asyncio
import ssl
from types import TracebackType
from typing import Any
from uuid import uuid4

from twinbus.amqp.connection import ConnectionSettings
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.performatives import ReceiverSettleMode, SenderSettleMode
from twinbus.amqp.sasl import SaslCredentials
from twinbus.amqp.terminus import Source, Target
from twinbus.amqp.types import Symbol, Timestamp, Value
from twinbus.client.connection_string import ConnectionString, parse_connection_string
from twinbus.client.receiver import Receiver
from twinbus.client.request_node import Answer, RequestNode
from twinbus.client.sender import Sender
from twinbus.client.shared_access import TOKEN_LIFETIME_S, sign
from twinbus.client.wire import Wire
from twinbus.clock import Clock, SystemClock
from twinbus.errors import MessagingError, Unauthorized

TIMEOUT_S = 60.0
SESSION_FILTER = "com.microsoft:session-filter"
# A token is renewed while it has this share of its life left, so that a slow renewal is still in time.
_RENEWAL_SHARE = 0.25
_CREDIT_DEFAULT = 1_000


class Namespace:
    """Open until `close`, or until the peer ends the connection: then every call raises what ended it."""

    def __init__(self, wire: Wire, target: ConnectionString, clock: Clock, timeout_s: float) -> None:
        self._wire = wire
        self._target = target
        self._clock = clock
        self._timeout_s = timeout_s
        self._tokens: RequestNode | None = None
        self._nodes: dict[str, RequestNode] = {}
        self._renewals: dict[str, asyncio.Task[None]] = {}

    @classmethod
    async def connect(
        cls,
        connection_string: str,
        *,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> "Namespace":
        """`tls` replaces the default context where the connection string asks for TLS (a private certificate, say)."""
        target = parse_connection_string(connection_string)
        context = (tls or ssl.create_default_context()) if target.uses_tls else None
        clock = clock or SystemClock()
        settings = ConnectionSettings(
            container_id=f"twinbus-{uuid4().hex}",
            hostname=target.host,
            incoming_window=100_000,
            frame_size_max=1_048_576,
            sasl_credentials=SaslCredentials(),
        )
        wire = await Wire.open(target.host, target.port, settings, tls=context, timeout_s=timeout_s, clock=clock)
        return cls(wire, target, clock, timeout_s)

    async def sender(self, path: str) -> Sender:
        await self.authorize(path)
        sender = Sender(self._wire)
        link = await self._wire.attach(
            sender,
            await self._wire.begin(self._timeout_s),
            f"sender-{uuid4().hex}",
            self._timeout_s,
            is_sender=True,
            source=Source(),
            target=Target(address=path),
            snd_settle_mode=SenderSettleMode.UNSETTLED,
        )
        assert isinstance(link, OutgoingLink)
        sender.bind(link)
        return sender

    async def receiver(
        self,
        path: str,
        *,
        credit: int = _CREDIT_DEFAULT,
        deletes: bool = False,
        session_id: str | None = None,
    ) -> Receiver:
        """Peek-lock, or receive-and-delete with `deletes`; `credit` messages may be here unsettled."""
        await self.authorize(path)
        receiver = Receiver(self._wire, waits_for_outcome=not deletes)
        filters: dict[Any, Any] | None = None if session_id is None else {Symbol(SESSION_FILTER): session_id}
        link = await self._wire.attach(
            receiver,
            await self._wire.begin(self._timeout_s),
            f"receiver-{uuid4().hex}",
            self._timeout_s,
            is_sender=False,
            source=Source(address=path, filter=filters),
            target=Target(),
            snd_settle_mode=SenderSettleMode.SETTLED if deletes else SenderSettleMode.UNSETTLED,
            rcv_settle_mode=ReceiverSettleMode.FIRST if deletes else ReceiverSettleMode.SECOND,
        )
        assert isinstance(link, IncomingLink)
        receiver.bind(link, credit)
        return receiver

    async def ask(self, path: str, operation: str, body: dict[str, Value]) -> Answer:
        """A `$management` operation of an entity, such as `com.microsoft:peek-message`."""
        node = self._nodes.get(path)
        if node is None:
            await self.authorize(path)
            node = self._nodes[path] = await RequestNode.attach(self._wire, f"{path}/$management", self._timeout_s)
        return await node.ask({"operation": operation}, body, self._timeout_s)

    async def authorize(self, path: str) -> None:
        """Put a token for the entity, and keep it renewed for as long as the connection lives."""
        if path not in self._renewals:
            await self._put_token(path)
            self._renewals[path] = asyncio.create_task(self._renew(path))

    async def close(self) -> None:
        for task in self._renewals.values():
            task.cancel()
        await asyncio.gather(*self._renewals.values(), return_exceptions=True)
        await self._wire.close()

    async def __aenter__(self) -> "Namespace":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _put_token(self, path: str) -> None:
        audience = f"sb://{self._target.authority}/{path}"
        expires_at_s = self._clock.now() // 1000 + TOKEN_LIFETIME_S
        token = self._target.signature or sign(audience, self._target.key_name, self._target.key, expires_at_s)
        if self._tokens is None:
            self._tokens = await RequestNode.attach(self._wire, "$cbs", self._timeout_s)
        answer = await self._tokens.ask(
            {
                "operation": "put-token",
                "type": "servicebus.windows.net:sastoken",
                "name": audience,
                "expiration": Timestamp(expires_at_s * 1000),
            },
            token,
            self._timeout_s,
        )
        if answer.status not in (200, 202):
            raise Unauthorized(f"The namespace refused our token for '{path}': {answer.description}")

    async def _renew(self, path: str) -> None:
        while True:
            await asyncio.sleep(TOKEN_LIFETIME_S * (1 - _RENEWAL_SHARE))
            try:
                await self._put_token(path)
            except MessagingError:
                # The links end when the old token does, and say why better than this loop could.
                return
