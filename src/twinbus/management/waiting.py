"""Waiting on the event loop, but not for ever: for the turn of a name, and for the answer of a broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twinbus.broker.replies import Reply
from twinbus.errors import MessagingError, OperationInProgress
from twinbus.model.paths import path_key

T = TypeVar("T")


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    user_count: int = 0


class Turns:
    """One change at a time for each name. Names are compared as paths are, without their case."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._turns: dict[str, _Turn] = {}

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Raises OperationInProgress if the name is not free in time."""
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


async def answer_of(ask: Callable[[Reply[T]], None], timeout_s: float, late: MessagingError) -> T:
    """The broker's answer, or raises it if it is an error. An answer that comes after the time is over is dropped."""
    answered: asyncio.Future[T | MessagingError] = asyncio.get_running_loop().create_future()
    ask(reply_to(answered))
    try:
        # Most answers come at once, and those who ask for many of them should not wait for a turn of the loop each time.
        result = answered.result() if answered.done() else await asyncio.wait_for(answered, timeout_s)
    except TimeoutError:
        raise late from None
    try:
        if isinstance(result, MessagingError):
            raise result
        return result
    finally:
        # An error leads back here by its traceback: only the collector would free it.
        del answered, result


def reply_to(answered: "asyncio.Future[Any]") -> Callable[[Any], None]:
    def reply(result: Any) -> None:
        if not answered.done():
            answered.set_result(result)

    return reply
