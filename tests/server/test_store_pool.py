"""Messaging stores that are given to another node: whatever happens on the way, they go."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from pathlib import Path

import pytest

from twinbus.broker.entity.entities import Entities
from twinbus.broker.entity.forwarding import RUN_MAX
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.message_broker import MessageBroker
from twinbus.clock import SystemClock
from twinbus.model.descriptions import QueueDescription
from twinbus.server import patience as patience_module
from twinbus.server.stores import pool as pool_module
from twinbus.server.stores.pool import StorePool
from twinbus.server.stores.served_store import StoreCondition
from twinbus.server.stores.threads import StoreThreads
from twinbus.store.memory import MemoryStore
from twinbus.store.messaging_store import FragmentSummary
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import EachReply

PATIENCE_S = 20.0
SLOW_S = 0.1


@asynccontextmanager
async def served(count: int = 1) -> AsyncIterator[tuple[StorePool, Entities]]:
    """Stores that are kept in memory, and entities over them."""
    paths = [Path(str(index)) for index in range(count)]
    keeper = partial(StoreThreads, paths, lambda _: MemoryStore(), asyncio.get_running_loop())
    pool = StorePool(keeper, SystemClock(), count)
    await pool.start()
    try:
        yield pool, Entities(pool.brokers)
    finally:
        await pool.stop()


class OwnedStore(MemoryStore):
    """As one in a database: whoever owns it does so under an epoch of its own."""

    owners = 0

    def epoch(self) -> int:
        return OwnedStore.owners


async def test_a_store_that_somebody_else_may_have_had_is_loaded_when_what_he_was_told_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OwnedStore, "owners", 4)
    loads: list[Callable[[], None]] = []
    keeper = partial(StoreThreads, [Path("0")], lambda _: OwnedStore(), asyncio.get_running_loop())
    pool = StorePool(keeper, SystemClock(), 1, are_shared=True)
    pool.when_known = loads.append
    await pool.start()
    store, broker = pool.stores[0], pool.brokers[0]

    async def owned() -> None:
        OwnedStore.owners += 1
        pool.own(0)
        await until(lambda: store.condition is StoreCondition.UP)

    try:
        await owned()
        assert broker.is_foreign
        await pool.drop(0)
        await owned()
        for load in loads:  # the first comes too late
            assert broker.is_foreign
            load()
        await until(lambda: broker.is_available)
        await pool.drop(0)
        await owned()  # nobody had it in between
        await until(lambda: broker.is_available)
        assert len(loads) == 2
    finally:
        await pool.stop()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0)


async def made(entities: Entities, description: QueueDescription, store: int) -> QueueEntity:
    queue = entities.restore_queue(store + 1, description, SystemClock().now(), store)
    await until(lambda: all(fragment.is_loaded for fragment in queue.fragments))
    return queue


def move_out(broker: MessageBroker) -> None:
    """Nobody holds anything."""
    broker.move_out(lambda _: False)


async def test_a_store_whose_locks_cannot_be_moved_goes_without_them() -> None:
    asked: list[MessageBroker] = []

    def fail(broker: MessageBroker) -> None:
        asked.append(broker)
        raise ValueError("these locks cannot be written")

    async with served() as (pool, _):
        assert await pool.release(0, fail)
        assert asked == pool.brokers
        assert pool.stores[0].condition is StoreCondition.FOREIGN


async def test_what_is_being_read_of_a_store_when_it_leaves_is_not_taken_for_what_is_in_it_when_it_comes_back() -> None:
    async with served() as (pool, entities):
        queue = await made(entities, QueueDescription("q"), 0)
        pool.stores[0].slow(SLOW_S)
        pool.brokers[0].store_returned()
        assert await pool.release(0, move_out)
        assert not any(fragment.is_loaded for fragment in queue.fragments)


async def test_a_store_leaves_when_what_it_forwards_has_arrived_and_begins_nothing_more() -> None:
    async with served(2) as (pool, entities):
        target = await made(entities, QueueDescription("target"), 1)
        source = await made(entities, QueueDescription("source", forward_to="target"), 0)
        pool.stores[1].slow(SLOW_S)
        reply = EachReply()
        source.send_each([make_message(str(name)) for name in range(2 * RUN_MAX)], SystemClock().now(), reply)
        await until(lambda: bool(pool.brokers[0].forwarding))
        left: list[int] = []

        def note(broker: MessageBroker) -> None:
            left.append(source.main.fragments[0].tally.active_count)
            move_out(broker)

        assert await pool.release(0, note)
        assert left == [RUN_MAX]
        assert target.main.counts().active == RUN_MAX


async def test_a_start_waits_for_its_first_store_and_not_for_one_that_hangs_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slow is not failed: who creates the first queues of a namespace needs a store."""
    monkeypatch.setattr(pool_module, "READY_WAIT_S", 0.0)
    may_open = [threading.Event(), threading.Event()]

    def open_store(path: Path) -> MemoryStore:
        may_open[int(path.name)].wait()
        return MemoryStore()

    keeper = partial(StoreThreads, [Path("0"), Path("1")], open_store, asyncio.get_running_loop())
    pool = StorePool(keeper, SystemClock(), 2)
    starting = asyncio.ensure_future(pool.start())
    assert not (await asyncio.wait({starting}, timeout=0.05))[0]
    may_open[0].set()
    await asyncio.wait_for(starting, PATIENCE_S)
    assert [store.is_up for store in pool.stores] == [True, False]
    may_open[1].set()
    await until(lambda: pool.stores[1].is_up)
    await pool.stop()


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Of warnings: the event, and which stores are missing."""
    return [(each.getMessage(), each.fields["missing"]) for each in caplog.records]  # type: ignore[attr-defined]


async def test_a_start_that_waits_says_for_which_stores_and_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(patience_module, "SAY_FIRST_S", 0.0)
    monkeypatch.setattr(pool_module, "READY_WAIT_S", inf)
    may_open = [threading.Event() for _ in range(3)]
    may_read = threading.Event()
    is_asked = [threading.Event() for _ in range(3)]

    class Unread(MemoryStore):
        def summaries(self) -> list[FragmentSummary]:
            assert may_read.wait(PATIENCE_S)
            return super().summaries()

    def open_store(path: Path) -> MemoryStore:
        index = int(path.name)
        is_asked[index].set()
        assert may_open[index].wait(PATIENCE_S)
        return Unread()

    keeper = partial(StoreThreads, [Path(str(index)) for index in range(3)], open_store, asyncio.get_running_loop())
    pool = StorePool(keeper, SystemClock(), 3)
    for store in pool.stores:
        store.location = "/data/stores"
    caplog.set_level(logging.WARNING)
    starting = asyncio.ensure_future(pool.start())
    slow = "being opened, but /data/stores has not answered yet"
    await until(lambda: ("waiting_for_stores", f"0,1,2: {slow}") in said(caplog))
    may_open[1].set()
    await until(lambda: ("waiting_for_stores", f"0,2: {slow}; 1: open, but not read yet") in said(caplog))
    for each in (*may_open, may_read):
        each.set()
    await asyncio.wait_for(starting, PATIENCE_S)
    await pool.stop()


async def test_stores_that_a_start_does_not_wait_for_are_reported_as_long_as_they_hang(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that hangs says nothing itself."""
    monkeypatch.setattr(patience_module, "SAY_FIRST_S", 0.0)
    monkeypatch.setattr(patience_module, "FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(pool_module, "TELL_POLL_S", 0.0)
    may_open = threading.Event()

    def open_store(_: Path) -> MemoryStore:
        assert may_open.wait(PATIENCE_S)
        return MemoryStore()

    keeper = partial(StoreThreads, [Path("0")], open_store, asyncio.get_running_loop())
    pool = StorePool(keeper, SystemClock(), 1)
    caplog.set_level(logging.WARNING)
    await asyncio.wait_for(pool.start(), PATIENCE_S)
    await until(lambda: [event for event, _ in said(caplog)][-2:] == ["waiting_for_stores"] * 2)
    assert [event for event, _ in said(caplog)].count("not_waiting_for_stores") == 1
    may_open.set()
    await until(lambda: pool.stores[0].is_up)
    await until(lambda: pool.brokers[0].is_available)
    await pool.stop()


async def test_a_store_whose_process_has_not_begun_is_told_from_one_that_hangs() -> None:
    keeper = partial(StoreThreads, [Path("0")], lambda _: MemoryStore(), asyncio.get_running_loop())
    pool = StorePool(keeper, SystemClock(), 1)
    assert pool.stores[0].awaited == "the process that is to open it has not begun"
