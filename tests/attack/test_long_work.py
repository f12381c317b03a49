"""Work on very many messages at once, beside a client that sends one small message at a time.

What is asked for in one frame, or begins by itself at one moment, is done in steps: the longest turn of the loop is short, and the
other client waits little longer than alone. Nightly, except for single requests: `tests/broker` tests the steps one by one.
"""

import asyncio
import http.client
import json
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.attack.longest_turn import LongestTurn
from tests.attack.modest_client import ModestClient, p99
from tests.interop.running_server import ShiftedClock
from tests.measured import Measured
from twinbus.amqp.codec.sections import DataBody, Sections, encode_sections
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.token_sources import sign
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.model.message_limits import BATCH_COUNT_MAX, MESSAGE_SIZE_MAX
from twinbus.testing.local_namespace import LocalNamespace

COUNT = 100_000
BATCH = 1_000
ALONE_S = 3.0
TURN_MAX_S = 0.1
RATIO_MAX = 30
LEAST_S = 0.5
"""Of a machine that is busy with other things."""
LIFE_S = 360.0
"""The clock jumps over all of it, and a namespace gives connections up that it has not heard of for 480 s."""
LOCK_S = 60.0
WAIT_S = 300.0


class World:
    def __init__(self, namespace: LocalNamespace, clock: ShiftedClock, client: Namespace) -> None:
        self.namespace = namespace
        self.clock = clock
        self.client = client

    async def fill(self, path: str, session_count: int = 0) -> None:
        sender = await self.client.sender(path)
        for start in range(0, COUNT, BATCH):
            numbers = range(start, start + BATCH)
            life = timedelta(seconds=LIFE_S)
            payloads = [
                encode_message(b"x" * 100, time_to_live=life, session_id=f"s{number}" if session_count else None)
                for number in numbers
            ]
            assert not any(await sender.send_batches(payloads, keeps_keys_apart=bool(session_count)))
        assert self.namespace.message_count(path) == COUNT

    async def until_count(self, path: str, count: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.namespace.message_count(path) != count:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


Work = Callable[[], Awaitable[None]]


async def expiry(world: World) -> Work:
    await world.fill("q")

    async def work() -> None:
        world.clock.advance(LIFE_S + 60)
        await world.until_count("q", 0)

    return work


async def purge(world: World) -> Work:
    await world.fill("q")

    async def work() -> None:
        extras, left = world.client.extras("q"), COUNT
        while left:
            left -= await extras.purge(COUNT)

    return work


async def one_disposition(world: World) -> Work:
    await world.fill("q")
    receiver = await world.client.receiver("q", credit=COUNT)
    taken = await receiver.collect(COUNT, wait_s=WAIT_S)
    assert len(taken) == COUNT

    async def work() -> None:
        assert not any(await receiver.complete(taken))

    return work


async def locks_that_end(world: World) -> Work:
    await world.fill("q")
    receiver = await world.client.receiver("q", credit=COUNT)
    assert len(await receiver.collect(COUNT, wait_s=WAIT_S)) == COUNT
    await receiver.pause()

    async def work() -> None:
        world.clock.advance(LOCK_S + 10)
        again = await world.client.receiver("q", credit=COUNT)
        assert len(await again.collect(COUNT, wait_s=WAIT_S)) == COUNT

    return work


async def sessions_listed(world: World) -> Work:
    await world.fill("sessions", session_count=COUNT)
    node = world.client.entity("sessions")

    async def work() -> None:
        found, skip = set[str](), 0
        while page := await node.sessions(skip=skip, top=1_000):
            found.update(page)
            skip += len(page)
            if skip >= 20_000:
                break
        assert len(found) == skip

    return work


WORKS = [expiry, purge, one_disposition, locks_that_end, sessions_listed]


@pytest.mark.nightly
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("where", ["another store", "the same store"])
@pytest.mark.parametrize("prepare", WORKS, ids=lambda each: each.__name__)
async def test_work_on_very_many_messages_holds_nobody_up(
    tmp_path: Path, prepare: Callable[[World], Awaitable[Work]], where: str, measured: Measured
) -> None:
    clock = ShiftedClock()
    stores = 2 if where == "another store" else 1
    loop = asyncio.get_running_loop()
    with LocalNamespace(tmp_path, store_count=stores, clock=clock) as namespace:
        lock = timedelta(seconds=LOCK_S)
        create = namespace.create_queue
        await loop.run_in_executor(None, lambda: create("q", lock_duration=lock, max_delivery_count=100))
        await loop.run_in_executor(None, lambda: create("modest"))
        await loop.run_in_executor(None, lambda: create("sessions", requires_session=True))
        async with await Namespace.connect(namespace.connection_string) as client:
            work = await prepare(World(namespace, clock, client))
            with ModestClient(namespace.connection_string, "modest") as alone, LongestTurn(namespace):
                await asyncio.sleep(ALONE_S)
            with (
                ModestClient(namespace.connection_string, "modest") as beside,
                LongestTurn(namespace) as longest,
            ):
                begun = time.perf_counter()
                await work()
                took = time.perf_counter() - begun
    figures = {
        "ms in all": int(took * 1e3),
        "us of the longest turn": int(longest.seconds * 1e6),
        "us alone (p99)": int(p99(alone.durations) * 1e6),
        "us beside (p99)": int(p99(beside.durations) * 1e6),
        "us at most": int(max(beside.durations) * 1e6),
    }
    measured(f"{prepare.__name__} of {COUNT}, modest client in {where}", figures)
    assert longest.seconds < TURN_MAX_S
    assert p99(beside.durations) < max(RATIO_MAX * p99(alone.durations), LEAST_S)


SINGLE_TURN_MAX_S = 0.06


def test_the_fullest_batch_over_http_holds_nobody_up(tmp_path: Path) -> None:
    properties = {"BrokerProperties": {"Label": "l"}, "UserProperties": {"a": 1, "b": "c"}}
    with LocalNamespace(tmp_path, store_count=1) as namespace:
        namespace.create_queue("q")
        parsed = parse_connection_string(namespace.connection_string)
        token = sign("sb://localhost/", parsed.key_name, parsed.key, int(time.time()) + 600)
        headers = {"Authorization": token, "Content-Type": "application/vnd.microsoft.servicebus.json"}
        connection = http.client.HTTPConnection("127.0.0.1", parsed.http_port, timeout=60)
        body = json.dumps([{"Body": "x", **properties}] * BATCH_COUNT_MAX)
        with LongestTurn(namespace) as longest:
            connection.request("POST", "/q/messages", body, headers)
            assert connection.getresponse().status == 201
        connection.close()
    assert longest.seconds < SINGLE_TURN_MAX_S


async def test_the_fullest_batch_over_amqp_holds_nobody_up(tmp_path: Path) -> None:
    payloads = [
        encode_sections(Sections(application_properties={"n": number, f"p{number}": "x"}, body=DataBody([b"x"])))
        for number in range(BATCH_COUNT_MAX)
    ]
    assert sum(map(len, payloads)) + 5 * BATCH_COUNT_MAX < MESSAGE_SIZE_MAX
    loop = asyncio.get_running_loop()
    with LocalNamespace(tmp_path, store_count=1) as namespace:
        await loop.run_in_executor(None, lambda: namespace.create_queue("q"))
        async with await Namespace.connect(namespace.connection_string) as client:
            sender = await client.sender("q")
            with LongestTurn(namespace) as longest:
                assert not any(await sender.send_batches(payloads, keeps_keys_apart=False))
    assert longest.seconds < SINGLE_TURN_MAX_S
