"""A stock sender of asyncio that several tasks may share and that keeps its timeout.

The SDK's senders are for one task at a time. A call that is cancelled at its deadline may leave
the sender in the middle of a frame, so such a sender is replaced.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

OVERTIME_S = 0.5
"""The SDK's own timeout should win where it works: it knows more about the failure."""
CLOSE_WAIT_S = 5.0

T = TypeVar("T")


class GuardedSender:
    def __init__(self, open_stock: Callable[[], ServiceBusSender]) -> None:
        self._open_stock = open_stock
        self._stock = open_stock()
        self._lock = asyncio.Lock()

    @property
    def stock(self) -> ServiceBusSender:
        return self._stock

    async def run(self, operation: Callable[[ServiceBusSender, float], Awaitable[T]], timeout_s: float) -> T:
        try:
            async with asyncio.timeout(timeout_s + OVERTIME_S), self._lock:
                try:
                    return await operation(self._stock, timeout_s)
                except asyncio.CancelledError:
                    self._replace()
                    raise
        except TimeoutError as error:
            raise OperationTimeoutError(message="The operation did not finish within its timeout.") from error

    async def close(self) -> None:
        await _close(self._stock)

    def _replace(self) -> None:
        broken, self._stock = self._stock, self._open_stock()
        _closing.add(task := asyncio.get_running_loop().create_task(_close(broken)))
        task.add_done_callback(_closing.discard)


_closing: set[asyncio.Task[None]] = set()


async def _close(stock: ServiceBusSender) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_WAIT_S):
            await stock.close()
