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

BEGUN_S = 5.0
"""How long a change may take that somebody has begun here, such as a deletion, before this node looks itself what came of it."""


class Answers:
    """`started` is set when the server is ready. What is asked before that it finds in the catalog itself, or cannot do yet."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._tasks: set[asyncio.Task[None]] = set()  # the loop holds only weak references
        self._begun: set[str] = set()  # paths of changes of which this node was not told what came of them
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
        for name in self._asking.changing_at_start:
            if not name.startswith("$"):  # of no entity
                self._begin(name, 0.0)
        self._started.set()

    async def _ready(self) -> NamespaceServer:
        await self._started.wait()
        assert self._server is not None
        return self._server

    async def _follow(self, details: Words) -> list[int]:
        await self._ready()
        await self.follower.follow(details["path"])
        self._begun.discard(path_key(details["path"]))
        return await self._available(details)

    async def _delete(self, details: Words) -> list[int]:
        await self._ready()
        self._begin(details["path"])
        # A node of an earlier release deletes so what it has closed, and changes the catalog last.
        await self.follower.delete(details["path"], is_closed=details.get("is_closed", False))
        return await self._available(details)

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
            self._begin(path)
        return is_idle

    def _begin(self, path: str, told_within_s: float | None = None) -> None:
        """Who asked has the turn of the name, and tells what came of it before it ends the turn. If it cannot, the catalog tells."""
        if path_key(path) not in self._begun:
            self._begun.add(path_key(path))
            task = asyncio.get_running_loop().create_task(self._follow_in_its_turn(path, told_within_s))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _follow_in_its_turn(self, path: str, told_within_s: float | None) -> None:
        name = path_key(parse_address(path).path)
        await asyncio.sleep(BEGUN_S if told_within_s is None else told_within_s)
        while path_key(path) in self._begun:
            try:
                async with self._asking.turn(name, WAIT_FOR_TURN_S):
                    await self._follow({"path": path})
            except MessagingError as fault:
                log.warning("change_not_followed", extra={"fields": {"path": path, "reason": str(fault)}})
                await asyncio.sleep(BEGUN_S)

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
