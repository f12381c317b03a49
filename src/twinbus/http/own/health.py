"""GET /health: 200 while some store works, with a list of those that do not; 503 while none does. GET /ready: for balancers.

A store whose disk is nearly full works, for receivers, and is listed by itself. Stores that work without rows that were found damaged are listed with how many they set aside. Which those are is for callers
with a right: `GET /$stores`. Stores are counted by where they are kept, those in PostgreSQL by whether the server has a synchronous
standby, and by the process that owns them. Probes may ask by any host name; one that is not ours gets the status and nothing else.

A spare listens on nothing, and one that was superseded owns no store: so among several machines with the same line the one that
is ready is the one that serves. Of several nodes that serve at once, one that is about to end, or that has not reached most of
the others for a while, is not ready.

A balancer waits for a second or so, and a question to a process that hangs takes longer. So `/ready` says what this process knows,
and shows the stores that it has: else one node that is frozen would take all of them out of service.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from twinbus.http.own.nodes import Nodes
from twinbus.http.own.store_records import UP, StoreRecord, StoreRecords, is_full
from twinbus.own_hosts import OwnHosts

UNAVAILABLE = "unavailable"
READY, NOT_READY = "ready", "not ready"


class HealthPage:
    def __init__(self, namespace: str, stores: StoreRecords, hosts: OwnHosts, nodes: Nodes | None = None) -> None:
        self._nodes = nodes
        self._namespace = namespace
        self._stores = stores
        self._hosts = hosts

    async def show(self, request: Request) -> Response:
        status, body = self._said(await self._stores.all())
        return self._answer(request, status, body, is_good=status != UNAVAILABLE)

    async def show_ready(self, request: Request) -> Response:
        status, body = self._said(self._stores.own())
        if self._nodes is None:
            is_ready = status != UNAVAILABLE or self._said(await self._stores.all())[0] != UNAVAILABLE
        else:
            reason = self._nodes.not_ready()
            is_ready, body = not reason, {**body, "reason": reason} if reason else body
        return self._answer(request, READY if is_ready else NOT_READY, body, is_good=is_ready)

    def _said(self, stores: Sequence[StoreRecord]) -> tuple[str, dict[str, Any]]:
        down = {store["index"]: store["condition"] for store in stores if store["condition"] != UP}
        damaged = {store["index"]: store["set_aside"] for store in stores if store["set_aside"]}
        full = [store["index"] for store in stores if is_full(store)]
        if len(down) == len(stores):
            status = UNAVAILABLE
        else:
            status = "limited" if down else "full" if full else "damaged" if damaged else "healthy"
        body: dict[str, Any] = {"namespace": self._namespace, "status": status, "unhealthy_stores": down}
        if full:
            body["full_stores"] = full
        if damaged:
            body["set_aside"] = damaged
        body["kept_in"] = dict(Counter(store["kept_in"] for store in stores if store["kept_in"]))
        body["owners"] = dict(Counter(store["owner"] for store in stores if store["owner"]))
        return status, body

    def _answer(self, request: Request, status: str, body: dict[str, Any], *, is_good: bool) -> Response:
        shown = {**body, "status": status} if self._hosts.include_host_of(request) else {"status": status}
        return JSONResponse(shown, status_code=200 if is_good else 503)
