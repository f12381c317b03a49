"""Pings over one connection: all that is failed over is asked side by side, each entity by a link of its own.

A namespace that comes back is met by one connection of each process, and by one round trip for each entity. A ping that has not been
answered when the next one is due is given up, so nothing that hung before the heal keeps anybody waiting after it.
"""

import asyncio
import contextlib
import threading
from datetime import timedelta

from twinbus.client.kept_links import KeptLinks
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.clock import Clock, Millis
from twinbus.errors import OperationTimeout
from twinbus.model import wire_names
from twinbus.model.pairing_limits import PING_TIME_TO_LIVE, PING_TIMEOUT
from twinbus.pairing.deciding.entity_watch import Ping
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.pair_meter import PAIR_PRODUCT
from twinbus.pairing.stock.failures import as_stock_error

ANSWER_MIN = timedelta(seconds=5)
"""However short the interval, a ping may need this long: to open a connection to a distant namespace takes many round trips."""

STOP_MAX_S = 2.0


def ping_timeout_s(interval: timedelta) -> float:
    return min(PING_TIMEOUT, max(ANSWER_MIN, interval)).total_seconds()


class Pings:
    """On one event loop. Nothing stays open once nothing is failed over."""

    def __init__(self, primary: str, availability: SendAvailability, clock: Clock) -> None:
        self._timeout_s = ping_timeout_s(availability.options.ping_primary_interval)
        self._primary, self._links = primary, KeptLinks(self._connect)
        self._availability, self._clock = availability, clock
        self._connected_at: Millis = 0
        self._answered_at: Millis = 0
        self._under_way = 0

    async def send(self, ping: Ping) -> None:
        """Never raises: the pair is told how it went."""
        began_at = self._clock.now()
        self._under_way += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(ping)
        except TimeoutError:
            # A connection that had all of the time and answered nobody is dead. A newer one is not to blame.
            if max(self._connected_at, self._answered_at) < began_at:
                await self._links.drop()
            self._failed(
                ping, OperationTimeout(f"A ping of '{ping.path}' was not answered within {self._timeout_s:g} s.")
            )
        except Exception as error:  # the classifier decides what it means
            self._failed(ping, error)
        else:
            self._answered_at = self._clock.now()
            self._availability.ping_answered(ping, self._answered_at)
        finally:
            self._under_way -= 1
        if not self._under_way and not self._availability.failing_paths():
            await self._links.drop()

    def _failed(self, ping: Ping, error: Exception) -> None:
        self._availability.ping_failed(ping, as_stock_error(error), self._clock.now())

    async def _connect(self) -> Namespace:
        namespace = await Namespace.connect(self._primary, timeout_s=self._timeout_s, product=PAIR_PRODUCT)
        self._connected_at = self._clock.now()
        return namespace

    async def _send(self, ping: Ping) -> None:
        sender = await self._links.sender(ping.path)
        (refusal,) = await sender.send([_payload(ping)])
        if refusal is not None:
            raise refusal

    async def close(self) -> None:
        await self._links.drop()


def _payload(ping: Ping) -> bytes:
    return encode_message(
        b"", content_type=wire_names.PING_CONTENT_TYPE, session_id=ping.session_id, time_to_live=PING_TIME_TO_LIVE
    )


class PingThread:
    """Pings of a pair for threads: on an event loop of their own, from the first ping on."""

    def __init__(self, pings: Pings) -> None:
        self._pings = pings
        self._loop: asyncio.AbstractEventLoop | None = None

    def send(self, ping: Ping) -> None:
        """Returns at once. For one thread. Raises RuntimeError if the system has no thread for it."""
        if self._loop is None:
            loop = asyncio.new_event_loop()
            try:
                threading.Thread(target=_run, args=(loop,), name="twinbus-ping", daemon=True).start()
            except RuntimeError:
                loop.close()
                raise
            self._loop = loop
        asyncio.run_coroutine_threadsafe(self._pings.send(ping), self._loop)

    def stop(self) -> None:
        """Pings that are still under way are ended and not waited for."""
        loop, self._loop = self._loop, None
        if loop is not None:
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._end(), loop).result(STOP_MAX_S)
            loop.call_soon_threadsafe(loop.stop)

    async def _end(self) -> None:
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pings.close()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.closing(loop):
        loop.run_forever()
