"""GET /health: 200 while some store works, with a list of those that do not; 503 while none does.

Stores that work without rows that were found damaged are listed with how many they set aside. Which those are is for callers
with a right: `GET /$stores`. Stores in PostgreSQL are counted by whether the server has a synchronous standby. Probes may ask by any host name; one that is not ours gets the status and nothing else.
"""

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from twinbus.own_hosts import OwnHosts

FOLDER = "folder"  # where stores are unless somebody asked for another place


class StoreHealth(Protocol):
    """A messaging store as the server keeps it."""

    @property
    def index(self) -> int: ...
    @property
    def reported_condition(self) -> Enum: ...
    @property
    def is_up(self) -> bool: ...
    @property
    def set_aside(self) -> Sequence[str]: ...
    @property
    def kept_in(self) -> str: ...


class HealthPage:
    def __init__(self, namespace: str, stores: Sequence[StoreHealth], hosts: OwnHosts) -> None:
        self._namespace = namespace
        self._stores = stores
        self._hosts = hosts

    async def show(self, request: Request) -> Response:
        down = {store.index: store.reported_condition.value for store in self._stores if not store.is_up}
        damaged = {store.index: len(store.set_aside) for store in self._stores if store.set_aside}
        is_unavailable = len(down) == len(self._stores)
        status = "unavailable" if is_unavailable else "limited" if down else "damaged" if damaged else "healthy"
        body: dict[str, Any] = {"namespace": self._namespace, "status": status, "unhealthy_stores": down}
        if damaged:
            body["set_aside"] = damaged
        kept_in = Counter(store.kept_in for store in self._stores if store.kept_in not in ("", FOLDER))
        if kept_in:
            body["kept_in"] = dict(kept_in)
        if not self._hosts.include_host_of(request):
            body = {"status": status}
        return JSONResponse(body, status_code=503 if is_unavailable else 200)
