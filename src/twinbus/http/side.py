"""The HTTP side of a namespace: health and metrics, whatever routes others bring, and the application behind them.

GET  /health     200 while some store works, with those that do not; 503 while none does
GET  /metrics    Prometheus text; from another machine it needs Manage
any other path   the application behind, which also has these two in requests with an api-version: entities may be called so
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from twinbus.clock import Clock
from twinbus.errors import Unauthorized
from twinbus.gateway.authorization import AccessRules, Grants, verify_token
from twinbus.http.messaging.cased_headers import CasedHttpProtocol
from twinbus.http.own.metrics import CONTENT_TYPE, NamespaceMetrics
from twinbus.model.descriptions import Right
from twinbus.server.server_settings import is_loopback
from twinbus.server.sockets import start_listening
from twinbus.server.stores.served_store import ServedStore, StoreCondition

SHUTDOWN_GRACE_S = 2
KEEP_ALIVE_S = 240  # as long as an idle AMQP connection


class HttpSide:
    def __init__(
        self, name: str, stores: Sequence[ServedStore], rules: AccessRules, clock: Clock, metrics: NamespaceMetrics
    ) -> None:
        self._name = name
        self._stores = stores
        self._rules = rules
        self._clock = clock
        self._metrics = metrics

    def application(self, behind: ASGIApp | None, routes: Sequence[BaseRoute] = ()) -> Starlette:
        own: list[BaseRoute] = [_OwnPage("/health", self._health), _OwnPage("/metrics", self._metrics_text), *routes]
        if behind is not None:
            own.append(Mount("/", app=behind))
        return Starlette(routes=own)

    async def _health(self, _: Request) -> Response:
        ill = {store.index: store.condition.value for store in self._stores if not _is_up(store)}
        body: dict[str, Any] = {"namespace": self._name, "status": "limited" if ill else "healthy", "ill_stores": ill}
        return JSONResponse(body, status_code=503 if len(ill) == len(self._stores) else 200)

    async def _metrics_text(self, request: Request) -> Response:
        # They name every entity. Who is on this machine could read the data folder as well.
        if request.client is None or not is_loopback(request.client.host):
            try:
                self.authorize(request.headers.get("authorization", ""), "", Right.MANAGE)
            except Unauthorized as error:
                return JSONResponse({"error": str(error)}, status_code=error.status)
        return Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE})

    def authorize(self, token: str, path: str, right: Right) -> None:
        """Raise Unauthorized unless the token gives this right on the path ("" is the namespace)."""
        now = self._clock.now()
        grants = Grants()
        grants.add(verify_token(token, path, self._rules, now))
        grants.require(right, path, now)


class _OwnPage(Route):
    """A page of ours at a path that an entity may have as well: clients that administer one name their API's version."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and b"api-version=" in scope["query_string"]:
            return Match.NONE, {}
        return super().matches(scope)


def _is_up(store: ServedStore) -> bool:
    return store.condition is StoreCondition.UP


class _QuietServer(uvicorn.Server):
    """The namespace decides when to stop: signals are not the HTTP server's to catch."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """An ASGI application on a socket, on the loop that is running."""

    def __init__(self, application: ASGIApp, listening: socket.socket) -> None:
        config = uvicorn.Config(
            application,
            http=CasedHttpProtocol,
            timeout_keep_alive=KEEP_ALIVE_S,
            lifespan="off",
            access_log=False,
            log_config=None,
            ws="websockets-sansio",
            # AMQP has heartbeats of its own, and the Python SDK reads too seldom to answer these in time.
            ws_ping_interval=None,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        )
        # Here, where a package that is missing keeps the namespace from starting, and not in the task below.
        config.load()
        self._server = _QuietServer(config)
        self._listening = listening
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        # The server itself listens some time after this returns, and by then it was said that the namespace is ready.
        start_listening(self._listening, self._server.config.backlog)
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=[self._listening]))

    def protocol(self) -> asyncio.Protocol:
        """For a connection that another listener has accepted; it ends with this server."""
        config = self._server.config
        make = cast(type[HttpToolsProtocol], config.http_protocol_class)
        return make(config=config, server_state=self._server.server_state, app_state={})

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await self._task
