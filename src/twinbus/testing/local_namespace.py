"""A namespace for tests of applications: real server, real ports on loopback, its data in a folder of the test's.

It runs in a thread of the test's process and starts in a fraction of a second. Its methods may be called from any
thread; each returns when what it says has happened, so that a test need not wait for anything.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.client.administration import administration_client
from twinbus.clock import Clock
from twinbus.errors import ArgumentError, FragmentUnavailable
from twinbus.gateway.addresses import resolve
from twinbus.model.paths import parse_address
from twinbus.server.listening.host_names import authority, reachable_host
from twinbus.server.namespace import NamespaceServer
from twinbus.server.server_settings import ServerSettings
from twinbus.server.stores.served_store import STOP_WAIT_S

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.management import ServiceBusAdministrationClient

T = TypeVar("T")

STORE_COUNT_DEFAULT = 4
WAIT_S = 30.0
STOP_S = 3 * STOP_WAIT_S
"""Longer than the stores are waited for: they finish a checkpoint, which may be large, before they close."""


class LocalNamespace:
    """Keeps its ports, key, entities and messages over `restart` and `kill`."""

    def __init__(
        self,
        folder: Path,
        name: str = "local",
        *,
        store_count: int = STORE_COUNT_DEFAULT,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._folder = folder
        self._store_count = store_count
        self._clock = clock
        self._server: NamespaceServer | None = None
        self._amqp_port = self._http_port = 0
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"namespace-{name}", daemon=True)
        self._thread.start()
        try:
            self.start()
        except BaseException:
            self._end_loop()
            raise

    def __enter__(self) -> "LocalNamespace":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # How to reach it

    @property
    def connection_string(self) -> str:
        """For the official SDKs, with the right to everything."""
        return self._running.connection_string

    @property
    def endpoint(self) -> str:
        """Where administration and the REST API answer."""
        return f"http://{authority(reachable_host(self._running.settings.plain_host), self._http_port)}"

    @property
    def authority(self) -> Path:
        """The PEM file that clients over TLS have to trust; the connection string's port takes TLS too."""
        file = self._running.tls_authority
        assert file is not None, "a namespace without a certificate of its own generates one"
        return file

    def client(self, **options: Any) -> "ServiceBusClient":
        """The official client. `options` are its own, such as `retry_total`."""
        from azure.servicebus import ServiceBusClient

        return ServiceBusClient.from_connection_string(self.connection_string, **options)

    @cached_property
    def administration(self) -> "ServiceBusAdministrationClient":
        """The official administration client."""
        return administration_client(self.connection_string, self.endpoint)

    # Entities

    def create_queue(self, name: str, **properties: Any) -> str:
        """`properties` are those of the official `create_queue`. Returns the name."""
        self.administration.create_queue(name, **properties)
        return name

    def create_topic(self, name: str, *subscriptions: str, **properties: Any) -> str:
        """A topic with subscriptions that take every message. Returns the name of the topic."""
        self.administration.create_topic(name, **properties)
        for subscription in subscriptions:
            self.administration.create_subscription(name, subscription)
        return name

    def message_count(self, path: str) -> int:
        """Active messages in a queue, `topic/Subscriptions/name`, or either with `/$DeadLetterQueue` behind it."""
        return self._call(lambda: self._count(path))

    def _count(self, path: str) -> int:
        queue = resolve(self._running.entities, parse_address(path)).queue
        if queue is None:
            raise ArgumentError(f"'{path}' is a topic and holds no messages: count one of its subscriptions.")
        assert isinstance(queue, MessageQueue)
        counts = queue.counts()
        if counts.is_unknown:
            raise FragmentUnavailable(f"The messaging store of '{path}' is unavailable, so nobody knows the count.")
        return counts.active

    # Faults

    def store_down(self, index: int) -> None:
        """Switch a messaging store off, as if its disk were gone."""
        self._switch(index, self._running.stores.switch_off)

    def store_up(self, index: int) -> None:
        """Switch it on again and end its other faults."""
        self._switch(index, self._running.stores.switch_on)

    def store_slow(self, index: int, milliseconds: int) -> None:
        """Every call of the store takes this much longer; 0 ends it."""
        self._store(index).slow(milliseconds / 1000)

    def lose_acks(self, index: int, count: int = 1) -> None:
        """The next commits of the store are made but reported as failed."""
        self._store(index).lose_acks(count)

    def store_of(self, path: str) -> int:
        """The messaging store that an entity lives in; that of its first fragment if it is partitioned."""
        return self._running.entities.at(path).fragments[0].broker.index

    def disconnect(self, entity: str | None = None) -> int:
        """Cut every connection, or detach every link to one entity; returns how many there were."""
        running = self._running
        if entity is None:
            return self._call(running.connections.cut_all)
        return self._call(lambda: running.connections.force_detach(entity, running.clock.now()))

    # Its life

    def start(self) -> None:
        """Again after `stop` or `kill`, at the same ports."""
        assert self._server is None, "the namespace runs already"
        settings = ServerSettings(
            name=self.name,
            data_folder=self._folder,
            amqp_port=self._amqp_port,
            http_port=self._http_port,
            store_count=self._store_count,
        )
        server = NamespaceServer(settings, clock=self._clock)
        self._run(server.start())
        self._server, self._amqp_port, self._http_port = server, server.amqp_port, server.http_port

    def stop(self) -> None:
        """Stops as a service does: connections are closed properly. Nothing answers until `start`."""
        server, self._server = self._running, None
        self._run(server.stop(), STOP_S)

    def kill(self) -> None:
        """As a process is killed: connections drop without a close frame, locks are lost. What was acknowledged stays."""
        server, self._server = self._running, None

        async def crash() -> None:
            server.connections.cut_all()
            await server.stop()

        self._run(crash(), STOP_S)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """For good; a second time it does nothing."""
        try:
            if self._server is not None:
                self.stop()
        finally:
            self._end_loop()

    @property
    def _running(self) -> NamespaceServer:
        if self._server is None:
            raise ArgumentError(f"The namespace '{self.name}' is not running. Start it first.")
        return self._server

    def _store(self, index: int) -> Any:
        if not 0 <= index < self._store_count:
            raise ArgumentError(f"There is no messaging store {index}; the last one is {self._store_count - 1}.")
        return self._running.stores.stores[index]

    def _end_loop(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T], wait_s: float = WAIT_S) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(wait_s)

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._run(call())

    def _switch(self, index: int, switch: Callable[[int], Coroutine[Any, Any, bool]]) -> None:
        self._store(index)
        if not self._run(switch(index)):
            raise TimeoutError(f"Messaging store {index} did not change in time. {self._store(index).fault}".rstrip())
