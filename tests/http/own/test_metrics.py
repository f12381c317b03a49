"""A scrape of many entities is made in steps."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request

from twinbus.gateway.namespace_view import Traffic
from twinbus.http import pace
from twinbus.http.own.metrics import SAMPLES_TOGETHER, NamespaceMetrics
from twinbus.http.own.metrics_text import Tally
from twinbus.http.own.other_nodes import NO_OTHERS
from twinbus.http.own.store_records import StoreRecords
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation

QUEUE_COUNT = 2 * SAMPLES_TOGETHER + 1


def asking(*names: str) -> Request:
    query = "&".join(f"name[]={name}" for name in names)
    return Request({"type": "http", "query_string": query.encode(), "headers": []})


ANYBODY = asking()


@pytest.fixture
def metrics() -> NamespaceMetrics:
    sim, traffic = Simulation(1), Traffic()
    for number in range(QUEUE_COUNT):
        sim.queue(QueueDescription(f"q{number}"))
        traffic.of(f"q{number}").messages_in += number
    sim.run()
    return NamespaceMetrics("test", traffic, StoreRecords([], NO_OTHERS), sim.entities, [], {})


async def text_of(metrics: NamespaceMetrics) -> str:
    return bytes((await metrics.show(ANYBODY)).body).decode()


async def test_every_family_is_whole_and_has_one_head(metrics: NamespaceMetrics) -> None:
    text = await text_of(metrics)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert text.count("# TYPE") == text.count("# HELP") == len(families)
    assert len(families["twinbus_queue_active"].samples) == 3 * QUEUE_COUNT
    counted = {sample.labels["entity"]: sample.value for sample in families["twinbus_entity_messages_in"].samples}
    assert counted == {f"q{number}": number for number in range(QUEUE_COUNT)}


async def test_nothing_is_counted_for_a_queue_that_nobody_has_used(metrics: NamespaceMetrics) -> None:
    families = text_string_to_metric_families(await text_of(metrics))
    samples = [each for family in families if family.name.startswith("twinbus_entity_") for each in family.samples]
    assert len({each.name for each in samples}) >= 7
    assert {each.value for each in samples if each.labels["entity"] == "q0"} == {0}


async def test_the_loop_goes_on_while_a_scrape_is_made(
    metrics: NamespaceMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "STEP_S", 0.0)
    scrape = asyncio.create_task(text_of(metrics))
    turn_count = 0
    while not scrape.done():
        await asyncio.sleep(0)
        turn_count += 1
    assert turn_count > QUEUE_COUNT


async def test_who_asks_meanwhile_gets_the_same_scrape(metrics: NamespaceMetrics) -> None:
    first, second = asyncio.create_task(metrics.show(ANYBODY)), asyncio.create_task(metrics.show(ANYBODY))
    assert (await first).body is (await second).body
    assert (await metrics.show(ANYBODY)).body is not (await first).body


async def test_who_goes_away_does_not_take_the_scrape_from_others(
    metrics: NamespaceMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "STEP_S", 0.0)
    impatient, other = asyncio.create_task(text_of(metrics)), asyncio.create_task(text_of(metrics))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    impatient.cancel()
    assert "twinbus_queue_active" in await other


async def test_only_the_metrics_that_were_named_are_made(metrics: NamespaceMetrics) -> None:
    answer = await metrics.show(asking("twinbus_entity_messages_in_total", "twinbus_connections", "nothing"))
    families = {family.name: family for family in text_string_to_metric_families(bytes(answer.body).decode())}
    assert set(families) == {"twinbus_entity_messages_in", "twinbus_connections"}
    assert len(families["twinbus_entity_messages_in"].samples) == QUEUE_COUNT
    answer = await metrics.show(asking("twinbus_queue_limited"))
    (family,) = text_string_to_metric_families(bytes(answer.body).decode())
    assert len(family.samples) == 3 * QUEUE_COUNT


async def test_locks_that_ended_and_receivers_are_counted_by_entity() -> None:
    sim, traffic = Simulation(2), Traffic()
    queue = sim.queue(QueueDescription("slow"))
    sim.queue(QueueDescription("other"))
    sim.send(queue, make_message("m"))
    assert len(sim.receiver(queue.main, 1).take()) == 1
    sim.advance(60_001)
    answer = await NamespaceMetrics("test", traffic, StoreRecords([], NO_OTHERS), sim.entities, [], {}).show(
        asking("twinbus_entity_locks_lost_total", "twinbus_entity_receivers")
    )
    found = {
        sample.name: (sample.labels["entity"], sample.value)
        for family in text_string_to_metric_families(bytes(answer.body).decode())
        for sample in family.samples
    }
    assert found == {"twinbus_entity_locks_lost_total": ("slow", 1.0), "twinbus_entity_receivers": ("slow", 1.0)}


async def test_counters_of_an_entity_that_is_deleted_and_created_again_keep_their_name_and_go_on() -> None:
    """A supervisor, which adds up those of several processes, would take another name for another counter."""
    sim, tally = Simulation(3), Tally()
    traffic = Traffic(name_at=sim.entities.name_at)
    metrics = NamespaceMetrics("test", traffic, StoreRecords([], NO_OTHERS), sim.entities, [], {})

    async def counted() -> dict[str, float]:
        answer = await metrics.show(asking("twinbus_entity_messages_in_total"))
        (family,) = text_string_to_metric_families(tally.merged({1: bytes(answer.body)}).decode())
        return {sample.labels["entity"]: sample.value for sample in family.samples}

    sim.queue(QueueDescription("Orders"))
    traffic.of("ORDERS").messages_in += 3
    assert await counted() == {"Orders": 3}
    sim.entities.delete("Orders", sim.now, Answer[None]())
    sim.run()
    assert await counted() == {"Orders": 3}
    sim.queue(QueueDescription("Orders"))
    traffic.of("orders").messages_in += 1
    assert await counted() == {"Orders": 4}
