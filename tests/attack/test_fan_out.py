"""A batch for very many subscriptions beside a client that sends one small message at a time."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from tests.attack.longest_turn import LongestTurn
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.testing.local_namespace import LocalNamespace

TURN_MAX_S = 0.1
"""A few times a step: copies of a batch are made in steps of some milliseconds."""
RATIO_MAX = 30
LEAST_S = 0.5
WAIT_S = 60.0


async def send_batch(connection_string: str, count: int) -> None:
    async with await Namespace.connect(connection_string) as client:
        sender = await client.sender("t")
        payloads = [encode_message("x" * 100) for _ in range(count)]
        assert not any(await sender.send_batches(payloads, keeps_keys_apart=False))


async def send_some(
    connection_string: str, count: int, durations: list[float], begun: threading.Event, until: threading.Event
) -> None:
    """One after the other, at least `count` and until the event is set."""
    async with await Namespace.connect(connection_string) as client:
        sender = await client.sender("modest")
        while len(durations) < count or not until.is_set():
            start = time.perf_counter()
            assert await sender.send([encode_message("x")]) == [None]
            durations.append(time.perf_counter() - start)
            begun.set()


def p99(durations: list[float]) -> float:
    return sorted(durations)[len(durations) * 99 // 100]


def sending_alone(namespace: LocalNamespace) -> float:
    ended, durations = threading.Event(), list[float]()
    ended.set()
    asyncio.run(send_some(namespace.connection_string, 100, durations, threading.Event(), ended))
    return p99(durations)


def sending_beside(namespace: LocalNamespace, count: int) -> tuple[float, float]:
    """The p99 of a modest client alone, and beside a batch with `count` messages."""
    alone, beside = sending_alone(namespace), list[float]()
    begun, ended = threading.Event(), threading.Event()
    modest = threading.Thread(
        target=lambda: asyncio.run(send_some(namespace.connection_string, 100, beside, begun, ended))
    )
    modest.start()
    try:
        assert begun.wait(WAIT_S)
        asyncio.run(send_batch(namespace.connection_string, count))
    finally:
        ended.set()
        modest.join(WAIT_S)
    assert not modest.is_alive()
    # Before and after: the machine may have become busy with other things.
    return max(alone, sending_alone(namespace)), p99(beside)


@pytest.mark.parametrize(
    ("subscription_count", "message_count"), [(100, 1_000), pytest.param(500, 1_000, marks=pytest.mark.nightly)]
)
def test_a_large_fan_out_holds_nobody_up(tmp_path: Path, subscription_count: int, message_count: int) -> None:
    names = [f"s{number}" for number in range(subscription_count)]
    with LocalNamespace(tmp_path, store_count=2) as namespace:
        namespace.create_queue("other")
        namespace.create_topic("t", *names)
        namespace.create_queue("modest")
        assert namespace.store_of("modest") != namespace.store_of("t/Subscriptions/s0")
        with LongestTurn(namespace) as longest:
            alone, beside = sending_beside(namespace, message_count)
        assert [namespace.message_count(f"t/Subscriptions/{name}") for name in names] == [message_count] * len(names)
    assert longest.seconds < TURN_MAX_S
    assert beside < max(RATIO_MAX * alone, LEAST_S)
