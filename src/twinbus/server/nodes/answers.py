"""What a node answers when another one asks it: the questions of `membership` and of the pages of the namespace."""

import asyncio
from typing import Any

from twinbus.http.own.faults import DISCONNECT, SWITCH
from twinbus.http.own.metrics import METRICS
from twinbus.http.own.operations_log import FLUSH
from twinbus.http.own.store_records import STORES
from twinbus.management.follower import Follower
from twinbus.server.namespace import NamespaceServer
from twinbus.server.nodes.membership import ACCESS_RULES, AVAILABLE, DELETE, IDLE, Asking
from twinbus.server.nodes.switchboard import FOLLOW, Words


class Answers:
    """`started` is set when the server is ready. What is asked before that it finds in the catalog itself, or cannot do yet."""

    def __init__(self, asking: Asking) -> None:
        self._started = asyncio.Event()
        self._server: NamespaceServer | None = None
        asking.answering |= {
            FOLLOW: self._follow,
            DELETE: self._delete,
            ACCESS_RULES: self._access_rules,
            AVAILABLE: self._available,
            IDLE: self._idle,
            STORES: self._stores,
            SWITCH: self._switch,
            METRICS: self._metrics,
            DISCONNECT: self._disconnect,
            FLUSH: self._flush,
        }

    def start(self, server: NamespaceServer) -> None:
        self.follower = Follower(server.catalog, server.entities, server.clock)
        self._server = server
        self._started.set()

    async def _ready(self) -> NamespaceServer:
        await self._started.wait()
        assert self._server is not None
        return self._server

    async def _follow(self, details: Words) -> None:
        await self._ready()
        await self.follower.follow(details["path"])

    async def _delete(self, details: Words) -> None:
        await self._ready()
        await self.follower.delete(details["path"])

    async def _access_rules(self, _: Words) -> None:
        server = await self._ready()
        await self.follower.follow_access_rules()
        server.follow_root_rule()

    async def _available(self, _: Words) -> list[int]:
        if self._server is None:
            return []
        return [broker.index for broker in self._server.stores.brokers if broker.is_available]

    async def _idle(self, details: Words) -> bool:
        server = await self._ready()
        return server.entities.is_idle(details["path"], server.clock.now())

    # Who asks for a page waits for nobody who is just starting.

    async def _stores(self, _: Words) -> list[dict[str, Any]]:
        return [] if self._server is None else self._server.http.faults.records.own()

    async def _switch(self, details: Words) -> tuple[int, dict[str, Any]]:
        return await (await self._ready()).http.faults.switch(details)

    async def _metrics(self, details: Words) -> str:
        if self._server is None:
            return ""
        return (await self._server.http.metrics.scraped(details["wanted"], details["stores"])).decode()

    async def _disconnect(self, details: Words) -> int:
        return 0 if self._server is None else self._server.http.faults.disconnect(details["entity"])

    async def _flush(self, _: Words) -> None:
        if self._server is not None and self._server.metering is not None:
            await self._server.metering.flush()
