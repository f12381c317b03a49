"""Faults on purpose, over HTTP, for users who test what their applications do about them. All of it needs Manage.

GET  /$stores                             how every messaging store is, and its faults, as JSON
POST /$stores/{index}/down | up           switch one off; switch it on again, without any fault
POST /$stores/{index}/slow?ms=N           every call of it takes so much longer
POST /$stores/{index}/lose-ack?count=N    the next N commits happen, and whoever waits for them is told that they failed
POST /$connections/disconnect             every client of the namespace loses its connection
POST /$connections/disconnect?entity=P    every link to an entity is detached, as when the service moves one
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twinbus.clock import Clock
from twinbus.errors import ArgumentError, MessagingError, Unauthorized
from twinbus.gateway.connections import Connections
from twinbus.http.administration.administration_api import Authorize
from twinbus.model.descriptions import Right
from twinbus.server.stores.served_store import LOST_ACKS_MAX, SLOW_S_MAX, ServedStore

Answer = Callable[[Request], dict[str, Any] | list[dict[str, Any]]]


class NoSuchSwitch(MessagingError):
    status = 404


class FaultSwitches:
    def __init__(
        self, stores: Sequence[ServedStore], connections: Connections, clock: Clock, authorize: Authorize
    ) -> None:
        self._stores = stores
        self._connections = connections
        self._clock = clock
        self._authorize = authorize

    def routes(self) -> list[Route]:
        return [
            Route("/$stores", self._guarded(lambda _: [_record(store) for store in self._stores])),
            Route("/$stores/{index:int}/{action}", self._guarded(self._switch), methods=["POST"]),
            Route("/$connections/disconnect", self._guarded(self._disconnect), methods=["POST"]),
        ]

    def _guarded(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            try:
                token = request.headers.get("authorization", "")
                if not token:
                    raise Unauthorized("This needs an Authorization header with a signature that has Manage.")
                self._authorize(token, "", Right.MANAGE)
                return JSONResponse(answer(request), status_code=200 if request.method == "GET" else 202)
            except MessagingError as error:
                return JSONResponse({"error": str(error)}, status_code=error.status)

        return respond

    def _switch(self, request: Request) -> dict[str, Any]:
        index, action = request.path_params["index"], request.path_params["action"]
        if index >= len(self._stores):
            raise NoSuchSwitch(f"There is no messaging store {index}; the last one is {len(self._stores) - 1}.")
        store = self._stores[index]
        if action == "down":
            store.down()
        elif action == "up":
            store.slow(0.0)
            store.lose_acks(0)
            store.up()
        elif action == "slow":
            store.slow(_number(request, "ms", int(SLOW_S_MAX * 1000)) / 1000)
        elif action == "lose-ack":
            store.lose_acks(_number(request, "count", LOST_ACKS_MAX))
        else:
            raise NoSuchSwitch(f"'{action}' is no switch of a store: use down, up, slow or lose-ack.")
        return _record(store)

    def _disconnect(self, request: Request) -> dict[str, Any]:
        entity = request.query_params.get("entity", "").strip("/")
        if entity:
            return {"entity": entity, "links": self._connections.force_detach(entity, self._clock.now())}
        return {"connections": self._connections.cut_all()}


def _record(store: ServedStore) -> dict[str, Any]:
    return {
        "index": store.index,
        "condition": store.condition.value,
        "fault": store.fault or None,
        "slow_ms": round(store.delay_s * 1000),
        "acks_to_lose": store.acks_to_lose,
    }


def _number(request: Request, name: str, highest: int) -> int:
    text = request.query_params.get(name, "")
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > highest:
        raise ArgumentError(f"'{name}' has to be a whole number from 0 to {highest}.")
    return int(text)
