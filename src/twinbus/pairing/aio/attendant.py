"""The task of a pair: advances its timers and starts pings."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from azure.servicebus.aio import ServiceBusClient

from twinbus.clock import Clock, Millis
from twinbus.pairing.aio.guarded_sender import GuardedSender
from twinbus.pairing.attendant import LOOK_INTERVAL, PINGS_AT_ONCE_MAX, send_ping, until_next_look
from twinbus.pairing.deciding.entity_watch import Ping
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.pings import Pings, ping_timeout_s
from twinbus.pairing.stock.local_lag import LocalLag

_LOGGER = logging.getLogger(__name__)


class Attendant:
    """`watch` is awaited with the time at each look, for everything else in the pair that has deadlines."""

    def __init__(
        self,
        primary: ServiceBusClient,
        availability: SendAvailability,
        clock: Clock,
        watch: Callable[[Millis], Awaitable[None]],
        lag: LocalLag,
        pings: Pings | None = None,
    ) -> None:
        self._lag = lag
        self._pings = pings
        self._ping_timeout_s = ping_timeout_s(availability.options.ping_primary_interval)
        self._primary = primary
        self._availability = availability
        self._clock = clock
        self._watch = watch
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(PINGS_AT_ONCE_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._availability.wake = self._wake_up
        self._availability.lost = self._lag.total
        self._spawn(self._run())

    def _wake_up(self) -> None:
        """From any thread: the report of a pump may start a timer."""
        self._loop.call_soon_threadsafe(self._wake.set)

    async def stop(self) -> None:
        self._availability.wake = lambda: None
        own = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._pings is not None:
            await self._pings.close()

    def _spawn(self, coroutine: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        while True:
            now = self._clock.now()
            try:
                await self._look(now)
            except Exception:  # without this task nothing would ever ping again
                _LOGGER.exception("a look at the pair failed")
            pause = until_next_look(self._availability, now, LOOK_INTERVAL)
            self._lag.sleeps(pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause / 1000):
                    await self._wake.wait()
            self._lag.wakes()
            self._wake.clear()

    async def _look(self, now: Millis) -> None:
        for ping in self._availability.advance(now):
            self._spawn(self._ping(ping) if self._pings is None else self._pings.send(ping))
        await self._watch(now)

    async def _ping(self, ping: Ping) -> None:
        """With a sender of its own that is not paired: a ping must never end up in the backlog."""
        async with self._slots:
            sender = GuardedSender(lambda: self._primary.get_queue_sender(ping.path), self._clock, self._lag)
            try:
                await sender.run(partial(send_ping, ping.session_id), self._ping_timeout_s)
            except Exception as error:  # the classifier decides what it means
                self._availability.ping_failed(ping, error, self._clock.now())
            else:
                self._availability.ping_answered(ping, self._clock.now())
            finally:
                await sender.close()
