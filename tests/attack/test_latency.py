"""What a client that sends a small message now and then feels of ten connections that send large ones as fast as they can, to
another queue of the same store or to the same queue.

With the stores in a process of their own, as they are served, and the greedy ones in another. Nightly: a machine that is busy with
other things says nothing about milliseconds, so the limit is what the same client has alone, in the same run.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Semaphore
from pathlib import Path

import pytest

from tests.attack.modest_client import ModestClient, p99
from tests.attack.served_namespace import served
from tests.measured import Measured
from twinbus.client.administration import administration_client
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace

CONNECTIONS, TOGETHER, SIZE = 10, 40, 250_000
ALONE_S, BESIDE_S = 5.0, 30.0
P99_MAX_S = 0.050
RATIO_MAX = 10


@pytest.fixture
def connection_string(tmp_path: Path) -> Iterator[str]:
    with served(tmp_path, "--stores", "1", "--queue", "modest") as namespace:
        # With room for everything: what is refused costs the stores nothing.
        administration = administration_client(namespace.connection_string, namespace.endpoint)
        administration.create_queue("greedy", max_size_in_megabytes=5_120)
        yield namespace.connection_string


def send_greedily(connection_string: str, begun: Semaphore) -> None:
    """`begun` is released once for each connection that has sent something."""

    async def one() -> None:
        async with await Namespace.connect(connection_string) as namespace:
            sender, message = await namespace.sender("greedy"), encode_message(bytes(SIZE))
            await sender.send([message])
            begun.release()
            while True:
                await sender.send([message] * TOGETHER)

    async def all_of_them() -> None:
        await asyncio.gather(*[one() for _ in range(CONNECTIONS)])

    asyncio.run(all_of_them())


@pytest.mark.nightly
@pytest.mark.parametrize("path", ["modest", "greedy"])
def test_a_modest_client_beside_greedy_ones_waits_little_longer_than_alone(
    connection_string: str, path: str, measured: Measured
) -> None:
    with ModestClient(connection_string, path) as modest:
        time.sleep(ALONE_S)
    alone = p99(modest.durations)
    processes = multiprocessing.get_context("spawn")
    begun = processes.Semaphore(0)
    greedy = processes.Process(target=send_greedily, args=(connection_string, begun), daemon=True)
    greedy.start()
    try:
        assert all(begun.acquire(timeout=60) for _ in range(CONNECTIONS))
        with ModestClient(connection_string, path) as modest:
            time.sleep(BESIDE_S)
    finally:
        greedy.kill()
        greedy.join()
    beside = p99(modest.durations)
    figures = {"us alone (p99)": int(alone * 1e6), "us beside greedy ones (p99)": int(beside * 1e6)}
    measured(f"modest client of the queue {path}", figures)
    assert beside < max(P99_MAX_S, RATIO_MAX * alone)
