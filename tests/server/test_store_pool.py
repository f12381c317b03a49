"""Messaging stores that are given to another node: whatever happens on the way, they go."""

import asyncio
from functools import partial
from pathlib import Path

from twinbus.broker.message_broker import MessageBroker
from twinbus.clock import SystemClock
from twinbus.server.stores.pool import StorePool
from twinbus.server.stores.served_store import StoreCondition
from twinbus.server.stores.threads import StoreThreads
from twinbus.store.memory import MemoryStore


async def test_a_store_whose_locks_cannot_be_moved_goes_without_them(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    keeper = partial(StoreThreads, [tmp_path], lambda _: MemoryStore(), loop)
    pool = StorePool(keeper, SystemClock(), 1)
    await pool.start()
    asked: list[MessageBroker] = []

    def move_out(broker: MessageBroker) -> None:
        asked.append(broker)
        raise ValueError("these locks cannot be written")

    try:
        assert await pool.release(0, move_out)
        assert asked == pool.brokers
        assert pool.stores[0].condition is StoreCondition.FOREIGN
    finally:
        await pool.stop()
