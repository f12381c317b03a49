"""The bulk client for code that blocks: the same verbs, run on an event loop in a thread of its own.

    with BlockingNamespace.connect(connection_string) as namespace:
        outcomes = namespace.sender("orders").send_batches(payloads)

For Spark executors, scripts and the command line. All decisions are in `Namespace`, `Sender` and `Receiver`; a call here hands
the work to their loop and waits. Any thread may call, and several may wait at the same time.
"""

import asyncio
import ssl
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from twinbus.amqp.codec.types import Value
from twinbus.client.connecting.dialling import Transport
from twinbus.client.connecting.token_sources import TokenCredential
from twinbus.client.entity_extras import EntityExtras
from twinbus.client.entity_node import EntityNode
from twinbus.client.namespace import TIMEOUT_S, Namespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.client.receiver import Receiver
from twinbus.client.sender import Sender
from twinbus.clock import Clock
from twinbus.errors import MessagingError

T = TypeVar("T")
Errors = list[MessagingError | None]

END_WAIT_S = 0.1
"""For what is under way when a loop is stopped to end by itself, and then for it to end as it is cancelled."""


class LoopThread:
    """An event loop that runs in a daemon thread until it is stopped."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="twinbus-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result, or the error. If the wait is interrupted, so is the work."""
        waiting = self.start(work)
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """For a caller that does something else in the meantime."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """Whoever still waits learns that the work was cancelled: a loop that has stopped brings nothing any more."""
        self.start(_end_others()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        # What has failed with its connection has still to say why.
        _, left = await asyncio.wait(others, timeout=END_WAIT_S)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=END_WAIT_S)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not available on Windows
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class BlockingNamespace:
    def __init__(self, loop: LoopThread, namespace: Namespace) -> None:
        self._loop = loop
        self._namespace = namespace

    @classmethod
    def connect(
        cls,
        connection_string: str,
        *,
        credential: TokenCredential | None = None,
        transport: Transport = Transport.AMQP,
        endpoint: str | None = None,
        tls: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> "BlockingNamespace":
        """As `Namespace.connect`."""
        loop = LoopThread()
        try:
            connecting = Namespace.connect(
                connection_string,
                credential=credential,
                transport=transport,
                endpoint=endpoint,
                tls=tls,
                clock=clock,
                timeout_s=timeout_s,
            )
            return cls(loop, loop.run(connecting))
        except BaseException:
            loop.stop()
            raise

    def sender(self, path: str) -> "BlockingSender":
        return BlockingSender(self._loop, self._loop.run(self._namespace.sender(path)))

    def receiver(self, path: str, **options: Any) -> "BlockingReceiver":
        """`options` are those of `Namespace.receiver`."""
        return BlockingReceiver(self._loop, self._loop.run(self._namespace.receiver(path, **options)))

    def session_receiver(self, path: str, session_id: str | None = None, **options: Any) -> "BlockingReceiver":
        """`options` are those of `Namespace.session_receiver`."""
        opening = self._namespace.session_receiver(path, session_id, **options)
        return BlockingReceiver(self._loop, self._loop.run(opening))

    def entity(self, path: str) -> EntityNode:
        """Its verbs are coroutines for `run`: `namespace.run(namespace.entity("orders").peek(10))`."""
        return self._namespace.entity(path)

    def extras(self, path: str) -> EntityExtras:
        """As `entity`: `namespace.run(namespace.extras("orders").purge(100))`."""
        return self._namespace.extras(path)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Any coroutine of the client, on the client's loop."""
        return self._loop.run(work)

    def close(self) -> None:
        try:
            self._loop.run(self._namespace.close())
        finally:
            self._loop.stop()

    def __enter__(self) -> "BlockingNamespace":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BlockingSender:
    def __init__(self, loop: LoopThread, sender: Sender) -> None:
        self._loop = loop
        self._sender = sender

    def send(self, payloads: Sequence[bytes]) -> Errors:
        return self._loop.run(self._sender.send(payloads))

    def send_batches(self, payloads: Sequence[bytes], *, keeps_keys_apart: bool = True) -> Errors:
        return self._loop.run(self._sender.send_batches(payloads, keeps_keys_apart=keeps_keys_apart))

    def close(self) -> None:
        self._loop.run(self._sender.close())


class BlockingReceiver:
    def __init__(self, loop: LoopThread, receiver: Receiver) -> None:
        self._loop = loop
        self._receiver = receiver

    @property
    def session_id(self) -> str | None:
        return self._receiver.session_id

    def receive(self, count_max: int, wait_s: float) -> list[ReceivedMessage]:
        return self._loop.run(self._receiver.receive(count_max, wait_s))

    def collect(self, count: int, wait_s: float) -> list[ReceivedMessage]:
        return self._loop.run(self._receiver.collect(count, wait_s))

    def complete(self, messages: Sequence[ReceivedMessage]) -> Errors:
        return self._loop.run(self._receiver.complete(messages))

    def abandon(self, messages: Sequence[ReceivedMessage], properties: Mapping[str, Value] | None = None) -> Errors:
        return self._loop.run(self._receiver.abandon(messages, properties))

    def defer(self, messages: Sequence[ReceivedMessage], properties: Mapping[str, Value] | None = None) -> Errors:
        return self._loop.run(self._receiver.defer(messages, properties))

    def dead_letter(
        self,
        messages: Sequence[ReceivedMessage],
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> Errors:
        return self._loop.run(self._receiver.dead_letter(messages, reason, description, properties))

    def release(self, messages: Sequence[ReceivedMessage]) -> Errors:
        return self._loop.run(self._receiver.release(messages))

    def close(self) -> None:
        self._loop.run(self._receiver.close())
