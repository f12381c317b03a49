import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.management.conftest import NOON
from tests.management.memory_runtime import MemoryRuntime
from twinbus.clock import Millis
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane
from twinbus.management.idle_sweep import SWEEP_EVERY, IdleSweep
from twinbus.management.own_process import restore
from twinbus.model.descriptions import EntityDescription, QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Simulation

IDLE_AFTER: Millis = 300_000


async def settle(control: ControlPlane) -> None:
    """Until everything that was submitted has ended."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*tasks)


async def test_what_is_idle_is_deleted_and_the_rest_stays(
    control: ControlPlane, catalog: Catalog, runtime: MemoryRuntime
) -> None:
    await control.create_queue(QueueDescription("idle"))
    await control.create_queue(QueueDescription("busy"))
    await control.create_topic(TopicDescription("t"))
    await control.create_subscription(SubscriptionDescription("t", "idle"))
    await control.create_subscription(SubscriptionDescription("t", "busy"))
    found: list[EntityDescription] = [QueueDescription("idle"), SubscriptionDescription("t", "idle")]
    runtime.idle |= {"idle", "t/Subscriptions/idle"}
    IdleSweep(control, lambda now: found).tick(NOON)
    await settle(control)
    assert [entry.description.name for entry in catalog.entries(QueueDescription)] == ["busy"]
    assert [entry.description.name for entry in catalog.subscriptions("t")] == ["busy"]


async def test_a_deletion_that_fails_is_tried_again_at_the_next_sweep(
    control: ControlPlane, catalog: Catalog, runtime: MemoryRuntime
) -> None:
    await control.create_queue(QueueDescription("idle"))
    asked: list[Millis] = []

    def idle(now: Millis) -> list[EntityDescription]:
        asked.append(now)
        return [QueueDescription("idle")]

    sweep = IdleSweep(control, idle)
    runtime.idle.add("idle")
    runtime.is_ill = True
    assert sweep.tick(NOON) == NOON + SWEEP_EVERY
    await settle(control)
    assert catalog.find("idle") is not None
    runtime.is_ill = False
    sweep.tick(NOON + SWEEP_EVERY - 1)
    assert asked == [NOON]
    sweep.tick(NOON + SWEEP_EVERY)
    sweep.tick(NOON + 3 * SWEEP_EVERY)  # while the deletion is under way
    await settle(control)
    assert catalog.find("idle") is None


async def test_a_clock_that_was_set_back_does_not_stop_the_sweep(control: ControlPlane) -> None:
    asked: list[Millis] = []

    def idle(now: Millis) -> list[EntityDescription]:
        asked.append(now)
        return []

    sweep = IdleSweep(control, idle)
    sweep.tick(NOON)
    sweep.tick(NOON - 10 * SWEEP_EVERY)
    assert asked == [NOON, NOON - 10 * SWEEP_EVERY]


class OtherProcess:
    """Of the same namespace: makes changes of its own, and knows what was used through it."""

    is_first = True

    def __init__(self) -> None:
        self.change = asyncio.Lock()
        self.used: set[str] = set()
        self.when_asked: Callable[[], object] = lambda: None

    @asynccontextmanager
    async def turn(self, _: str, /) -> AsyncIterator[None]:
        async with self.change:
            yield

    async def available_stores(self) -> set[int]:
        return set()

    async def follow(self, _: str, /) -> set[int]:
        return set()

    async def delete(self, _: str, /) -> set[int]:
        return set()

    async def follow_access_rules(self) -> None: ...

    async def is_idle(self, path: str) -> bool:
        is_idle = path not in self.used
        self.when_asked()
        await asyncio.sleep(0)
        return is_idle

    async def close_if_idle(self, path: str) -> bool:
        return await self.is_idle(path)


class Swept:
    """A namespace with a queue `q` and a subscription `t/Subscriptions/s` that nobody has used for as long as they may be unused."""

    def __init__(self, catalog: Catalog) -> None:
        self.sim = Simulation()
        catalog.add(catalog.new_id(), QueueDescription("q", auto_delete_on_idle=IDLE_AFTER), NOON)
        catalog.add(catalog.new_id(), TopicDescription("t"), NOON)
        catalog.add(catalog.new_id(), SubscriptionDescription("t", "s", auto_delete_on_idle=IDLE_AFTER), NOON)
        restore(catalog, self.sim.entities, self.sim.now)
        self.sim.run()
        self.sim.advance(IDLE_AFTER)
        self.other = OtherProcess()
        self.control = ControlPlane(catalog, self.sim.entities, self.sim.clock, self.other)
        self._sweep = IdleSweep(self.control, self.sim.entities.idle)

    def use(self) -> None:
        self.sim.send(self.sim.entities.queue("q"), make_message("m"))
        self.sim.receiver(self.sim.entities.subscription("t", "s").main, 1)

    def use_elsewhere(self) -> None:
        self.other.used |= {"q", "t/Subscriptions/s"}

    async def sweep(self, meanwhile: Callable[[], object] = lambda: None) -> list[str]:
        """What is left. `meanwhile` happens when idle entities have been found, and the other process makes a change to them."""
        async with self.other.change:
            self._sweep.tick(self.sim.now)
            for _ in range(10):
                await asyncio.sleep(0)
            meanwhile()
        async with asyncio.timeout(10):
            while len(tasks := asyncio.all_tasks()) > 1:
                self.sim.run()
                await asyncio.wait(tasks - {asyncio.current_task()}, timeout=0.001)
        return [path for path in ("q", "t/Subscriptions/s") if self.control.catalog.find(path) is not None]


async def test_what_nobody_uses_is_deleted_when_its_turn_comes(catalog: Catalog) -> None:
    assert await Swept(catalog).sweep() == []


@pytest.mark.parametrize("use", [Swept.use, Swept.use_elsewhere])
async def test_what_was_used_before_its_turn_came_stays(catalog: Catalog, use: Callable[[Swept], None]) -> None:
    swept = Swept(catalog)
    assert await swept.sweep(lambda: use(swept)) == ["q", "t/Subscriptions/s"]


async def test_what_is_used_while_the_other_processes_are_asked_stays(catalog: Catalog) -> None:
    swept = Swept(catalog)
    swept.other.when_asked = swept.use
    assert await swept.sweep() == ["q", "t/Subscriptions/s"]
    assert swept.sim.receiver(swept.sim.entities.queue("q").main, 1).ids() == ["m"]


async def test_what_may_be_unused_for_longer_by_now_stays(catalog: Catalog) -> None:
    swept = Swept(catalog)

    def update() -> None:
        for description in swept.sim.entities.idle(swept.sim.now):
            longer = replace(description, auto_delete_on_idle=2 * IDLE_AFTER)
            swept.sim.entities.update(longer, swept.sim.now - IDLE_AFTER, lambda _: None)

    assert await swept.sweep(update) == ["q", "t/Subscriptions/s"]
