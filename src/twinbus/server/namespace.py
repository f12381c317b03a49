"""A namespace as a running server: settings in; folder, stores, brokers, catalog and listeners started and stopped in order.

One of several processes that serve a namespace (`nodes`) is the same, with some of the stores and without ports.

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
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

import uvloop

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.connection_settings import ConnectionSettings
from twinbus.amqp.reassembly import SharedReassembly
from twinbus.broker.directory import Directory
from twinbus.broker.entity.entities import Entities
from twinbus.broker.transaction import OwnTransaction
from twinbus.clock import Clock, SystemClock
from twinbus.errors import (
    ArgumentError,
    InternalError,
    OperationInProgress,
    OperationTimeout,
    StoreTaken,
    StoreUnavailable,
)
from twinbus.gateway.connection_gateway import ConnectionGateway
from twinbus.gateway.connections import ONLY_HERE, Connections
from twinbus.gateway.latencies import Stopwatch
from twinbus.gateway.namespace_view import NamespaceView, Traffic
from twinbus.gateway.turns import Turns
from twinbus.http.application import HttpApplication, HttpParts
from twinbus.http.own.other_nodes import NO_OTHERS
from twinbus.management.access_control import ROOT_RULE_NAME
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane, restore
from twinbus.management.idle_sweep import IdleSweep
from twinbus.management.peers import NO_PEERS
from twinbus.meter.book import OperationsBook
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.server.admission import Admission, socket_count_max
from twinbus.server.copy_marks import read_mark, require_whole
from twinbus.server.data_folder import KEY_BYTES, OPERATIONS_FOLDER, OTHER_KEY, DataFolder
from twinbus.server.data_folder import open_store as open_durable_store
from twinbus.server.host_names import authority
from twinbus.server.http_server import HttpServer
from twinbus.server.listener import AmqpTransport
from twinbus.server.metering import Metering
from twinbus.server.overload import Overload
from twinbus.server.ports import (
    Door,
    PortNumbers,
    Ports,
    host_names,
    plain_connection_string,
    plain_name,
    tls_connection_string,
    tls_files,
)
from twinbus.server.process_setup import set_up_process
from twinbus.server.refusal_log import RefusalLog
from twinbus.server.server_settings import ServerSettings
from twinbus.server.sockets import FIRST_BYTES_WAIT_S, MakeProtocol, SharedPort, listen
from twinbus.server.spare import Spare
from twinbus.server.stores.places import StoresToKeep
from twinbus.server.stores.pool import StorePool
from twinbus.server.stores.process import StoreProcess
from twinbus.server.stores.served_store import OnLost, OnReturned, StoreKeeper
from twinbus.server.stores.threads import OpenStore, StoreThreads
from twinbus.server.timers import Beat, Ticking
from twinbus.server.tracing import OpenTelemetrySpans, spans_of
from twinbus.store.store_limits import StoreLimits

if TYPE_CHECKING:
    import ssl

    from twinbus.cluster.fronts import Fronts
    from twinbus.gateway.web_tokens import WebTokens
    from twinbus.management.catalog_postgres import PostgresCatalog
    from twinbus.server.machines.node import MachineNode
    from twinbus.server.nodes.membership import Membership
    from twinbus.store.postgres.place import Owner, PostgresPlace

log = logging.getLogger(__name__)

CATALOG_NAME = "catalog.db"
PREPARE_WAIT_S = 60.0
PREPARE_PAUSE_S = 0.25


class NamespaceServer:
    """`open_store` and `clock` are for tests; a served namespace is on disk and uses the system clock.

    `has_store_process`: its stores run in a process of their own, for throughput. Without one a namespace starts faster.
    `owner`: as whom it owns its stores, where those are in PostgreSQL.
    `spans`: what it does is traced.
    `membership`: which of the nodes it is, where several serve the namespace.
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
        membership: "Membership | MachineNode | None" = None,
    ) -> None:
        self.settings = settings
        self._spans = spans
        self.owner = owner
        self._membership = membership
        self._unmarked: set[int] = set()  # stores that the catalog does not know to be in use yet
        self._marking: set[asyncio.Task[None]] = set()
        self._mark_created: Callable[[int], None] = lambda _: None
        self.clock = clock or SystemClock()
        self.traffic = Traffic(stopwatch=Stopwatch(time.perf_counter, self.clock.now))
        self.traffic.stopwatch.spans = spans
        self.numbers = PortNumbers(settings.amqp_port, settings.http_port, settings.tls_port)
        self.tls_authority: Path | None = None  # what clients over TLS must trust if no certificate was given
        self._open_store = open_store or partial(open_durable_store, limits=StoreLimits.shared_by(settings.store_count))
        self._has_store_process = has_store_process
        self.connections = Connections(
            settings.connections_max, ONLY_HERE if membership is None else membership.connection_count
        )
        self.metering: Metering | None = None
        self._web_tokens: WebTokens | None = None
        self._servers: list[asyncio.Server] = []
        self._doors: dict[Door, tuple[MakeProtocol, ssl.SSLContext | None]] = {}
        self.reassembly = SharedReassembly(settings.shared_limits.incomplete_size_max)
        self.refusals = RefusalLog()
        self.admission = Admission(settings.shared_limits, self.connections, self.refusals, socket_count_max())
        self._closers: list[Callable[[], None]] = []
        self._fronts: Fronts | None = None
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
        membership = self._membership
        self._folder = folder = DataFolder(settings.data_folder, None if membership is None else membership.lock)
        self._closers.append(folder.close)
        await self._trust()
        if membership is None or membership.numbers is None:
            self._ports = Ports(settings, self._closers.append)
            self.numbers = self._ports.numbers
        else:
            self.numbers = membership.numbers
        wanted = await self._open_catalog(folder)
        self._closers.append(self.catalog.close)
        self.stores = StorePool(
            partial(self._keeper, wanted, loop),
            self.clock,
            settings.store_count,
            self._on_opened,
            are_shared=self._machine is not None,
        )
        for store in self.stores.stores:
            store.process = self.owner.address if self.owner is not None else this_process()
        self.entities = Entities(self.stores.brokers)
        if membership is not None:
            self._fronts = membership.fronts(self.entities, self.clock)
        restore(self.catalog, self.entities, self.clock.now())
        peers = NO_PEERS if membership is None else membership.peers
        self.control = ControlPlane(self.catalog, self.entities, self.clock, peers, self._directory)
        self._start_metering()
        self._closers.append(self.stores.abandon)
        await self.stores.start()
        sweep = IdleSweep(self.control, self.entities.idle)
        overload = Overload(self.connections, self.reassembly, settings.shared_limits.unread_size_max, self.refusals)
        ticking: list[Ticking] = [*self.stores.brokers, sweep, overload, self.refusals]
        if self.metering is not None:
            ticking.append(self.metering)
        if membership is not None:
            ticking += [membership.presence(self.admission), membership.mesh]
        if self._fronts is not None:
            ticking.append(self._fronts)
        self._beat = Beat(loop, self.clock, ticking, lambda: self.connections)
        self._beat.start()
        self._closers.append(self._beat.stop)
        await self._make_pages()
        if self._machine is not None:
            await self._machine.begin(self)
        if prepare is not None:
            await self._prepare(prepare)
        await self._listen()
        log.info(
            "serving", extra={"fields": {"namespace": settings.name, "amqp": self.amqp_port, "http": self.http_port}}
        )

    @property
    def _machine(self) -> "MachineNode | None":
        """Where other nodes are on other machines."""
        membership = self._membership
        return membership if membership is not None and membership.numbers is None else None

    @property
    def amqp_port(self) -> int:
        return self.numbers.amqp

    @property
    def http_port(self) -> int:
        return self.numbers.http

    @property
    def tls_port(self) -> int | None:
        return self.numbers.tls

    async def _open_catalog(self, folder: DataFolder) -> StoresToKeep:
        """The catalog and the rule with all rights; says where the messaging stores are."""
        settings = self.settings
        if self._machine is not None:
            return await self._join(self._machine)
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
        membership = self._membership
        if membership is not None:
            self.catalog = Catalog.in_file(folder.path / CATALOG_NAME, settings.name, self.clock.now())
            self.follow_root_rule()
            return StoresToKeep(folder.store_paths(settings.store_count), own=membership.stores)
        self.root_rule = folder.root_rule(settings.shared_access_key)
        self.catalog = Catalog.in_file(folder.path / CATALOG_NAME, settings.name, self.clock.now())
        self.root_rule = keep_root_rule(self.catalog, self.root_rule)
        return StoresToKeep(folder.store_paths(settings.store_count))

    async def _join(self, machine: "MachineNode") -> StoresToKeep:
        settings = self.settings
        database = await asyncio.to_thread(machine.open_catalog)
        self._closers += [database.close, machine.close]
        require_whole(read_mark(database.copy_mark(), str(database.place)), f"table copy in {database.place}")
        self.catalog = await asyncio.to_thread(Catalog, database)
        self.root_rule = root_rule_in(self.catalog, settings.shared_access_key)
        if self.root_rule not in self.catalog.namespace_rules():
            async with machine.first_turn(ROOT_RULE_NAME):
                await asyncio.to_thread(self.catalog.reread_access_rules)
                self.root_rule = root_rule_in(self.catalog, settings.shared_access_key)
                await asyncio.to_thread(self.catalog.set_namespace_rule, self.root_rule)
        places = database.places(settings.store_dsns)
        self._mark_created = database.mark_created
        self._unmarked = {place.number for place in places if not place.is_created}
        machine.join(places)
        return StoresToKeep(places, self.owner, database.place, is_node=True)

    def follow_root_rule(self) -> None:
        """Another process may have given it a new key."""
        self.root_rule = {rule.name: rule for rule in self.catalog.namespace_rules()}[ROOT_RULE_NAME]

    def _hold_namespace(self) -> "PostgresCatalog":
        """Raises StoreTaken while another process serves the namespace."""
        from twinbus.management.catalog_postgres import PostgresCatalog, first_place
        from twinbus.store.postgres.lease import LeaseKeeper

        settings = self.settings
        assert self.owner is not None
        keeper = LeaseKeeper(lambda _, __: None, lambda: True)
        self._closers.append(keeper.close)
        place = first_place(settings.store_dsns, settings.name, self.owner)
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
        node = settings.name if self._membership is None else f"{settings.name}-{self._membership.label}"
        self.metering = Metering(folder, settings.name, self.clock, settings.exact_operations_max, node=node)
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

    async def _prepare(self, prepare: "Prepare") -> None:
        """Beside other machines, which may be starting too: what cannot be created yet can be in a moment."""
        deadline = asyncio.get_running_loop().time() + (PREPARE_WAIT_S if self._machine is not None else 0.0)
        while True:
            try:
                await prepare(self)
            except (InternalError, OperationTimeout, OperationInProgress):
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(PREPARE_PAUSE_S)
            else:
                return

    async def _make_pages(self) -> None:
        self.http = HttpApplication(self._http_parts())
        application = self.http.guarded if self._spans is None else self._spans.traced(self.http.guarded)
        self._http_server = HttpServer(application, self.admission)
        self._http_server.start()
        loop = asyncio.get_running_loop()
        tls = tls_files(self.settings, self.clock.now())
        self.tls_authority = tls.authority
        shared = partial(SharedPort, self._transport, self._http_server.protocol, self.admission, loop)
        self._doors = {
            Door.SHARED: (partial(shared, tls=tls.context), None),
            Door.TLS: (shared, tls.context),
            Door.HTTP: (self._http_server.protocol, None),
        }

    async def _listen(self) -> None:
        if self._membership is not None and self._membership.numbers is not None:
            return
        for sock, door in self._ports.doors:
            make, context = self._doors[door]
            self._servers.append(await listen(make, sock, context))

    async def welcome(self, connection: "socket.socket", door: Door) -> None:
        """A connection that another process has accepted."""
        make, context = self._doors[door]
        # A client that does not speak TLS, or is gone by now, is as little worth a word here as at a port of one process.
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                make, connection, ssl=context, ssl_handshake_timeout=None if context is None else FIRST_BYTES_WAIT_S
            )

    def _transport(self) -> AmqpTransport:
        return AmqpTransport(self._gateway, self.connections, self.clock, asyncio.get_running_loop(), self._turns)

    def _gateway(self, wake: Callable[[], None]) -> ConnectionGateway:
        now = self.clock.now()
        settings = ConnectionSettings(container_id=self.settings.name)
        return ConnectionGateway(Connection(Role.SERVER, settings, now, self.reassembly), self._view(), now, wake)

    @property
    def _directory(self) -> Directory:
        """What gateways see: of what other nodes have a part, a front."""
        return self.entities if self._fronts is None else self._fronts

    def _view(self) -> NamespaceView:
        return NamespaceView(
            entities=self._directory,
            control=self.control,
            rules=self.catalog,
            traffic=self.traffic,
            new_id=new_message_id,
            new_transaction=OwnTransaction if self._fronts is None else self._fronts.new_transaction,
            must_wait=self.stores.pressure.must_wait,
            hold_back=self.stores.pressure.hold_back,
            light_sent=self.stores.pressure.light_sent,
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
            amqp_authority=authority(plain_name(self.settings), self.amqp_port),
            host_names=host_names(self.settings),
            new_key=new_key,
            root_key_change=self._root_key_change,
            operations_log=self.metering,
            other_nodes=NO_OTHERS if self._membership is None else self._membership.others,
            nodes=self._machine,
        )

    async def stop(self) -> None:
        """Close connections and files in order. Everything that was acknowledged is durable already."""
        if self._machine is not None:
            await self._machine.hand_over()
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
        return plain_connection_string(self.settings, self.numbers, self.root_rule)

    @property
    def tls_connection_string(self) -> str | None:
        return tls_connection_string(self.settings, self.numbers, self.root_rule)


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
    if settings.node_name is not None:
        await _serve_as_node(stop, settings, owner, spans, on_ready, prepare)
        return
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


async def _serve_as_node(
    stop: asyncio.Event,
    settings: ServerSettings,
    owner: "Owner",
    spans: "OpenTelemetrySpans | None",
    on_ready: Callable[[NamespaceServer], None],
    prepare: Prepare | None,
) -> None:
    from twinbus.server.machines.node import MachineNode

    clock = SystemClock()
    node = MachineNode(settings, owner, clock)
    server = NamespaceServer(settings, clock=clock, has_store_process=True, owner=owner, spans=spans, membership=node)
    try:
        await server.start(prepare)
    except StoreUnavailable as refused:
        raise ArgumentError(str(refused)) from refused
    try:
        on_ready(server)
        ends = [asyncio.ensure_future(event.wait()) for event in (stop, node.drain_asked)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    finally:
        await server.stop()
    if node.replaced is not None:
        raise node.replaced


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


def keep_root_rule(catalog: Catalog, root_rule: AuthorizationRule) -> AuthorizationRule:
    """The folder has the primary key; the catalog may have a secondary one that was generated since."""
    known = {rule.name: rule for rule in catalog.namespace_rules()}.get(root_rule.name)
    if known is not None:
        root_rule = replace(known, primary_key=root_rule.primary_key)
    catalog.set_namespace_rule(root_rule)
    return root_rule


def root_rule_in(catalog: Catalog, wanted_key: str | None) -> AuthorizationRule:
    """The rule with all rights, kept in the catalog. A wanted key counts only if there is none yet."""
    known = {rule.name: rule for rule in catalog.namespace_rules()}.get(ROOT_RULE_NAME)
    if known is None:
        return AuthorizationRule(ROOT_RULE_NAME, wanted_key or new_key(), "", frozenset(Right))
    if wanted_key not in (None, known.primary_key):
        raise ArgumentError(OTHER_KEY)
    return known


def new_message_id() -> str:
    return uuid4().hex


def new_key() -> str:
    return b64encode(secrets.token_bytes(KEY_BYTES)).decode()
