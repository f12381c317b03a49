"""The HTTP side of a namespace: health, metrics, the fault switches of its stores, and the management application.

GET  /health                          200 while every store works, 503 with their conditions otherwise
GET  /metrics                         Prometheus text
GET  /$stores                         conditions as JSON                        Manage
POST /$stores/{index}/down|up         break and mend one messaging store        Manage
POST /$stores/{index}/slow?seconds=S  make every call of it take longer         Manage
WS   /$servicebus/websocket           AMQP over WebSocket
any other path                        the messaging application, and behind it the one for management
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from twinbus.clock import Clock
from twinbus.errors import MessagingError, Unauthorized
from twinbus.gateway.authorization import AccessRules, Grants, verify_token
from twinbus.model.descriptions import Right
from twinbus.server.broker_thread import SLOW_S_MAX, StoreCondition, StoreThread
from twinbus.server.cased_headers import CasedHttpProtocol
from twinbus.server.metrics import CONTENT_TYPE, NamespaceMetrics

SHUTDOWN_GRACE_S = 2
KEEP_ALIVE_S = 240  # as long as an idle AMQP connection


class HttpSide:
    def __init__(
        self, name: str, stores: Sequence[StoreThread], rules: AccessRules, clock: Clock, metrics: NamespaceMetrics
    ) -> None:
        self._name = name
        self._stores = stores
        self._rules = rules
        self._clock = clock
        self._metrics = metrics

    def application(self, management: ASGIApp | None, routes: Sequence[BaseRoute] = ()) -> Starlette:
        own: list[BaseRoute] = [
            Route("/health", self._health),
            Route("/metrics", self._metrics_text),
            Route("/$stores", self._list_stores),
            Route("/$stores/{index:int}/{action}", self._switch_store, methods=["POST"]),
            *routes,
        ]
        if management is not None:
            own.append(Mount("/", app=management))
        return Starlette(routes=own)

    async def _health(self, _: Request) -> Response:
        ill = {store.index: store.condition.value for store in self._stores if not _is_up(store)}
        body: dict[str, Any] = {"namespace": self._name, "status": "limited" if ill else "healthy", "ill_stores": ill}
        return JSONResponse(body, status_code=503 if len(ill) == len(self._stores) else 200)

    async def _metrics_text(self, _: Request) -> Response:
        return Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE})

    async def _list_stores(self, request: Request) -> Response:
        return self._guarded(request, lambda: JSONResponse([_store_record(store) for store in self._stores]))

    async def _switch_store(self, request: Request) -> Response:
        return self._guarded(request, lambda: self._switch(request))

    def _switch(self, request: Request) -> Response:
        index, action = request.path_params["index"], request.path_params["action"]
        if not 0 <= index < len(self._stores):
            return _problem(404, f"There is no messaging store {index}; the last one is {len(self._stores) - 1}.")
        store = self._stores[index]
        if action == "down":
            store.down()
        elif action == "up":
            store.up()
            store.slow(0.0)
        elif action == "slow":
            seconds = _seconds(request.query_params.get("seconds", ""))
            if seconds is None:
                return _problem(400, f"'seconds' has to be a number from 0 to {SLOW_S_MAX:.0f}.")
            store.slow(seconds)
        else:
            return _problem(404, f"'{action}' is no switch of a store: use down, up or slow.")
        return JSONResponse(_store_record(store), status_code=202)

    def _guarded(self, request: Request, answer: Callable[[], Response]) -> Response:
        try:
            self._require_manage(request.headers.get("authorization", ""))
        except MessagingError as error:
            return _problem(error.status, str(error))
        return answer()

    def _require_manage(self, token: str) -> None:
        if not token:
            raise Unauthorized("This needs an Authorization header with a shared access signature that has Manage.")
        self.authorize(token, "", Right.MANAGE)

    def authorize(self, token: str, path: str, right: Right) -> None:
        """Raise Unauthorized unless the token gives this right on the path ("" is the namespace)."""
        now = self._clock.now()
        grants = Grants()
        grants.add(verify_token(token, path, self._rules, now))
        grants.require(right, path, now)


def _is_up(store: StoreThread) -> bool:
    return store.condition is StoreCondition.UP


def _store_record(store: StoreThread) -> dict[str, Any]:
    return {"index": store.index, "condition": store.condition.value, "fault": store.fault or None}


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0.0 <= seconds <= SLOW_S_MAX else None


def _problem(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status)


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
            timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        )
        self._server = _QuietServer(config)
        self._listening = listening
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=[self._listening]))

    def protocol(self) -> asyncio.Protocol:
        """For a connection that another listener has accepted; it ends with this server."""
        config = self._server.config
        if not config.loaded:
            config.load()
        make = cast(type[HttpToolsProtocol], config.http_protocol_class)
        return make(config=config, server_state=self._server.server_state, app_state={})

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await self._task
