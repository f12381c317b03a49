"""What a node answers when another one asks it: the questions of `membership` and of the pages of the namespace."""

import asyncio
import logging
from typing import Any

from twinbus.errors import MessagingError
from twinbus.http.own.faults import DISCONNECT, SWITCH
from twinbus.http.own.metrics import METRICS
from twinbus.http.own.operations_log import FLUSH
from twinbus.http.own.store_records import STORES
from twinbus.management.control_plane import WAIT_FOR_TURN_S
from twinbus.management.follower import Follower
from twinbus.model.paths import parse_address, path_key
from twinbus.server.namespace import NamespaceServer
from twinbus.server.nodes.membership import ACCESS_RULES, AVAILABLE, CLOSE, DELETE, IDLE, Asking
from twinbus.server.nodes.switchboard import FOLLOW, Words

log = logging.getLogger(__name__)

CLOSED_S = 5.0
"""How long an entity that was found idle stays closed before this node looks itself what came of it. Deleting it takes moments."""


class Answers:
    """`started` is set when the server is ready. What is asked before that it finds in the catalog itself, or cannot do yet."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._tasks: set[asyncio.Task[None]] = set()  # the loop holds only weak references
        self._started = asyncio.Event()
        self._server: NamespaceServer | None = None
        asking.answering |= {
            FOLLOW: self._follow,
            DELETE: self._delete,
            ACCESS_RULES: self._access_rules,
            AVAILABLE: self._available,
            IDLE: self._idle,
            CLOSE: self._close_if_idle,
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
        # A node of an earlier release closes nothing, and does not say so.
        await self.follower.delete(details["path"], is_closed=details.get("is_closed", False))

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

    async def _close_if_idle(self, details: Words) -> bool:
        server, path = await self._ready(), details["path"]
        is_idle = server.entities.close_if_idle(path, server.clock.now())
        if is_idle:
            task = asyncio.get_running_loop().create_task(self._reopen_in_its_turn(path))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return is_idle

    async def _reopen_in_its_turn(self, path: str) -> None:
        """Who asked has the turn of the name, and tells what came of it before it ends the turn. If it cannot, the catalog tells."""
        assert self._server is not None
        name = path_key(parse_address(path).path)
        while True:
            await asyncio.sleep(CLOSED_S)
            if not self._server.entities.is_leaving(path):
                return
            try:
                async with self._asking.turn(name, WAIT_FOR_TURN_S):
                    await self.follower.follow(path)
            except MessagingError as fault:
                log.warning("closed_entity_not_followed", extra={"fields": {"path": path, "reason": str(fault)}})

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
