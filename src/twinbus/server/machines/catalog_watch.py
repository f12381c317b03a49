"""How much a node knows of the catalog that all nodes change: versions of it in, what waits for them out.

A node is told of a change before that is answered, unless it is taken for dead. So it compares versions with every beat, and once more when it
has got a store: whoever owned that may have been told of changes alone, and a node that knows less would make the fragments of a deleted
entity again and copy nothing to a new subscription, and what it takes like that is lost. What is changed later it is told, or the change fails:
nobody else can answer for the store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from twinbus.broker.telling import tell
from twinbus.errors import MessagingError

log = logging.getLogger(__name__)

AGAIN_S = 0.5
"""Until a catalog that could not be read is read again, while a store waits for that."""


class CatalogWatch:
    """Lives on the event loop. `followed`: the version that this node began with; `version`: of the last change, blocks; `follow_all`: learn
    whatever differs. Returns False if some of it has to be looked at again, which is then not used here or told by somebody else."""

    def __init__(self, followed: int, version: Callable[[], int], follow_all: Callable[[], Awaitable[bool]]) -> None:
        self._followed: int | None = followed
        self._version = version
        self._follow_all = follow_all
        self._following = asyncio.Lock()
        self._waiting: list[Callable[[], None]] = []
        self._looking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def seen(self, version: int) -> None:
        """With a beat."""
        if version != self._followed and not self._following.locked():
            self._spawn(self._try_to_follow(version))

    def when_known(self, call: Callable[[], None]) -> None:
        """Call this when the node knows all that was changed until now."""
        self._waiting.append(call)
        if self._looking is None or self._looking.done():
            self._looking = self._spawn(self._look())

    async def _look(self) -> None:
        said = ""
        while self._waiting:
            count = len(self._waiting)
            try:
                await self._follow(await asyncio.to_thread(self._version))
            except MessagingError as fault:
                if str(fault) != said:
                    said = str(fault)
                    log.warning("stores_wait_for_catalog", extra={"fields": {"stores": count, "reason": said}})
                await asyncio.sleep(AGAIN_S)
                continue
            calls, self._waiting = self._waiting[:count], self._waiting[count:]
            for call in calls:
                tell(call)

    async def _try_to_follow(self, version: int) -> None:
        try:
            await self._follow(version)
        except MessagingError as fault:
            log.warning("catalog_not_followed", extra={"fields": {"reason": str(fault)}})

    async def _follow(self, version: int) -> None:
        async with self._following:
            if version != self._followed:
                self._followed = version if await self._follow_all() else None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop holds only weak references
        task.add_done_callback(self._tasks.discard)
        return task
