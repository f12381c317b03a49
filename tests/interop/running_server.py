"""A real namespace server on loopback, in a thread of the test's process, whose clock can be moved ahead."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from azure.servicebus import ServiceBusClient

from twinbus.amqp.codec.sections import DataBody, Sections, encode_sections
from twinbus.clock import Millis, SystemClock
from twinbus.definitions.wanted_entities import WantedEntities
from twinbus.gateway.trusted_issuer import TrustedIssuer
from twinbus.model.descriptions import FRAGMENT_COUNT, QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import read_message
from twinbus.model.partition_key import candidates
from twinbus.server.namespace import NamespaceServer, new_message_id
from twinbus.server.nodes.supervisor import Supervisor
from twinbus.server.server_settings import ServerSettings
from twinbus.server.stores.pool import StorePool
from twinbus.server.tracing import OpenTelemetrySpans

T = TypeVar("T")

WAIT_S = 20.0
PROCESSES_WAIT_S = 120.0


class ShiftedClock:
    """The wall clock plus whatever the test added to it: what takes a minute needs no waiting."""

    def __init__(self) -> None:
        self._shift: Millis = 0
        self._wall = SystemClock()

    def now(self) -> Millis:
        return self._wall.now() + self._shift

    def advance(self, seconds: float) -> None:
        self._shift += int(seconds * 1000)


class StoreSwitch:
    """Takes one messaging store down and up again, and returns when its broker knows."""

    def __init__(self, stores: StorePool, index: int) -> None:
        self._store, self._broker = stores.stores[index], stores.brokers[index]

    def down(self) -> None:
        self._store.down()
        wait_until(lambda: not self._broker.is_available)

    def up(self) -> None:
        self._store.up()
        wait_until(lambda: self._broker.is_available)


class RunningServer:
    def __init__(
        self,
        data_folder: Path,
        amqp_port: int = 0,
        http_port: int = 0,
        store_count: int = 16,
        tls_port: int | None = None,
        *,
        is_metered: bool = False,
        clock: ShiftedClock | None = None,
        trusted_issuers: tuple[TrustedIssuer, ...] = (),
        tls_names: tuple[str, ...] = (),
        spans: OpenTelemetrySpans | None = None,
    ) -> None:
        self.clock = clock or ShiftedClock()
        self.settings = ServerSettings(
            "interop",
            data_folder,
            amqp_port=amqp_port,
            http_port=http_port,
            store_count=store_count,
            tls_port=tls_port,
            is_metered=is_metered,
            trusted_issuers=trusted_issuers,
            tls_names=tls_names,
        )
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server", daemon=True)
        self._thread.start()
        self.server = NamespaceServer(self.settings, clock=self.clock, spans=spans)
        self.run(self.server.start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    def stop(self) -> None:
        self.run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    @property
    def connection_string(self) -> str:
        return self.server.connection_string

    def client(self, **options: Any) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            self.connection_string, **{"retry_total": 1, "retry_backoff_factor": 0.1, **options}
        )

    def create_queue(self, name: str, **settings: Any) -> str:
        self.run(self.server.control.create_queue(QueueDescription(name, **settings)))
        return name

    def store_of(self, queue: str, key: str) -> "StoreSwitch":
        """The messaging store of the fragment that this key pins to."""
        entity, stores = self.server.entities.queue(queue), self.server.stores
        (fragment,) = candidates(key, FRAGMENT_COUNT, turn=0)
        return StoreSwitch(stores, (entity.first_store + fragment) % len(stores.stores))

    def put(self, queue: str, *texts: str) -> None:
        """Put messages into a queue without a client: opening a sender takes the SDK half a second."""
        self.run(self._put(queue, texts))

    async def _put(self, queue: str, texts: tuple[str, ...]) -> None:
        entity = self.server.entities.queue(queue)
        answers: asyncio.Queue[object] = asyncio.Queue()
        for text in texts:
            payload = encode_sections(Sections(body=DataBody([text.encode()])))
            entity.send_batch([read_message(payload, new_message_id)], self.clock.now(), answers.put_nowait)
        for _ in texts:
            assert isinstance(await answers.get(), list)

    def create_topic(self, name: str, *subscriptions: str, **settings: Any) -> str:
        self.run(self.server.control.create_topic(TopicDescription(name, **settings)))
        for subscription in subscriptions:
            self.run(self.server.control.create_subscription(SubscriptionDescription(name, subscription)))
        return name


class RunningProcesses:
    """The same for clients, served by several processes, which have the time of the machine."""

    def __init__(self, data_folder: Path, count: int) -> None:
        settings = ServerSettings("interop", data_folder, amqp_port=0, http_port=0, tls_port=0)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="supervisor", daemon=True)
        self._thread.start()
        self.server = Supervisor(settings, count, WantedEntities())
        asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result(PROCESSES_WAIT_S)

    @property
    def connection_string(self) -> str:
        return self.server.connection_string

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(PROCESSES_WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


def wait_until(is_done: Callable[[], bool]) -> None:
    """For what another thread is about to do."""
    deadline = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < deadline, "it did not happen"
        threading.Event().wait(0.01)
