"""A node serves a store only when it knows what its owners before were told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from twinbus.errors import InternalError, StoreUnavailable
from twinbus.management.catalog import Catalog
from twinbus.management.follower import Follower
from twinbus.management.own_process import restore
from twinbus.model.descriptions import QueueDescription
from twinbus.server.machines import catalog_watch
from twinbus.server.machines.catalog_watch import CatalogWatch
from twinbus.store.changes import fragment_parts
from twinbus.testing.simulation import Simulation

BEGAN = 7


class Shared:
    """The catalog of all nodes, as one of them reads it."""

    def __init__(self) -> None:
        self.version = BEGAN
        self.followed: list[int] = []
        self.faults: list[Exception] = []
        self.is_whole = True

    def read(self) -> int:
        if self.faults:
            raise self.faults.pop()
        return self.version

    async def follow_all(self) -> bool:
        version = self.version
        await asyncio.sleep(0)
        if self.faults:
            raise self.faults.pop()
        self.followed.append(version)
        return self.is_whole


@pytest.fixture
def shared() -> Shared:
    return Shared()


@pytest.fixture
def watch(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> CatalogWatch:
    monkeypatch.setattr(catalog_watch, "AGAIN_S", 0.0)
    return CatalogWatch(BEGAN, shared.read, shared.follow_all)


async def known(watch: CatalogWatch, count: int = 1) -> None:
    calls = [asyncio.Event() for _ in range(count)]
    for call in calls:
        watch.when_known(call.set)
    async with asyncio.timeout(30):
        for call in calls:
            await call.wait()


async def test_a_store_waits_until_what_was_changed_is_followed(watch: CatalogWatch, shared: Shared) -> None:
    shared.version += 1
    await known(watch)
    assert shared.followed == [BEGAN + 1]


async def test_nothing_is_followed_for_a_store_where_nothing_was_changed(watch: CatalogWatch, shared: Shared) -> None:
    await known(watch, 3)
    shared.version += 1
    await known(watch, 3)
    await known(watch)
    assert shared.followed == [BEGAN + 1]


async def test_a_store_that_comes_while_the_catalog_is_read_waits_for_the_next_time(
    watch: CatalogWatch, shared: Shared
) -> None:
    shared.version += 1
    first, second = asyncio.Event(), asyncio.Event()

    def change() -> None:
        shared.version += 1
        watch.when_known(second.set)
        first.set()

    watch.when_known(change)
    await first.wait()
    assert shared.followed == [BEGAN + 1]
    await second.wait()
    assert shared.followed == [BEGAN + 1, BEGAN + 2]


@pytest.mark.parametrize("fault_count", [1, 2], ids=["to be read", "to be followed"])
async def test_a_store_waits_for_a_catalog_that_is_out_of_reach(
    watch: CatalogWatch, shared: Shared, fault_count: int
) -> None:
    shared.version += 1
    faults: list[Exception] = [InternalError("The catalog cannot be read."), StoreUnavailable("the server is down")]
    shared.faults = faults[:fault_count]
    await known(watch)
    assert shared.followed == [BEGAN + 1]


async def test_what_could_not_all_be_followed_keeps_no_store_waiting_and_is_looked_at_with_every_beat(
    watch: CatalogWatch, shared: Shared
) -> None:
    shared.version += 1
    shared.is_whole = False
    await known(watch)
    for count in (2, 3):
        watch.seen(shared.version)
        async with asyncio.timeout(30):
            while len(shared.followed) < count:
                await asyncio.sleep(0)
    shared.is_whole = True
    await known(watch)
    watch.seen(shared.version)
    await asyncio.sleep(0)
    assert len(shared.followed) == 4


@asynccontextmanager
async def turn(_: str) -> AsyncIterator[None]:
    yield


async def test_a_node_that_gets_a_store_takes_nothing_for_a_queue_that_was_deleted_and_created_again_unheard(
    tmp_path: Path,
) -> None:
    """It does not have the fragments of the new one, and would make those of the old one."""
    file, sim = tmp_path / "catalog.db", Simulation()
    (broker,) = sim.brokers
    writer = Catalog.in_file(file, "shop", sim.now)
    writer.add(writer.new_id(), QueueDescription("q"), sim.now)
    reader = Catalog.in_file(file, "shop", sim.now)
    broker.is_foreign = True
    sim.lose_store(0)
    restore(reader, sim.entities, sim.now)
    old = sim.entities.queue("q").id
    writer.remove("q")
    entry = writer.add(writer.new_id(), QueueDescription("q"), sim.now)
    follower = Follower(reader, sim.entities, sim.clock)
    watch = CatalogWatch(BEGAN, lambda: BEGAN + 1, lambda: follower.follow_all(turn))

    def load() -> None:
        broker.is_foreign = False
        sim.return_store(0)

    watch.when_known(load)
    async with asyncio.timeout(30):
        while not broker.is_available:
            await asyncio.sleep(0)
    assert sim.entities.queue("q").id == entry.id != old
    there = {fragment_parts(summary.fragment).entity_id for summary in sim.ports[0].store.summaries()}
    assert there == {entry.id}
    writer.close()
    reader.close()
