"""The message brokers of a namespace, each with its messaging store and the thread that serves it."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom

from twinbus.broker.message_broker import MessageBroker
from twinbus.clock import Clock
from twinbus.errors import StoreUnavailable
from twinbus.server.broker_thread import StoreCondition, StoreThread
from twinbus.store.messaging_store import MessagingStore

log = logging.getLogger(__name__)

READY_WAIT_S = 10.0
READY_POLL_S = 0.005
STOP_WAIT_S = 30.0

OpenStore = Callable[[Path], MessagingStore]


class StorePool:
    def __init__(
        self, paths: Sequence[Path], open_store: OpenStore, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.brokers: list[MessageBroker] = []
        self.threads = [self._thread(index, path, open_store, loop) for index, path in enumerate(paths)]
        for index, thread in enumerate(self.threads):
            self.brokers.append(MessageBroker(index, thread, clock, SystemRandom()))

    def _thread(self, index: int, path: Path, open_store: OpenStore, loop: asyncio.AbstractEventLoop) -> StoreThread:
        def lost(error: StoreUnavailable) -> None:
            log.warning("store_lost", extra={"fields": {"store": index, "reason": str(error)}})
            self.brokers[index].store_lost(error)

        def returned() -> None:
            log.debug("store_opened", extra={"fields": {"store": index}})
            self.brokers[index].store_returned()

        return StoreThread(
            index, lambda: open_store(path), loop.call_soon_threadsafe, on_lost=lost, on_returned=returned
        )

    async def start(self) -> None:
        """Open the stores, and return when each has loaded or failed. One that hangs is not waited for for long."""
        for thread in self.threads:
            thread.start()
        deadline = asyncio.get_running_loop().time() + READY_WAIT_S
        while not self._is_settled() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(READY_POLL_S)

    def _is_settled(self) -> bool:
        return all(
            broker.is_available or thread.condition in (StoreCondition.LOST, StoreCondition.DOWN)
            for broker, thread in zip(self.brokers, self.threads, strict=True)
        )

    async def stop(self) -> None:
        """Finish what was asked of the stores and close them."""
        for thread in self.threads:
            thread.stop()
        await asyncio.to_thread(self._join)

    def _join(self) -> None:
        for thread in self.threads:
            thread.join(STOP_WAIT_S)
