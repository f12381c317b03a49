"""A batch for very many subscriptions beside a client that sends one small message at a time."""

import asyncio
import threading
import time
from pathlib import Path

import pytest
from azure.servicebus.management import SqlRuleAction, TrueRuleFilter

from tests.attack.longest_turn import LongestTurn
from tests.attack.modest_client import ModestClient, p99
from tests.attack.served_namespace import served
from tests.measured import Measured
from twinbus.broker.fragment_transaction import MESSAGES_MAX
from twinbus.client.administration import administration_client
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.testing.local_namespace import LocalNamespace

TURN_MAX_S = 0.1
"""A few times a step: copies of a batch are made in steps of some milliseconds."""
RATIO_MAX = 30
LEAST_S = 0.5
WAIT_S = 60.0
ALONE_S, AFTER_S = 3.0, 5.0
COUNT = 1_000
ACTION_COUNT = 300
LONGEST_S = 1.0
"""For one message of whoever is beside, at most: the copies of a batch are one commit, in their own store too a short one."""


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


@pytest.mark.parametrize("store_count", [2, 1], ids=["another store", "the same store"])
def test_a_large_fan_out_holds_nobody_up(tmp_path: Path, store_count: int) -> None:
    names = [f"s{number}" for number in range(100)]
    with LocalNamespace(tmp_path, store_count=store_count) as namespace:
        namespace.create_queue("other")
        namespace.create_topic("t", *names)
        namespace.create_queue("modest")
        is_same = namespace.store_of("modest") == namespace.store_of("t/Subscriptions/s0")
        assert is_same is (store_count == 1)
        with LongestTurn(namespace) as longest:
            alone, beside = sending_beside(namespace, COUNT)
        assert [namespace.message_count(f"t/Subscriptions/{name}") for name in names] == [COUNT] * len(names)
    assert longest.seconds < TURN_MAX_S
    assert beside < max(RATIO_MAX * alone, LEAST_S)


async def commit(connection_string: str, count: int) -> None:
    async with await Namespace.connect(connection_string) as client:
        sender = await client.sender("t")
        async with client.transaction() as transaction:
            await transaction.send(sender, [encode_message("x" * 100) for _ in range(count)])


def test_a_transaction_whose_messages_many_actions_change_holds_nobody_up(tmp_path: Path) -> None:
    with LocalNamespace(tmp_path, store_count=1) as namespace:
        namespace.create_topic("t", "s")
        for number in range(ACTION_COUNT):
            action = SqlRuleAction(f"SET n = {number}")
            namespace.administration.create_rule("t", "s", f"r{number}", filter=TrueRuleFilter(), action=action)
        with LongestTurn(namespace) as longest:
            asyncio.run(commit(namespace.connection_string, MESSAGES_MAX))
        # One more each, without an action: the rule that it was created with.
        assert namespace.message_count("t/Subscriptions/s") == (ACTION_COUNT + 1) * MESSAGES_MAX
    assert longest.seconds < TURN_MAX_S


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("subscription_count", "count"), [(500, COUNT), (2_000, COUNT // 4)])
@pytest.mark.parametrize("where", ["another store", "the same store"])
def test_a_very_large_fan_out_is_not_felt_by_others(
    tmp_path: Path, where: str, subscription_count: int, count: int, measured: Measured
) -> None:
    """With the stores in a process of their own: threads of one process take turns, and a store's takes all it can."""
    with served(tmp_path, "--stores", "2" if where == "another store" else "1") as namespace:
        administration = administration_client(namespace.connection_string, namespace.endpoint)
        administration.create_queue("other")
        administration.create_topic("t")
        for number in range(subscription_count):
            administration.create_subscription("t", f"s{number}")
        administration.create_queue("modest")
        with ModestClient(namespace.connection_string, "modest") as alone:
            time.sleep(ALONE_S)
        with ModestClient(namespace.connection_string, "modest") as beside:
            asyncio.run(send_batch(namespace.connection_string, count))
            time.sleep(AFTER_S)
    figures = {"us alone (p99)": int(p99(alone.durations) * 1e6), "us beside (p99)": int(p99(beside.durations) * 1e6)}
    measured(
        f"{subscription_count} x {count} copies, modest client in {where}",
        figures | {"us at most": int(max(beside.durations) * 1e6)},
    )
    assert p99(beside.durations) < max(RATIO_MAX * p99(alone.durations), LEAST_S)
    assert max(beside.durations) < LONGEST_S + RATIO_MAX * p99(alone.durations)
