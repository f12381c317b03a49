"""What a client that sends a small message now and then feels of ten connections that send large ones as fast as they can.

With the stores in a process of their own, as they are served, and the greedy ones in another. Nightly: a machine that is busy with
other things says nothing about milliseconds, so the limit is what the same client has alone, in the same run.
"""

import asyncio
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Semaphore
from pathlib import Path

import pytest

from tests.measured import Measured
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace

CONNECTIONS, TOGETHER, SIZE = 10, 40, 250_000
ALONE_S, BESIDE_S = 5.0, 30.0
P99_MAX_S = 0.050
RATIO_MAX = 10
PAUSE_S = 0.01


@pytest.fixture
def connection_string(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "twinbus", "serve", "n", "--data", str(tmp_path), "--json", "--no-meter"]
    command += ["--amqp-port", "0", "--http-port", "0", "--stores", "1", "--queue", "greedy", "--queue", "modest"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["connection_string"]
    finally:
        process.terminate()
        process.wait()


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


async def send_modestly(connection_string: str, seconds: float) -> list[float]:
    """How long each took, the shortest first."""
    durations: list[float] = []
    async with await Namespace.connect(connection_string) as namespace:
        sender, end = await namespace.sender("modest"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            assert await sender.send([encode_message(b"x" * 100)]) == [None]
            durations.append(time.perf_counter() - start)
            await asyncio.sleep(PAUSE_S)
    return sorted(durations)


def p99(durations: list[float]) -> float:
    return durations[len(durations) * 99 // 100]


@pytest.mark.nightly
def test_a_modest_client_beside_greedy_ones_waits_little_longer_than_alone(
    connection_string: str, measured: Measured
) -> None:
    alone = p99(asyncio.run(send_modestly(connection_string, ALONE_S)))
    processes = multiprocessing.get_context("spawn")
    begun = processes.Semaphore(0)
    greedy = processes.Process(target=send_greedily, args=(connection_string, begun), daemon=True)
    greedy.start()
    try:
        assert all(begun.acquire(timeout=60) for _ in range(CONNECTIONS))
        beside = p99(asyncio.run(send_modestly(connection_string, BESIDE_S)))
    finally:
        greedy.kill()
        greedy.join()
    figures = {"us alone (p99)": int(alone * 1e6), "us beside greedy ones (p99)": int(beside * 1e6)}
    measured("modest client", figures)
    assert beside < max(P99_MAX_S, RATIO_MAX * alone)
