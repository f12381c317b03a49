"""The syphon on asyncio over our bulk client: one pump per backlog queue, one connection to each namespace."""

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Sequence

from twinbus.client.kept_links import KeptLinks
from twinbus.clock import Clock, Millis
from twinbus.errors import MessagingError
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.stock.steps import run_async
from twinbus.pairing.syphon.bulk_transport import LOOK_S, BulkTransport, syphon_links
from twinbus.pairing.syphon.pump import Pump
from twinbus.pairing.syphon.pump_meter import metered
from twinbus.pairing.syphon.rate_cap import RateCap

STOP_MAX_S = 10.0
CLOSE_MAX_S = 5.0
PRIMARY_LOOK_S = 5.0
"""How often a syphon looks whether a primary is back that does not take messages."""


class BulkSyphon:
    """Of one pair, from connection strings. Made and run on one event loop; `stop` may come from a signal handler."""

    def __init__(
        self,
        primary: str,
        secondary: str,
        queues: Iterable[str],
        options: SendAvailabilityPairedNamespaceOptions,
        clock: Clock,
    ) -> None:
        self._primary, self._secondary = syphon_links(primary), syphon_links(secondary)
        self.is_away = False
        """The primary, while messages wait for it."""
        self._is_stopping = False
        self._meter, self._clock = options.meter, clock
        rate_cap = RateCap(options.syphon_messages_per_second_max)
        self._pumps = [Pump(queue, options.classifier, rate_cap, clock, options.on_event) for queue in queues]

    async def run(self) -> None:
        """Until `stop`. Ends with what was taken moved or given back."""
        transports = [
            BulkTransport(
                pump.queue,
                self._primary,
                self._secondary,
                lambda: self._is_stopping,
                take_wake=pump.take_wake,
            )
            for pump in self._pumps
        ]
        try:
            async with asyncio.TaskGroup() as pumping:
                for pump, transport in zip(self._pumps, transports, strict=True):
                    steps = metered(pump.run(), pump.queue, self._meter, self._clock)
                    pumping.create_task(run_async(steps, transport.perform))
                if self._pumps:
                    pumping.create_task(self._watch_primary())
        finally:
            await close_all(transports, self._primary, self._secondary)

    async def _watch_primary(self) -> None:
        """A primary that comes back is met by a connection, which costs no operation, and not first by the next try of a pump,
        which may be two minutes away."""
        looks_in_s = PRIMARY_LOOK_S
        while not self._is_stopping:
            await asyncio.sleep(LOOK_S)
            looks_in_s -= LOOK_S
            if looks_in_s > 0:
                continue
            looks_in_s = PRIMARY_LOOK_S
            if not any(pump.has_paused for pump in self._pumps):
                self.is_away = False
                continue
            try:
                async with asyncio.timeout(PRIMARY_LOOK_S):
                    await self._primary.reach()
            except (MessagingError, OSError):
                self.is_away = True
                continue
            if self.is_away:
                self.is_away = False
                for pump in self._pumps:
                    pump.primary_recovered()

    def recovered(self, path: str) -> None:
        for pump in self._pumps:
            pump.destination_recovered(path)

    def stop(self) -> None:
        self._is_stopping = True
        for pump in self._pumps:
            pump.is_stopping = True


class SyphonThread:
    """A BulkSyphon on an event loop of its own, for an application that has none, or one with other work to do."""

    def __init__(self, syphon: BulkSyphon) -> None:
        self._loop = asyncio.new_event_loop()
        self._syphon = syphon
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="twinbus-syphon", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """A send to a primary that hangs is not waited for: its messages come again."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the pumps have ended by themselves
            self._loop.call_soon_threadsafe(self._syphon.stop)
        self._thread.join(STOP_MAX_S)
        if self._thread.is_alive() and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()

    def recovered(self, path: str) -> None:
        self._syphon.recovered(path)

    def interrupt_if_late(self, now: Millis) -> None:
        """Nothing to do: the bulk client keeps its own timeouts."""

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner, contextlib.suppress(asyncio.CancelledError):
            runner.run(self._pump())

    async def _pump(self) -> None:
        self._task = asyncio.current_task()
        await self._syphon.run()


async def close_all(transports: Sequence[BulkTransport], *links: KeptLinks) -> None:
    """All at once: a peer that hangs makes each of them wait for its own timeout."""
    closing = [transport.close() for transport in transports]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_MAX_S):
            await asyncio.gather(*closing, return_exceptions=True)
    await asyncio.gather(*(each.drop() for each in links), return_exceptions=True)
