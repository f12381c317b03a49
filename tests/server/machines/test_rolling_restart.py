"""All nodes of a namespace are restarted one after the other, under clients of the stock SDK behind one address: nobody notices."""

import asyncio
import os
import re
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from tests.measured import Measured
from tests.server.machines.balancer import Balancer
from tests.server.machines.machines import Node
from twinbus.cli.app import run

pytestmark = pytest.mark.timeout(600)
PARTS, ORDERED = "parts", "ordered"
NAMES = ("a", "b", "c")
SESSIONS = ("x", "y", "z")
HELD_S = 4.0
"""For which a receiver works on a message before it completes it: a node restarts meanwhile."""
LOCK = "40s"
"""Longer than anybody holds a message. What the SDK has read ahead when its connection ends nobody settles: that comes again after this time."""


class Clients:
    def __init__(self, connection_string: str) -> None:
        self._string = connection_string
        self.sent: Counter[str] = Counter()
        self.completed: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        """Those without a session."""
        self.in_session: dict[str, list[str]] = defaultdict(list)
        self.errors: list[str] = []
        self.cut_off = 0
        """Receivers of message sessions whose connection ended. The SDK tells them so and leaves it to them to accept the session again."""
        self.pause_max_s = 0.0
        self.is_over = asyncio.Event()
        self.is_drained = asyncio.Event()

    def client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self._string, retry_total=10, retry_backoff_max=2)

    async def send(self, queue: str, name: str, session: str | None = None) -> None:
        number = 0
        async with self.client() as client, client.get_queue_sender(queue) as sender:
            while not self.is_over.is_set():
                body = f"{name}/{number}"
                began = time.monotonic()
                try:
                    await sender.send_messages(ServiceBusMessage(body, session_id=session))
                    self.sent[body] += 1
                except ServiceBusError as error:
                    self.errors.append(f"send {body}: {error!r}")
                self.pause_max_s = max(self.pause_max_s, time.monotonic() - began)
                number += 1
                await asyncio.sleep(0.05)

    async def receive(self) -> None:
        """Works on some messages for a while, and completes them under the locks that they came with."""
        async with self.client() as client, client.get_queue_receiver(PARTS) as receiver:
            while not (self.is_drained.is_set() and self.is_over.is_set()):
                messages: list[ServiceBusReceivedMessage] = []
                try:
                    messages = await receiver.receive_messages(50, max_wait_time=1)
                except ServiceBusError as error:
                    self.errors.append(f"receive: {error!r}")
                self.received.update(map(str, messages))
                await asyncio.sleep(HELD_S if messages else 0)
                for message in messages:
                    try:
                        await receiver.complete_message(message)
                        self.completed[str(message)] += 1
                    except ServiceBusError as error:
                        self.errors.append(f"complete {message}: {error!r}")

    async def receive_session(self, session: str) -> None:
        while not (self.is_drained.is_set() and self.is_over.is_set()):
            try:
                async with self.client() as client, client.get_queue_receiver(ORDERED, session_id=session) as receiver:
                    while not (self.is_drained.is_set() and self.is_over.is_set()):
                        for message in await receiver.receive_messages(5, max_wait_time=1):
                            self.in_session[session].append(str(message))
                            await receiver.complete_message(message)
                            self.completed[str(message)] += 1
            except ServiceBusConnectionError:
                self.cut_off += 1
            except ServiceBusError as error:
                self.errors.append(f"session {session}: {error!r}")


def is_in_order(bodies: list[str]) -> bool:
    """As they were sent; what a connection took with it is delivered again from there on."""
    numbers = [int(body.rpartition("/")[2]) for body in bodies]
    return all(after <= before + 1 for before, after in pairwise(numbers))


@pytest.mark.nightly
async def test_a_rolling_restart_loses_no_lock_and_shows_no_error(
    tmp_path: Path, postgres_dsn: str, measured: Measured
) -> None:
    namespace = f"rolling{os.getpid()}"
    nodes: dict[str, Node] = {}
    ready: set[str] = set()

    def begin(name: str) -> None:
        nodes[name] = Node(tmp_path, postgres_dsn, namespace, name, "--queue", f"{PARTS}:partitioned")

    def port_of(node: Node) -> int:
        return int(re.search(r":(\d+)/?(;|$)", node.connection_string).group(1))  # type: ignore[union-attr]

    balancer = Balancer(lambda: [("127.0.0.1", port_of(nodes[name])) for name in sorted(ready)])
    try:
        for name in NAMES:
            begin(name)
        for name in NAMES:
            await asyncio.to_thread(nodes[name].ready)
            ready.add(name)
        string = nodes["a"].connection_string
        create = ["queue", "create", ORDERED, "--sessions", "--partitioned", "--lock-duration", "5m"]
        assert await asyncio.to_thread(run, [*create, "--connection-string", string]) == 0
        change = ["queue", "update", PARTS, "--lock-duration", LOCK]
        assert await asyncio.to_thread(run, [*change, "--connection-string", string]) == 0
        await balancer.start()
        clients = Clients(string.replace(f":{port_of(nodes['a'])}", f":{balancer.port}"))
        tasks = [asyncio.create_task(clients.send(PARTS, f"k{number}")) for number in range(2)]
        tasks += [asyncio.create_task(clients.send(ORDERED, session, session)) for session in SESSIONS]
        tasks += [asyncio.create_task(clients.receive()) for _ in range(3)]
        tasks += [asyncio.create_task(clients.receive_session(session)) for session in SESSIONS]
        await asyncio.sleep(3)
        drained_s = []
        for name in NAMES:
            began = time.monotonic()
            ready.discard(name)
            assert await asyncio.to_thread(nodes[name].stop) == 0
            drained_s.append(time.monotonic() - began)
            begin(name)
            await asyncio.to_thread(nodes[name].ready)
            ready.add(name)
            print(f"{name} is back after {time.monotonic() - began:.1f} s", flush=True)
        clients.is_over.set()
        deadline = time.monotonic() + 120
        while clients.sent.keys() - clients.completed.keys() and time.monotonic() < deadline:
            await asyncio.sleep(0.2)
        clients.is_drained.set()
        await asyncio.gather(*tasks)
        again = [body for body, count in clients.received.items() if count > 1]
        disordered = [session for session, bodies in clients.in_session.items() if not is_in_order(bodies)]
        story = {
            name: [line for line in node.log.splitlines() if "store_" in line][-4:] for name, node in nodes.items()
        }
        measured(
            "rolling restart",
            {
                "sent": len(clients.sent),
                "longest send ms": round(1_000 * clients.pause_max_s),
                "drain ms": round(1_000 * max(drained_s)),
                "delivered twice": len(again),
                "message sessions accepted again": clients.cut_off,
            },
        )
        assert not clients.errors, (Counter(error.split(":")[0] for error in clients.errors), clients.errors[:6], story)
        assert clients.completed.keys() == clients.sent.keys()
        assert not again, again[:5]
        assert not disordered, clients.in_session[disordered[0]]
        # Each restart ends a connection of each at most once.
        assert clients.cut_off <= len(SESSIONS) * len(NAMES)
    finally:
        await balancer.stop()
        for node in nodes.values():
            node.kill()
