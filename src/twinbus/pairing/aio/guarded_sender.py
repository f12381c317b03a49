"""A stock sender of asyncio that several tasks may share and that keeps its timeout.

The SDK's senders are for one task at a time. A call that is cancelled at its deadline may leave
the sender in the middle of a frame, so such a sender is replaced.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.clock import Clock, Millis
from twinbus.pairing.stock.attempt import Attempt
from twinbus.pairing.stock.guarded_sender import LINE_LOOK_S, OVERTIME
from twinbus.pairing.stock.line import Line, NotWantedAnyMore, Wait, WaitedForItself
from twinbus.pairing.stock.local_lag import LocalLag

CLOSE_WAIT_S = 5.0
TURN_WAIT_S = 2.0
"""How long a close waits for the call under way, before it ends it and afterwards."""

T = TypeVar("T")


class GuardedSender:
    def __init__(self, open_stock: Callable[[], ServiceBusSender], clock: Clock, lag: LocalLag | None = None) -> None:
        self.line = Line()
        self._open_stock = open_stock
        self._stock = open_stock()
        self._clock = clock
        self._lag = lag or LocalLag(clock)
        self._watch: _Watch | None = None

    @property
    def stock(self) -> ServiceBusSender:
        return self._stock

    async def run(self, operation: Callable[[ServiceBusSender, float], Awaitable[T]], timeout_s: float) -> T:
        result: T = await self.perform(Attempt(operation, timeout_s))
        return result

    async def perform(self, attempt: Attempt) -> Any:
        """Once the sender is free. The attempt learns how long it waited: for its turn, and while the loop was held up."""
        if not self.line.take():
            await self._wait_in_line(attempt)
        lost = self._lost_so_far()
        try:
            async with asyncio.timeout(None) as limit:
                self._watch = watch = _Watch(limit, attempt.timeout_s, self._lost_so_far, lost)
                try:
                    result = await attempt.operation(self._stock, attempt.timeout_s)
                    if self.line.waiting:
                        self.line.moved_at = self._clock.now()
                except asyncio.CancelledError:
                    self._replace()
                    raise
                finally:
                    watch.end()
                    self._watch = None
        except (TimeoutError, OperationTimeoutError) as error:
            if self._lost_so_far() - lost > attempt.lag_max:
                raise WaitedForItself(message="The event loop was held up for a part of the timeout.") from error
            if isinstance(error, OperationTimeoutError):
                raise
            raise OperationTimeoutError(message="The operation did not finish within its timeout.") from error
        finally:
            self.line.pass_on()
            attempt.waited += self._lost_so_far() - lost
        return result

    async def _wait_in_line(self, attempt: Attempt) -> None:
        loop = asyncio.get_running_loop()
        wait, turn = Wait(self.line, attempt, self._clock), loop.create_future()

        def call() -> None:
            if not turn.done():
                turn.set_result(None)

        self.line.join(call)
        reason: Exception | None = None
        try:
            while not turn.done():
                await asyncio.wait((turn,), timeout=LINE_LOOK_S)
                reason = None if turn.done() else wait.reason_to_leave()
                if reason is not None and self.line.leave(call):
                    break
        except BaseException:
            if not self.line.leave(call):
                self.line.pass_on()
            raise
        if not isinstance(reason, WaitedForItself):
            attempt.waited += wait.waited()
        if turn.done():
            reason = NotWantedAnyMore() if not attempt.is_wanted() else None
            if reason is not None:
                self.line.pass_on()
        if reason is not None:
            raise reason

    async def close(self) -> None:
        """Once the sender is free: the SDK answers a close in the middle of a send by sending the message again, on a connection that
        nobody closes then. A cancelled close goes on."""
        await asyncio.shield(_in_background(self._close_in_turn()))

    async def _close_in_turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()

        def call() -> None:
            turn.set_result(None)

        self.line.join(call)
        try:
            await asyncio.wait((turn,), timeout=TURN_WAIT_S)
            if not turn.done() and self._watch is not None:
                self._watch.end_now()
                await asyncio.wait((turn,), timeout=TURN_WAIT_S)
            await _close(self._stock)
        finally:
            if not self.line.leave(call):
                self.line.pass_on()

    def _lost_so_far(self) -> Millis:
        return self._lag.total(self._clock.now())

    def _replace(self) -> None:
        broken, self._stock = self._stock, self._open_stock()
        close_aside(broken)


class _Watch:
    """Ends a call at its deadline, later by what the loop lost meanwhile."""

    def __init__(
        self, limit: asyncio.Timeout, timeout_s: float, lost_so_far: Callable[[], Millis], lost: Millis
    ) -> None:
        self._limit, self._lost_so_far, self._lost = limit, lost_so_far, lost
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(timeout_s + OVERTIME / 1000, self._look)

    def _look(self) -> None:
        lost = self._lost_so_far()
        if lost > self._lost:
            self._handle = self._loop.call_later((lost - self._lost) / 1000, self._look)
            self._lost = lost
        else:
            self._limit.reschedule(self._loop.time())

    def end(self) -> None:
        self._handle.cancel()

    def end_now(self) -> None:
        self._limit.reschedule(self._loop.time())


_closing: set[asyncio.Task[None]] = set()


def _in_background(closing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    _closing.add(task := asyncio.get_running_loop().create_task(closing))
    task.add_done_callback(_closing.discard)
    return task


def close_aside(stock: "Closeable") -> None:
    """Close what is of no more use. One that is only forgotten keeps its connection open, by a task that sends heartbeats."""
    _in_background(_close(stock))


class Closeable(Protocol):
    async def close(self) -> None: ...


async def _close(stock: Closeable) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_WAIT_S):
            await stock.close()
