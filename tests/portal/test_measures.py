"""How long pages take with many entities and many messages, and what an idle portal costs a namespace."""

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from bench.processor_time import processor_seconds
from tests.cli.conftest import Served, serve
from tests.portal.running_portal import RunningPortal
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.portal.namespaces.directory import KnownNamespace

ENTITY_COUNT = 1_000
MESSAGE_COUNT = int(os.environ.get("TWINBUS_PORTAL_MESSAGES", "1000000"))
FIRST_PAGE_MAX_S = 1.0
NEXT_PAGE_MAX_S = 0.3
IDLE_SHARE_MAX = 0.01
SLICE_S = 5.0
SLICE_COUNT = 6
STEP = 20_000

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

QUEUES = "".join(
    f'[[queue]]\nname = "queue-{number:04}"\npartitioned = {str(number % 10 == 0).lower()}\n' for number in range(800)
)
TOPICS = "".join(
    f'[[topic]]\nname = "topic-{number:02}"\n'
    + "".join(f'[[topic.subscription]]\nname = "s{each}"\n' for each in range(4))
    for number in range(40)
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("measured")
    file = folder / "entities.toml"
    file.write_text(QUEUES + TOPICS)
    with serve(
        folder / "data", "many", "--entities", str(file), "--queue", "full:partitioned", "--stores", "4"
    ) as running:
        yield running


@pytest.fixture
def pages(served: Served) -> Iterator[httpx.Client]:
    ready = served.ready
    known = KnownNamespace(
        "many", ready["connection_string"], f"http://127.0.0.1:{ready['http_port']}", (), is_local=True
    )
    with RunningPortal([known]) as portal, portal.client() as client:
        yield client


def seconds_of(pages: httpx.Client, address: str) -> float:
    start = time.perf_counter()
    answer = pages.get(address)
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - start


def test_the_first_page_of_a_thousand_entities_is_there_in_a_second(pages: httpx.Client) -> None:
    """Of a portal that has just started: nothing is connected or known yet."""
    first = seconds_of(pages, "/")
    listed = seconds_of(pages, "/ns/many/entities")
    print(f"overview {first:.3f} s, entities {listed:.3f} s")
    assert first < FIRST_PAGE_MAX_S
    assert listed < FIRST_PAGE_MAX_S


def test_an_idle_portal_costs_a_namespace_less_than_a_hundredth_of_a_core(served: Served, pages: httpx.Client) -> None:
    """Someone has the overview open and does nothing; compared with nobody looking.

    In processor time of the namespace, in turns: what it does by itself, such as a checkpoint of what came before, falls into
    one slice and not into the median.
    """
    pages.get("/")
    shares: dict[bool, list[float]] = {False: [], True: []}
    for is_watched in [False, True] * SLICE_COUNT:
        with contextlib.ExitStack() as looking:
            if is_watched:
                looking.enter_context(pages.stream("GET", "/live/overview"))
            before, start = processor_seconds(served.process.pid) or 0.0, time.monotonic()
            time.sleep(SLICE_S)
            used = (processor_seconds(served.process.pid) or 0.0) - before
            shares[is_watched].append(used / (time.monotonic() - start))
    alone, watched = (statistics.median(shares[is_watched]) for is_watched in (False, True))
    print(f"share of a core: {alone:.4f} alone, {watched:.4f} watched; slices {shares}")
    assert watched - alone < IDLE_SHARE_MAX


async def fill(connection_string: str, count: int) -> None:
    async with await Namespace.connect(connection_string) as namespace:
        sender = await namespace.sender("full")
        for start in range(0, count, STEP):
            payloads = [
                encode_message(f"message {number}", message_id=f"m-{number}")
                for number in range(start, min(count, start + STEP))
            ]
            assert not any(await sender.send_batches(payloads))
        await sender.close()


def test_pages_of_a_million_messages_come_in_300_ms(served: Served, pages: httpx.Client) -> None:
    asyncio.run(fill(served.ready["connection_string"], MESSAGE_COUNT))
    address = "/ns/many/messages?path=full"
    seconds_of(pages, address)
    times, page = [], ""
    for _ in range(5):
        start = time.perf_counter()
        page = pages.get(address).text
        times.append(time.perf_counter() - start)
        address = address_in(page.rpartition('" class="button small" data-next')[0].rpartition('href="')[2])
    jumps = page.partition("Go to:")[2].split('href="')[1:6]
    times += [seconds_of(pages, address_in(part.partition('"')[0])) for part in jumps]
    print("pages: " + ", ".join(f"{each * 1000:.0f} ms" for each in times))
    assert sorted(times)[len(times) // 2] < NEXT_PAGE_MAX_S


def address_in(markup: str) -> str:
    return markup.replace("&amp;", "&")
