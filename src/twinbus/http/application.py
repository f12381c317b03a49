"""Everything a namespace answers over HTTP, put together. The package's docstring says which module answers what."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Scope

from twinbus.amqp.reassembly import SharedReassembly
from twinbus.broker.entity.entities import Entities
from twinbus.clock import Clock
from twinbus.gateway.connections import Connections, MakeGateway
from twinbus.gateway.namespace_view import NamespaceView
from twinbus.gateway.turns import Turns
from twinbus.http.access import HttpAccess
from twinbus.http.administration.administration_api import AdministrationApi, AdministrationSettings
from twinbus.http.messaging.messaging_api import MessagingApi
from twinbus.http.own.access_rules import AccessRulesApi
from twinbus.http.own.backlog import BacklogPage
from twinbus.http.own.faults import FaultSwitches, StoreSwitches, SwitchedStore
from twinbus.http.own.health import HealthPage
from twinbus.http.own.metrics import AskForAll, NamespaceMetrics
from twinbus.http.own.nodes import Nodes, NodesPage
from twinbus.http.own.operations_log import OperationsLog, operations_log_routes
from twinbus.http.own.other_nodes import NO_OTHERS, OtherNodes
from twinbus.http.own.session_counts import SessionCountsPage
from twinbus.http.request_body import Bodies
from twinbus.http.websocket import websocket_routes
from twinbus.management.access_control import AccessControl, RootKeyChange
from twinbus.meter.operation import NO_METER
from twinbus.own_hosts import OwnHosts


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpParts:
    """The parts of a namespace that are reached over HTTP."""

    name: str
    view: NamespaceView
    own_entities: Entities  # with the fragments that this node serves: each node has metrics of its own
    clock: Clock
    stores: Sequence[SwitchedStore]
    store_switches: StoreSwitches
    connections: Connections
    make_gateway: MakeGateway
    reassembly: SharedReassembly
    turns: Turns
    amqp_authority: str  # host:port for requests that name no host
    host_names: Collection[str]  # of the namespace, beside localhost and addresses
    new_key: Callable[[], str]
    root_key_change: RootKeyChange
    operations_log: OperationsLog | None  # None: operations are not logged
    other_nodes: OtherNodes = NO_OTHERS
    metrics_of_all: AskForAll | None = None  # of several processes
    nodes: Nodes | None = None  # of several machines


class HttpApplication:
    def __init__(self, parts: HttpParts) -> None:
        view, clock = parts.view, parts.clock
        hosts = OwnHosts(parts.host_names)
        access = HttpAccess(view.rules, clock, view.web_tokens)
        totals = view.book.totals if view.book is not None else {}
        others = parts.other_nodes
        self.faults = FaultSwitches(parts.stores, parts.store_switches, parts.connections, clock, others, parts.nodes)
        stores = self.faults.records
        self.metrics = NamespaceMetrics(
            parts.name,
            view.traffic,
            stores,
            parts.own_entities,
            parts.connections,
            totals,
            parts.metrics_of_all,
            parts.nodes,
        )
        bodies = Bodies(parts.reassembly)
        settings = AdministrationSettings(parts.amqp_authority, view.new_id, parts.new_key)
        administration = AdministrationApi(view.control, access, settings, bodies, view.book or NO_METER)
        self._messaging = MessagingApi(view, access, clock, bodies, behind=administration)
        access_control = AccessControl(view.control, parts.new_key, clock, parts.root_key_change)
        health = HealthPage(parts.name, stores, hosts, parts.nodes)
        routes: list[BaseRoute] = [
            _OwnPage("/health", health.show),
            _OwnPage("/ready", health.show_ready),
            _OwnPage("/metrics", access.page_open_here(self.metrics.show, hosts)),
            *websocket_routes(parts.make_gateway, parts.connections, parts.turns, clock),
            *NodesPage(parts.nodes).routes(access),
            *self.faults.routes(access),
            *AccessRulesApi(access_control, access, bodies).routes(),
            *BacklogPage(view.entities, clock, access).routes(),
            *SessionCountsPage(view.entities, clock, access).routes(),
        ]
        if parts.operations_log is not None:
            routes += operations_log_routes(parts.operations_log, access, others)
        self.asgi = Starlette(routes=[*routes, Mount("/", app=self._messaging)])
        self.guarded = access.guarded(self.asgi)

    def close(self) -> None:
        """Answer the requests that wait for a message: the namespace stops."""
        self._messaging.close()


class _OwnPage(Route):
    """A page of ours at a path that an entity may have as well: clients that administer one name the version of their API."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and b"api-version=" in scope["query_string"]:
            return Match.NONE, {}
        return super().matches(scope)
