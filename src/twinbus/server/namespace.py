"""A namespace as a running server: settings in; folder, stores, brokers, catalog and listeners started and stopped in order.

start   (wait as a spare >) hold the data folder > bind ports > catalog > restore entities > open stores > create new entities > listen
stop    close connections > stop listening > finish and close the stores > write the last operations > close the catalog
        > unlock the folder
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

import uvloop

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.connection_settings import ConnectionSettings
from twinbus.amqp.reassembly import SharedReassembly
from twinbus.broker.entity.entities import Entities
from twinbus.clock import Clock, SystemClock
from twinbus.errors import ArgumentError, StoreTaken, StoreUnavailable
from twinbus.gateway.connection_gateway import ConnectionGateway
from twinbus.gateway.connections import Connections
from twinbus.gateway.latencies import Stopwatch
from twinbus.gateway.namespace_view import NamespaceView, Traffic
from twinbus.gateway.turns import Turns
from twinbus.http.application import HttpApplication, HttpParts
from twinbus.management.access_control import ROOT_RULE_NAME
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane, restore
from twinbus.management.idle_sweep import IdleSweep
from twinbus.meter.book import OperationsBook
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.server.admission import Admission, socket_count_max
from twinbus.server.copy_marks import read_mark, require_whole
from twinbus.server.data_folder import KEY_BYTES, OPERATIONS_FOLDER, DataFolder
from twinbus.server.data_folder import open_store as open_durable_store
from twinbus.server.host_names import authority, names_of_listener, reachable_host
from twinbus.server.http_server import HttpServer
from twinbus.server.listener import AmqpTransport
from twinbus.server.metering import Metering
from twinbus.server.overload import Overload
from twinbus.server.process_setup import set_up_process
from twinbus.server.refusal_log import RefusalLog
from twinbus.server.server_settings import AMQPS_PORT, ServerSettings
from twinbus.server.sockets import SharedPort, bind, listen, port_of
from twinbus.server.spare import Spare
from twinbus.server.stores.places import StoresToKeep
from twinbus.server.stores.pool import StorePool
from twinbus.server.stores.process import StoreProcess
from twinbus.server.stores.served_store import OnLost, OnReturned, StoreKeeper
from twinbus.server.stores.threads import OpenStore, StoreThreads
from twinbus.server.timers import Beat, Ticking
from twinbus.server.tls import development_certificate, server_context, tls_folder
from twinbus.server.tracing import OpenTelemetrySpans, spans_of
from twinbus.store.store_limits import StoreLimits

if TYPE_CHECKING:
    from twinbus.gateway.web_tokens import WebTokens
    from twinbus.management.catalog_postgres import PostgresCatalog
    from twinbus.store.postgres.place import Owner, PostgresPlace

log = logging.getLogger(__name__)


class NamespaceServer:
    """`open_store` and `clock` are for tests; a served namespace is on disk and uses the system clock.

    `has_store_process`: its stores run in a process of their own, for throughput. Without one a namespace starts faster.
    `owner`: as whom it owns its stores, where those are in PostgreSQL.
    `spans`: what it does is traced.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        clock: Clock | None = None,
        open_store: OpenStore | None = None,
        has_store_process: bool = False,
        owner: "Owner | None" = None,
        spans: "OpenTelemetrySpans | None" = None,
    ) -> None:
        self.settings = settings
        self._spans = spans
        self.owner = owner
        self._unmarked: set[int] = set()  # stores that the catalog does not know to be in use yet
        self._marking: set[asyncio.Task[None]] = set()
        self._mark_created: Callable[[int], None] = lambda _: None
        self.clock = clock or SystemClock()
        self.traffic = Traffic(stopwatch=Stopwatch(time.perf_counter, self.clock.now))
        self.traffic.stopwatch.spans = spans
        self.amqp_port = settings.amqp_port
        self.tls_port = settings.tls_port
        self.tls_authority: Path | None = None  # what clients over TLS must trust if no certificate was given
        self.http_port = settings.http_port
        self._open_store = open_store or partial(open_durable_store, limits=StoreLimits.shared_by(settings.store_count))
        self._has_store_process = has_store_process
        self.connections = Connections(settings.connections_max)
        self.metering: Metering | None = None
        self._web_tokens: WebTokens | None = None
        self._servers: list[asyncio.Server] = []
        self.reassembly = SharedReassembly(settings.shared_limits.incomplete_size_max)
        self.refusals = RefusalLog()
        self.admission = Admission(settings.shared_limits, self.connections, self.refusals, socket_count_max())
        self._closers: list[Callable[[], None]] = []
        self.on_new_root_key: Callable[[], None] = lambda: None
        """Called, in a thread of its own, when `connection_string` has changed."""

    async def start(self, prepare: "Prepare | None" = None) -> None:
        """Raises MessagingError, with nothing left open, if the namespace cannot be served.

        `prepare` is called when everything but the ports is ready, to create entities that clients expect.
        """
        try:
            await self._start(prepare)
        except BaseException:
            self._close_rest()
            raise

    async def _start(self, prepare: "Prepare | None") -> None:
        settings, loop = self.settings, asyncio.get_running_loop()
        self._turns = Turns(loop.call_soon, loop.time, time.thread_time)
        self._folder = folder = DataFolder(settings.data_folder)
        self._closers.append(folder.close)
        await self._trust()
        self._bind()
        wanted = await self._open_catalog(folder)
        self._closers.append(self.catalog.close)
        self.stores = StorePool(partial(self._keeper, wanted, loop), self.clock, self._on_opened)
        for store in self.stores.stores:
            store.process = self.owner.address if self.owner is not None else this_process()
        self.entities = Entities(self.stores.brokers)
        restore(self.catalog, self.entities, self.clock.now())
        self.control = ControlPlane(self.catalog, self.entities, self.clock)
        self._start_metering()
        self._closers.append(self.stores.abandon)
        await self.stores.start()
        sweep = IdleSweep(self.control, self.entities.idle)
        overload = Overload(self.connections, self.reassembly, settings.shared_limits.unread_size_max, self.refusals)
        ticking: list[Ticking] = [*self.stores.brokers, sweep, overload, self.refusals]
        if self.metering is not None:
            ticking.append(self.metering)
        self._beat = Beat(loop, self.clock, ticking, lambda: self.connections)
        self._beat.start()
        self._closers.append(self._beat.stop)
        if prepare is not None:
            await prepare(self)
        await self._listen()
        log.info(
            "serving", extra={"fields": {"namespace": settings.name, "amqp": self.amqp_port, "http": self.http_port}}
        )

    async def _open_catalog(self, folder: DataFolder) -> StoresToKeep:
        """The catalog and the rule with all rights; says where the messaging stores are."""
        settings = self.settings
        if settings.store_dsns:
            database = await asyncio.to_thread(self._hold_namespace)
            self._closers.append(database.close)
            require_whole(read_mark(database.copy_mark(), str(database.place)), f"table copy in {database.place}")
            self.catalog = Catalog(database)
            self.root_rule = root_rule_in(self.catalog, settings.shared_access_key)
            self.catalog.set_namespace_rule(self.root_rule)
            places = database.places(settings.store_dsns)
            self._mark_created = database.mark_created
            self._unmarked = {place.number for place in places if not place.is_created}
            return StoresToKeep(places, self.owner, database.place)
        require_whole(read_mark(folder.copy_mark(), str(folder.copy_mark_file)), str(folder.copy_mark_file))
        self.root_rule = folder.root_rule(settings.shared_access_key)
        self.catalog = Catalog.in_file(folder.path / "catalog.db", settings.name, self.clock.now())
        self._keep_root_rule()
        return StoresToKeep(folder.store_paths(settings.store_count))

    def _hold_namespace(self) -> "PostgresCatalog":
        """Raises StoreTaken while another process serves the namespace."""
        from twinbus.management.catalog_postgres import PostgresCatalog
        from twinbus.store.postgres.lease import LeaseKeeper
        from twinbus.store.postgres.place import CatalogPlace

        settings = self.settings
        assert self.owner is not None
        keeper = LeaseKeeper(lambda _, __: None, lambda: True)
        self._closers.append(keeper.close)
        place = CatalogPlace(settings.store_dsns[0], settings.name)
        return PostgresCatalog(place, self.owner, settings.store_count, self.clock.now(), keeper)

    def _on_opened(self, index: int) -> None:
        if index in self._unmarked:
            self._unmarked.discard(index)
            task = asyncio.get_running_loop().create_task(asyncio.to_thread(self._mark_created, index))
            self._marking.add(task)
            task.add_done_callback(self._marked)

    def _marked(self, task: "asyncio.Task[None]") -> None:
        self._marking.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            # The next start marks it: until then a store that is gone would be taken for a new one.
            log.warning("store_not_marked", extra={"fields": {"reason": str(fault)}})

    def _keeper(
        self, wanted: StoresToKeep, loop: asyncio.AbstractEventLoop, on_lost: OnLost, on_returned: OnReturned
    ) -> StoreKeeper:
        if self._has_store_process or wanted.have_leases:
            return StoreProcess(wanted, (self.settings.log_format, self.settings.log_level), loop, on_lost, on_returned)
        paths = [place for place in wanted.places if isinstance(place, Path)]
        return StoreThreads(paths, self._open_store, loop, on_lost, on_returned)

    def _start_metering(self) -> None:
        settings = self.settings
        if not settings.is_metered:
            return
        folder = settings.operations_folder or settings.data_folder / OPERATIONS_FOLDER
        self.metering = Metering(folder, settings.name, self.clock, settings.exact_operations_max)
        for broker in self.stores.brokers:
            broker.meter = self.metering.book
        self.metering.start()

    @property
    def _book(self) -> OperationsBook | None:
        return self.metering.book if self.metering is not None else None

    async def _trust(self) -> None:
        if not self.settings.trusted_issuers:
            return
        # Most namespaces trust no issuer, and the library takes a while to import.
        from twinbus.gateway.web_tokens import WebTokens
        from twinbus.server.trusted_keys import TrustedKeys

        self._web_tokens = WebTokens(self.settings.trusted_issuers)
        keys = TrustedKeys(self._web_tokens, self.clock)
        await keys.start()
        self._closers.append(keys.close)

    def _keep_root_rule(self) -> None:
        """The folder has the primary key; the catalog may have a secondary one that was generated since."""
        known = {rule.name: rule for rule in self.catalog.namespace_rules()}.get(self.root_rule.name)
        if known is not None:
            self.root_rule = replace(known, primary_key=self.root_rule.primary_key)
        self.catalog.set_namespace_rule(self.root_rule)

    @contextmanager
    def _root_key_change(self, key: str) -> Iterator[None]:
        """A `RootKeyChange`; called in a thread of its own."""
        is_new = key != self.root_rule.primary_key
        if is_new and not self.settings.store_dsns:  # there the catalog is the only place
            self._folder.keep_root_key(key)
        yield
        if is_new:
            self.root_rule = replace(self.root_rule, primary_key=key)
            self.on_new_root_key()

    def _bind(self) -> None:
        settings = self.settings
        self._plain_sockets = [self._bound(settings.plain_host, settings.amqp_port)]
        self._http_socket = self._bound(settings.plain_host, settings.http_port)
        self._tls_sockets = [] if settings.tls_port is None else [self._bound(settings.host, settings.tls_port)]
        for extra in settings.also_listen:
            if extra.uses_tls:
                self._tls_sockets.append(self._bound(settings.host, extra.port))
            else:
                self._plain_sockets.append(self._bound(settings.plain_host, extra.port))
        self.amqp_port, self.http_port = port_of(self._plain_sockets[0]), port_of(self._http_socket)
        with_tls = [port_of(sock) for sock in self._tls_sockets]
        # The one that was asked for by name, or else the one that AMQP usually has.
        is_usual = settings.tls_port is None and AMQPS_PORT in with_tls
        self.tls_port = AMQPS_PORT if is_usual else next(iter(with_tls), None)

    def _bound(self, host: str, port: int) -> socket.socket:
        sock = bind(host, port)
        self._closers.append(sock.close)
        return sock

    async def _listen(self) -> None:
        self.http = HttpApplication(self._http_parts())
        application = self.http.guarded if self._spans is None else self._spans.traced(self.http.guarded)
        self._http_server = HttpServer(application, self._http_socket, self.admission)
        self._http_server.start()
        loop = asyncio.get_running_loop()
        shared = partial(SharedPort, self._transport, self._http_server.protocol, self.admission, loop)
        tls = self._tls_context()
        for sock in self._plain_sockets:
            self._servers.append(await listen(partial(shared, tls=tls), sock))
        for sock in self._tls_sockets:
            self._servers.append(await listen(shared, sock, tls))

    def _tls_context(self) -> ssl.SSLContext:
        settings = self.settings
        if settings.tls_certificate is not None and settings.tls_key is not None:
            return server_context(settings.tls_certificate, settings.tls_key)
        made = development_certificate(tls_folder(settings.data_folder), self._host_names, self.clock.now())
        self.tls_authority = made.authority
        return server_context(made.certificate, made.key)

    @property
    def _host_names(self) -> list[str]:
        settings = self.settings
        advertised = [] if settings.advertised_host is None else [settings.advertised_host]
        return [*names_of_listener(settings.host), *settings.tls_names, *advertised]

    def _transport(self) -> AmqpTransport:
        return AmqpTransport(self._gateway, self.connections, self.clock, asyncio.get_running_loop(), self._turns)

    def _gateway(self, wake: Callable[[], None]) -> ConnectionGateway:
        now = self.clock.now()
        settings = ConnectionSettings(container_id=self.settings.name)
        return ConnectionGateway(Connection(Role.SERVER, settings, now, self.reassembly), self._view(), now, wake)

    def _view(self) -> NamespaceView:
        return NamespaceView(
            entities=self.entities,
            control=self.control,
            rules=self.catalog,
            traffic=self.traffic,
            new_id=new_message_id,
            is_congested=self.stores.is_congested,
            book=self._book,
            web_tokens=self._web_tokens,
        )

    def _http_parts(self) -> HttpParts:
        return HttpParts(
            name=self.settings.name,
            view=self._view(),
            own_entities=self.entities,
            clock=self.clock,
            stores=self.stores.stores,
            store_switches=self.stores,
            connections=self.connections,
            make_gateway=self._gateway,
            turns=self._turns,
            amqp_authority=authority(self._plain_name, self.amqp_port),
            host_names=self._host_names,
            new_key=new_key,
            root_key_change=self._root_key_change,
            operations_log=self.metering,
        )

    async def stop(self) -> None:
        """Close connections and files in order. Everything that was acknowledged is durable already."""
        for server in self._servers:
            server.close()
        self.connections.close_all()
        for undecided in tuple(self.admission.undecided):
            undecided.cut()
        self.http.close()
        await self._http_server.stop()
        self._beat.stop()
        await self.stores.stop()
        if self.metering is not None:
            await self.metering.stop()
        self._close_rest()
        log.info("stopped", extra={"fields": {"namespace": self.settings.name}})

    def _close_rest(self) -> None:
        while self._closers:
            self._closers.pop()()

    @property
    def connection_string(self) -> str:
        """For the port without TLS: the emulator flag makes the SDKs connect without it."""
        return self._connection_string(self._plain_name, self.amqp_port) + "UseDevelopmentEmulator=true;"

    @property
    def tls_connection_string(self) -> str | None:
        settings = self.settings
        name = settings.advertised_host or reachable_host(settings.host)
        return self._connection_string(name, self.tls_port) if self.tls_port is not None else None

    @property
    def _plain_name(self) -> str:
        """The advertised name is that of `host`, and the ports without TLS may be at the loopback address alone."""
        settings = self.settings
        is_advertised = settings.advertised_host is not None and settings.plain_host == settings.host
        return (is_advertised and settings.advertised_host) or reachable_host(settings.plain_host)

    def _connection_string(self, host: str, port: int) -> str:
        name, key = self.root_rule.name, self.root_rule.primary_key
        return f"Endpoint=sb://{authority(host, port)};SharedAccessKeyName={name};SharedAccessKey={key};"


Prepare: TypeAlias = Callable[[NamespaceServer], Awaitable[None]]


def serve(
    settings: ServerSettings, on_ready: Callable[[NamespaceServer], None], prepare: Prepare | None = None
) -> None:
    """Serve a namespace until SIGINT or SIGTERM.

    Raises MessagingError if the namespace cannot be served, or whatever `on_ready` or `prepare` raises.
    """
    set_up_process(settings.log_format, settings.log_level)
    uvloop.run(_serve(settings, on_ready, prepare))


async def _serve(
    settings: ServerSettings, on_ready: Callable[[NamespaceServer], None], prepare: Prepare | None
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    spans = spans_of(settings.name, os.environ)
    try:
        await _serve_until(stop, settings, spans, on_ready, prepare)
    finally:
        if spans is not None:
            await asyncio.to_thread(spans.close)


async def _serve_until(
    stop: asyncio.Event,
    settings: ServerSettings,
    spans: "OpenTelemetrySpans | None",
    on_ready: Callable[[NamespaceServer], None],
    prepare: Prepare | None,
) -> None:
    if not settings.store_dsns:
        await _serve_once(NamespaceServer(settings, has_store_process=True, spans=spans), stop, on_ready, prepare)
        return
    owner, places = _places(settings)
    spare = Spare(places, owner)
    while not stop.is_set() and await spare.wait(stop):
        server = NamespaceServer(settings, has_store_process=True, owner=owner, spans=spans)
        try:
            await _serve_once(server, stop, on_ready, prepare)
        except StoreTaken:
            continue  # another spare was quicker
        except StoreUnavailable as refused:
            if not spare.has_waited or not refused.is_transient:
                raise ArgumentError(str(refused)) from refused
            # More than half of the stores can be reached, and the catalog cannot.
            log.warning("not_taken_over", extra={"fields": {"reason": str(refused)}})
            await spare.pause(stop)


def _places(settings: ServerSettings) -> "tuple[Owner, list[PostgresPlace]]":
    try:
        from twinbus.store.postgres.place import Owner, PostgresPlace
    except ImportError as missing:
        raise ArgumentError(
            "Messaging stores in PostgreSQL need psycopg: pip install 'twinbus[postgres]'."
        ) from missing
    dsns, count = settings.store_dsns, settings.store_count
    return Owner.this_process(), [
        PostgresPlace(dsns[number % len(dsns)], settings.name, number, count) for number in range(count)
    ]


async def _serve_once(
    server: NamespaceServer,
    stop: asyncio.Event,
    on_ready: Callable[[NamespaceServer], None],
    prepare: Prepare | None,
) -> None:
    """Until `stop`, or until another process owns the stores."""
    await server.start(prepare)
    try:
        on_ready(server)
        ends = [asyncio.ensure_future(event.wait()) for event in (stop, server.stores.superseded)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if not stop.is_set():
            log.warning("superseded", extra={"fields": {"namespace": server.settings.name}})
    finally:
        await server.stop()


def this_process() -> str:
    """As people find it."""
    return f"{socket.gethostname()}, process {os.getpid()}"


def root_rule_in(catalog: Catalog, wanted_key: str | None) -> AuthorizationRule:
    """The rule with all rights, kept in the catalog. A wanted key counts only if there is none yet."""
    known = {rule.name: rule for rule in catalog.namespace_rules()}.get(ROOT_RULE_NAME)
    if known is None:
        return AuthorizationRule(ROOT_RULE_NAME, wanted_key or new_key(), "", frozenset(Right))
    if wanted_key not in (None, known.primary_key):
        raise ArgumentError("The namespace has a different key. Omit the key.")
    return known


def new_message_id() -> str:
    return uuid4().hex


def new_key() -> str:
    return b64encode(secrets.token_bytes(KEY_BYTES)).decode()
