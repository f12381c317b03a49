"""Faults on purpose, for users who test how their applications cope with them. All of it needs Manage.

GET  /$stores                             every messaging store with its condition and its faults, as JSON
POST /$stores/{index}/down | up           switch one off; switch it on again, without any fault. 200: it has taken
                                          effect; 202: it takes long, or the store cannot be opened (see `condition`).
                                          Of several machines it holds for all, and for those that come later
POST /$stores/{index}/check?after=PLACE   compare some rows at rest with their checksums; `next` is where to go on, null at
                                          the end. Damaged rows are set aside, and the store opens again: `failed` says so
POST /$stores/{index}/slow?ms=N           every call of it takes this much longer
POST /$stores/{index}/lose-ack?count=N    the next N commits are made, and reported as failed
POST /$connections/disconnect             every client of the namespace loses its connection
POST /$connections/disconnect?entity=P    every link to an entity is detached, as when the service moves one
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from twinbus.clock import Clock
from twinbus.errors import ArgumentError, MessagingError, StoreUnavailable
from twinbus.gateway.connections import Connections
from twinbus.http.access import HttpAccess
from twinbus.http.own.nodes import Nodes
from twinbus.http.own.other_nodes import OtherNodes
from twinbus.http.own.store_records import DOWN, UP, StoreRecords, StoreState, record_of
from twinbus.store.damage import CheckedPage
from twinbus.store.reads import CheckRows, Read

T = TypeVar("T")

ACTIONS = (DOWN, UP, "check", "slow", "lose-ack")
DIGITS_MAX = 9
PLACE_MAX = (1 << 63) - 1
SWITCH, DISCONNECT = "switch", "disconnect"
"""Questions to other nodes."""


class NoSuchSwitch(MessagingError):
    status = 404


class SwitchedStore(StoreState, Protocol):
    """A messaging store that can be broken on purpose. A switch raises ArgumentError for a value beyond its limit."""

    @property
    def is_foreign(self) -> bool: ...
    def query(self, read: Read[T], done: Callable[[T | StoreUnavailable], None], /) -> None: ...
    def slow(self, delay_s: float) -> None: ...
    def lose_acks(self, count: int) -> None: ...


class StoreSwitches(Protocol):
    """Answers whether the switch has taken effect."""

    async def switch_off(self, index: int) -> bool: ...
    async def switch_on(self, index: int) -> bool: ...


class FaultSwitches:
    def __init__(
        self,
        stores: Sequence[SwitchedStore],
        switches: StoreSwitches,
        connections: Connections,
        clock: Clock,
        others: OtherNodes,
        nodes: Nodes | None = None,
    ) -> None:
        self._nodes = nodes
        self._stores = stores
        self._switches = switches
        self._connections = connections
        self._clock = clock
        self._others = others
        self.records = StoreRecords(stores, others)

    def routes(self, access: HttpAccess) -> list[Route]:
        page = access.page
        return [
            Route("/$stores", page(self._show)),
            Route("/$stores/{index:int}/{action}", page(self._switch), methods=["POST"]),
            Route("/$connections/disconnect", page(self._disconnect), methods=["POST"]),
        ]

    async def _show(self, _: Request) -> Response:
        return JSONResponse(await self.records.all())

    async def _switch(self, request: Request) -> Response:
        index, action = request.path_params["index"], request.path_params["action"]
        if index >= len(self._stores):
            raise NoSuchSwitch(f"There is no messaging store {index}; the last one is {len(self._stores) - 1}.")
        if action not in ACTIONS:
            raise NoSuchSwitch(f"A store has no switch '{action}': use down, up, check, slow or lose-ack.")
        details = {"index": index, "action": action, "values": dict(request.query_params)}
        if self._nodes is not None and action in (DOWN, UP):
            is_done = await self._nodes.switch(index, is_up=action == UP)
            if action == DOWN or not is_done:
                body = (await self.records.all())[index]
                return JSONResponse(body, status_code=200 if is_done else 202)
            # Its owner ends other faults that it has.
        if self._stores[index].is_foreign:
            status, body = await self._others.ask_owner(index, SWITCH, details)
        else:
            status, body = await self.switch(details)
        return JSONResponse(body, status_code=status)

    async def switch(self, details: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """A store of this process. Status and body of the answer."""
        index, action, values = details["index"], details["action"], details["values"]
        store, is_done = self._stores[index], False
        if action == "check":
            return 200, await _check(store, _place(values))
        if action == DOWN:
            is_done = await self._switches.switch_off(index)
        elif action == UP:
            is_done = await self._switches.switch_on(index)
        elif action == "slow":
            store.slow(_number(values, "ms") / 1000)
        else:
            store.lose_acks(_number(values, "count"))
        return 200 if is_done else 202, record_of(store)

    async def _disconnect(self, request: Request) -> Response:
        entity = request.query_params.get("entity", "").strip("/")
        others = await self._others.ask_all(DISCONNECT, {"entity": entity})
        count = self.disconnect(entity) + sum(each for each in others.values() if isinstance(each, int))
        done: dict[str, Any] = {"entity": entity, "links": count} if entity else {"connections": count}
        return JSONResponse(done, status_code=202)

    def disconnect(self, entity: str) -> int:
        """Clients of this process. How many connections or, of an entity, links there were."""
        if entity:
            return self._connections.force_detach(entity, self._clock.now())
        return self._connections.cut_all()


async def _check(store: SwitchedStore, after: int) -> dict[str, Any]:
    answered: asyncio.Future[CheckedPage | StoreUnavailable] = asyncio.get_running_loop().create_future()

    def answer(page: CheckedPage | StoreUnavailable) -> None:
        if not answered.done():
            answered.set_result(page)

    store.query(CheckRows(after), answer)
    page = await answered
    if isinstance(page, StoreUnavailable):
        return {"checked": 0, "next": after, "failed": str(page)}
    return {"checked": page.checked, "next": page.next_id, "failed": None}


def _place(values: Mapping[str, str]) -> int:
    text = values.get("after", "-1")
    try:
        return max(-1, min(int(text), PLACE_MAX))
    except ValueError:
        raise ArgumentError("'after' has to be the place where an earlier page ended.") from None


def _number(values: Mapping[str, str], name: str) -> int:
    text = values.get(name, "")
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX:
        raise ArgumentError(f"'{name}' has to be a whole number of 0 or more, with at most {DIGITS_MAX} digits.")
    return int(text)
