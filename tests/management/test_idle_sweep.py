import asyncio

from tests.management.conftest import NOON
from tests.management.memory_runtime import MemoryRuntime
from twinbus.clock import Millis
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane
from twinbus.management.idle_sweep import SWEEP_EVERY, IdleSweep
from twinbus.model.descriptions import EntityDescription, QueueDescription, SubscriptionDescription, TopicDescription


async def settle(control: ControlPlane) -> None:
    """Until everything that was submitted has ended."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*tasks)


async def test_what_is_idle_is_deleted_and_the_rest_stays(control: ControlPlane, catalog: Catalog) -> None:
    await control.create_queue(QueueDescription("idle"))
    await control.create_queue(QueueDescription("busy"))
    await control.create_topic(TopicDescription("t"))
    await control.create_subscription(SubscriptionDescription("t", "idle"))
    await control.create_subscription(SubscriptionDescription("t", "busy"))
    found: list[EntityDescription] = [QueueDescription("idle"), SubscriptionDescription("t", "idle")]
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
