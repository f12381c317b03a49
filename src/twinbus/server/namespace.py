"""A namespace as a running server: settings in; folder, stores, brokers, catalog and listeners started and stopped in order.

One of several processes that serve a namespace (`nodes`) is the same, with some of the stores and without ports.

start   (wait as a spare >) hold the data folder > bind ports > catalog > restore entities > open stores > create new entities > listen
stop    close connections > stop listening > finish and close the stores > write the last operations > close the catalog
        > unlock the folder
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.connection_settings import ConnectionSettings
from twinbus.amqp.reassembly import SharedReassembly
from twinbus.broker.directory import Directory
from twinbus.broker.entity.entities import Entities
from twinbus.broker.transaction import OwnTransaction
from twinbus.clock import Clock, NamespaceClock
from twinbus.errors import (
    InternalError,
    OperationInProgress,
    OperationTimeout,
)
from twinbus.gateway.connection_gateway import ConnectionGateway
from twinbus.gateway.connections import ONLY_HERE, Connections
from twinbus.gateway.latencies import Stopwatch
from twinbus.gateway.namespace_view import NamespaceView, Traffic
from twinbus.gateway.transaction_room import TransactionRoom
from twinbus.gateway.turns import Turns
from twinbus.http.application import HttpApplication, HttpParts
from twinbus.http.own.other_nodes import NO_OTHERS
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane
from twinbus.management.idle_sweep import IdleSweep
from twinbus.management.own_process import restore
from twinbus.management.peers import NO_PEERS
from twinbus.meter.book import OperationsBook
from twinbus.model.descriptions import AuthorizationRule
from twinbus.server.data.data_folder import OPERATIONS_FOLDER
from twinbus.server.data.data_folder import open_store as open_durable_store
from twinbus.server.data.forwarding_pause import ForwardingShare
from twinbus.server.data.holdings import Holdings, new_key
from twinbus.server.listening.accepting import Acceptor
from twinbus.server.listening.admission import Admission, socket_count_max
from twinbus.server.listening.host_names import authority
from twinbus.server.listening.http_server import HttpServer
from twinbus.server.listening.listener import AmqpTransport
from twinbus.server.listening.overload import Overload
from twinbus.server.listening.ports import (
    Door,
    PortNumbers,
    Ports,
    host_names,
    plain_connection_string,
    plain_name,
    tls_connection_string,
    tls_files,
)
from twinbus.server.listening.refusal_log import RefusalLog
from twinbus.server.listening.sockets import FIRST_BYTES_WAIT_S, MakeProtocol, SharedPort
from twinbus.server.metering import Metering
from twinbus.server.server_settings import ServerSettings
from twinbus.server.stores.host_process import HostProcess
from twinbus.server.stores.places import StoresToKeep, location_of
from twinbus.server.stores.pool import StorePool
from twinbus.server.stores.process import StoreProcess
from twinbus.server.stores.served_store import OnLost, OnReturned, StoreKeeper
from twinbus.server.stores.threads import OpenStore, StoreThreads
from twinbus.server.timers import Beat, Stepping, Ticking
from twinbus.server.tracing import OpenTelemetrySpans
from twinbus.store.store_limits import StoreLimits

if TYPE_CHECKING:
    import ssl

    from twinbus.cluster.fronts.fronts import Fronts
    from twinbus.gateway.web_tokens import WebTokens
    from twinbus.server.machines.node import MachineNode
    from twinbus.server.nodes.membership import Membership
    from twinbus.store.postgres.place import Owner

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE_MAX = 4
"""Each takes a fraction of a millisecond, and what its client says first up to one: more of them would be felt by those who are
connected, and fewer by those who connect."""
PREPARE_WAIT_S = 60.0
PREPARE_PAUSE_S = 0.25


class NamespaceServer:
    """`open_store` and `clock` are for tests; a served namespace is on disk and follows the wall clock.

    `has_store_process`: its stores run in a process of their own, for throughput. Without one a namespace starts faster.
    `owner`: as whom it owns its stores, where those are in PostgreSQL.
    `spans`: what it does is traced.
    `membership`: which of the nodes it is, where several serve the namespace. `store_host`: hired for it before.
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
        store_host: HostProcess | None = None,
    ) -> None:
        self.settings = settings
        self._store_host = store_host
        self._spans = spans
        self.owner = owner
        self._membership = membership
        self.clock = clock or NamespaceClock()
        self.traffic = Traffic(stopwatch=Stopwatch(time.perf_counter, self.clock.now))
        self._transaction_room = TransactionRoom()
        self.traffic.stopwatch.spans = spans
        self.numbers = PortNumbers(settings.amqp_port, settings.http_port, settings.tls_port)
        self.tls_authority: Path | None = None  # what clients over TLS must trust if no certificate was given
        self._open_store = open_store or partial(open_durable_store, limits=StoreLimits.shared_by(settings.store_count))
        self._has_store_process = has_store_process
        self.connections = Connections(settings.connections_max, membership or ONLY_HERE)
        self.metering: Metering | None = None
        self._web_tokens: WebTokens | None = None
        self._acceptor: Acceptor | None = None
        self._arriving: set[asyncio.Task[None]] = set()
        self._http_server: HttpServer | None = None
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
            await self._give_up()
            raise

    async def _give_up(self) -> None:
        """A start that failed, wherever that was."""
        try:
            self._stop_listening()
            if self._http_server is not None:
                await self._http_server.stop()
            if self.metering is not None:
                await self.metering.stop()
        finally:
            self._close_rest()

    async def _start(self, prepare: "Prepare | None") -> None:
        settings, loop = self.settings, asyncio.get_running_loop()
        self._turns = Turns(loop.call_soon, loop.time, time.thread_time)
        membership = self._membership
        self._holdings = Holdings(settings, self.clock, self._closers.append, self.owner, membership, self._machine)
        await self._trust()
        if membership is None or membership.numbers is None:
            self._ports = Ports(settings, self._closers.append)
            self.numbers = self._ports.numbers
        else:
            self.numbers = membership.numbers
        wanted = await self._holdings.open()
        self.stores = StorePool(
            partial(self._keeper, wanted, loop),
            self.clock,
            settings.store_count,
            self._holdings.store_opened,
            are_shared=self._machine is not None,
            database_count=len(settings.store_dsns),
        )
        for store in self.stores.stores:
            store.process = self.owner.address if self.owner is not None else this_process()
            store.location = location_of(wanted.places[store.index])
        ticking: list[Ticking] = [*self.stores.brokers]
        if not settings.store_dsns:  # else a backup is the database's own
            share = ForwardingShare(
                settings.data_folder,
                self.stores.forwarding_gate,
                lambda: self.stores.is_forwarding,
                self.clock.now(),
            )
            self._closers.append(share.close)
            ticking.append(share)
        self.entities = Entities(self.stores.brokers)
        self.traffic.name_at = self.entities.name_at
        if membership is not None:
            self._fronts = membership.fronts(self.entities, self.clock)
        changing = () if membership is None else membership.changing_at_start
        restore(self.catalog, self.entities, self.clock.now(), changing)
        peers = NO_PEERS if membership is None else membership.peers
        self.control = ControlPlane(self.catalog, self.entities, self.clock, peers, self._directory)
        self._closers.append(self.control.close)
        self._start_metering()
        self._closers.append(self.stores.abandon)
        await self.stores.start()
        sweep = IdleSweep(self.control, self.entities.idle)
        overload = Overload(self.connections, self.reassembly, settings.shared_limits.unread_size_max, self.refusals)
        ticking += [sweep, overload, self.refusals]
        if self.metering is not None:
            ticking.append(self.metering)
        if membership is not None:
            ticking += [membership.presence(self.admission), membership.mesh]
        if self._fronts is not None:
            ticking.append(self._fronts)
        stepping: list[Stepping] = [*self.stores.brokers, self.entities]
        if self._fronts is not None:
            stepping.append(self._fronts)
        if self._web_tokens is not None:
            stepping.append(self._web_tokens)
        self._beat = Beat(loop, self.clock, ticking, lambda: self.connections, stepping)
        self._beat.start()
        self._closers.append(self._beat.stop)
        await self._make_pages()
        if membership is not None:
            await membership.begin(self)
        if prepare is not None:
            await self.prepare(prepare)
        self._listen()
        log.info(
            "serving", extra={"fields": {"namespace": settings.name, "amqp": self.amqp_port, "http": self.http_port}}
        )

    @property
    def _machine(self) -> "MachineNode | None":
        """Where other nodes are on other machines."""
        membership = self._membership
        return membership if membership is not None and membership.numbers is None else None

    @property
    def catalog(self) -> Catalog:
        return self._holdings.catalog

    @property
    def root_rule(self) -> AuthorizationRule:
        return self._holdings.root_rule

    def follow_root_rule(self) -> None:
        self._holdings.follow_root_rule()

    @property
    def amqp_port(self) -> int:
        return self.numbers.amqp

    @property
    def http_port(self) -> int:
        return self.numbers.http

    @property
    def tls_port(self) -> int | None:
        return self.numbers.tls

    def _keeper(
        self, wanted: StoresToKeep, loop: asyncio.AbstractEventLoop, on_lost: OnLost, on_returned: OnReturned
    ) -> StoreKeeper:
        if self._has_store_process or wanted.have_leases:
            logs = (self.settings.log_format, self.settings.log_level)
            return StoreProcess(wanted, logs, loop, on_lost, on_returned, self._store_host)
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

    async def prepare(self, prepare: "Prepare") -> None:
        """Beside other nodes, which may be starting too: what cannot be created yet can be in a moment."""
        deadline = asyncio.get_running_loop().time() + (PREPARE_WAIT_S if self._membership is not None else 0.0)
        said = ""
        while True:
            try:
                await prepare(self)
            except (InternalError, OperationTimeout, OperationInProgress) as fault:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                if str(fault) != said:
                    said = str(fault)
                    log.warning("waiting_to_create_entities", extra={"fields": {"reason": said}})
                await asyncio.sleep(PREPARE_PAUSE_S)
            else:
                return

    async def _make_pages(self) -> None:
        self.http = HttpApplication(self._http_parts())
        application = self.http.guarded if self._spans is None else self._spans.traced(self.http.guarded)
        self._http_server = http_server = HttpServer(application, self.admission)
        http_server.start()
        loop = asyncio.get_running_loop()
        tls = tls_files(self.settings, self.clock.now())
        self.tls_authority = tls.authority
        shared = partial(SharedPort, self._transport, http_server.protocol, self.admission, loop)
        self._doors = {
            Door.SHARED: (partial(shared, tls=tls.context), None),
            Door.TLS: (shared, tls.context),
            Door.HTTP: (http_server.protocol, None),
        }

    def _listen(self) -> None:
        if self._membership is not None and self._membership.numbers is not None:
            return
        self._acceptor = Acceptor(self._ports.doors, self._arrived, ACCEPTED_AT_ONCE_MAX)
        self._acceptor.open()

    def _arrived(self, connection: "socket.socket", door: Door) -> None:
        connection.setblocking(False)
        task = asyncio.get_running_loop().create_task(self.welcome(connection, door))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    def _stop_listening(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            for sock, _ in self._ports.doors:
                sock.close()
        for task in self._arriving:
            task.cancel()

    async def welcome(self, connection: "socket.socket", door: Door) -> None:
        """A connection that this process has accepted, or another one."""
        make, context = self._doors[door]
        # A client that does not speak TLS, or is gone by now, is not worth a word.
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
            transaction_room=self._transaction_room,
            must_wait=self.stores.pressure.must_wait,
            heard_of=self.stores.pressure.heard_of,
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
            reassembly=self.reassembly,
            turns=self._turns,
            amqp_authority=authority(plain_name(self.settings), self.amqp_port),
            host_names=host_names(self.settings),
            new_key=new_key,
            root_key_change=partial(self._holdings.root_key_change, lambda: self.on_new_root_key()),
            operations_log=self.metering,
            other_nodes=NO_OTHERS if self._membership is None else self._membership.others,
            metrics_of_all=None if self._membership is None else self._membership.metrics_of_all,
            nodes=self._machine,
        )

    async def stop(self) -> None:
        """Close connections and files in order. Everything that was acknowledged is durable already."""
        if self._machine is not None:
            await self._machine.hand_over()
        self._stop_listening()
        self.connections.close_all()
        for undecided in tuple(self.admission.undecided):
            undecided.cut()
        self.http.close()
        if self._http_server is not None:
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


def this_process() -> str:
    """As people find it."""
    return f"{socket.gethostname()}, process {os.getpid()}"


def new_message_id() -> str:
    return uuid4().hex
