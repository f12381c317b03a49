"""One change at a time for each name: a name goes in, and the caller goes on when the name is free."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from twinbus.errors import OperationInProgress
from twinbus.model.paths import path_key


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    user_count: int = 0


class Turns:
    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._turns: dict[str, _Turn] = {}

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Raises OperationInProgress if the name is not free in time. Names that differ in case only are one."""
        key = path_key(name)
        turn = self._turns.setdefault(key, _Turn())
        turn.user_count += 1
        try:
            await self._acquire(turn.lock, name)
            try:
                yield
            finally:
                turn.lock.release()
        finally:
            turn.user_count -= 1
            if not turn.user_count:
                del self._turns[key]

    async def _acquire(self, lock: asyncio.Lock, name: str) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await lock.acquire()
        except TimeoutError:
            raise OperationInProgress(f"Another change to '{name}' is still in progress. Try again later.") from None
