"""Clients of a namespace on several hosts, which log all they ask and hear. They are the stock SDK's.

All but one are connected to a node by its own address, go to the next one when theirs does not serve them, and try nothing twice by
themselves. One is connected through a balancer with the retries that the SDK has by default, as an application is.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import count
from traceback import format_exception
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusError

from tests.server.machines.balancer import Address, Balancer
from tests.server.machines.history import Completion, History, Hold, Receipt
from tests.server.machines.hosts import SWITCH_HOST, Cluster

KEYLESS, ORDERED, ONCE = "keyless", "ordered", "once"
SESSIONS = 3
SETTLED_S = 120.0
TRY_S = 8.0
"""After which a client tries another node."""
KEYLESS_TRY_S = 25.0
"""The same for one that sends without a key: longer than its node looks for another one, so that it hears of every refusal."""
PACE_S = 0.02
CHECK_EVERY_S = 0.5
BALANCED = "balanced"
LOCK_S = 5
"""Of the queues."""
ERRORS = (ServiceBusError, OSError, TimeoutError, ValueError)
OF_THE_CONNECTION = (ServiceBusConnectionError, OperationTimeoutError, OSError, TimeoutError, ValueError)
"""What the SDK makes of a connection that ends, cannot be opened, or is silent. The rest is what a node answered."""


class HealthChecks:
    """Asks all nodes whether they are ready, as a balancer does. One that does not answer twice is given up with its connections."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._silent: Counter[Address] = Counter()
        self._ready: dict[Address, bool] = {}
        self.balancer = Balancer(self.ready, cluster.hosts.address(SWITCH_HOST))

    def ready(self) -> list[Address]:
        return [address for address, is_ready in sorted(self._ready.items()) if is_ready]

    async def run(self) -> None:
        while True:
            await asyncio.gather(self.check(), asyncio.sleep(CHECK_EVERY_S))

    async def check(self) -> None:
        await asyncio.gather(*map(self._check, self._cluster.hosts.numbers))

    async def _check(self, number: int) -> None:
        said = self._cluster.said.get(number)
        if said is None:
            return
        host = self._cluster.hosts.address(number)
        address = host, said.amqp_port
        try:
            status = await asyncio.to_thread(_status_of, f"http://{host}:{said.http_port}/ready")
        except OSError as error:
            self._silent[address] += 1
            self.balancer.note(f"{address} is silent: {error!r}")
            if self._silent[address] == 2:
                self._ready[address] = False
                self.balancer.cut_off(address)
        else:
            self._silent[address] = 0
            if self._ready.get(address) != (status == 200):
                self.balancer.note(f"{address} answers {status}")
            self._ready[address] = status == 200


def _status_of(url: str) -> int:
    try:
        with urlopen(url, timeout=1) as answer:
            status: int = answer.status
            return status
    except HTTPError as refused:
        return refused.code


class Opened(NamedTuple):
    """A receiver, by a number that no other one has, and when it began to be opened."""

    receiver: int
    at: float


class Clients:
    """What clients do from `started` until the end of that, and then until everything is found. `name`: of their messages."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self.history = History(invoked=cluster.invoked)
        self._stop = asyncio.Event()
        self._is_over = asyncio.Event()
        self._receivers = count()
        self.sent_at: list[float] = []
        self.cut_off: Counter[str] = Counter()
        """Sends without a key whose connection ended, by the error."""
        self.balancer_events: list[str] = []

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        checks = HealthChecks(self._cluster)
        self.balancer_events = checks.balancer.events
        await checks.check()
        await checks.balancer.start()
        checking = asyncio.create_task(checks.run())
        sessions = [f"{self._name}-{number}" for number in range(SESSIONS)]
        senders = [self._send(KEYLESS, node) for node in (1, 2, 3)]
        senders += [self._send(ORDERED, place, session) for place, session in enumerate(sessions)]
        senders += [self._send_once(), self._send_balanced(checks.balancer.port)]
        receivers = [self._receive(KEYLESS, node) for node in (1, 3)] + [self._receive(ONCE, 2)]
        for place, session in enumerate(sessions):  # two contend for each
            receivers += [self._receive_session(session, place + offset) for offset in (0, 1)]
        sending = [asyncio.create_task(each) for each in senders]
        receiving = [asyncio.create_task(self._noticed(each)) for each in receivers]
        try:
            yield
            self._stop.set()
            await asyncio.gather(*sending)
            await self._all_found()
        finally:
            self._stop.set()
            self._is_over.set()
            await asyncio.gather(*sending, *receiving, return_exceptions=True)
            checking.cancel()
            with suppress(asyncio.CancelledError):
                await checking
            await checks.balancer.stop()

    async def _noticed(self, receiver: Coroutine[Any, Any, None]) -> None:
        try:
            await receiver
        except Exception as broken:
            self.history.broken_receivers.append("".join(format_exception(broken)[-5:]))

    async def _all_found(self) -> None:
        """Or until nothing has been found for a while: on a busy machine receivers may be minutes behind."""
        missing, found_at = len(self.history.missing), time.monotonic()
        while missing and time.monotonic() - found_at < SETTLED_S:
            await asyncio.sleep(0.1)
            if len(self.history.missing) < missing:
                missing, found_at = len(self.history.missing), time.monotonic()

    @asynccontextmanager
    async def _client(self, number: int) -> AsyncIterator[ServiceBusClient]:
        string = self._cluster.said[number].connection_string
        async with ServiceBusClient.from_connection_string(string, retry_total=0, socket_timeout=5) as client:
            yield client

    def _invoked(self, sender: str, number: int) -> str:
        body = f"{self._name}/{sender}/{number}"
        self.history.invoked.add(body)
        return body

    def _acknowledged(self, body: str) -> None:
        self.history.acknowledged.add(body)
        self.sent_at.append(time.monotonic())

    async def _send(self, queue: str, first_node: int, session: str | None = None) -> None:
        """One after the other, each body once: what failed is not tried again."""
        number, node, asked = 0, first_node, 0.0
        patience = KEYLESS_TRY_S if queue == KEYLESS else TRY_S
        while not self._stop.is_set():
            node = node % 3 + 1
            try:
                async with self._client(node) as client, client.get_queue_sender(queue) as sender:
                    while not self._stop.is_set():
                        number += 1
                        body, asked = self._invoked(session or f"{queue}{first_node}", number), time.monotonic()
                        async with asyncio.timeout(patience):
                            await sender.send_messages(ServiceBusMessage(body, session_id=session, message_id=body))
                        self._acknowledged(body)
                        await asyncio.sleep(PACE_S)
            except ERRORS as error:
                if queue == KEYLESS and not isinstance(error, OF_THE_CONNECTION):
                    self.history.refusals.append(f"{_after(asked)} at n{node}: {error!r}")
                elif queue == KEYLESS:
                    self.cut_off[f"{error!r}"[:100]] += 1
                await asyncio.sleep(0.05)

    async def _send_once(self) -> None:
        """Each body again and again, at one node after the other, until it is acknowledged."""
        number, node, body = 0, 1, ""
        while not self._stop.is_set():
            node = node % 3 + 1
            try:
                async with self._client(node) as client, client.get_queue_sender(ONCE) as sender:
                    while not self._stop.is_set():
                        if not body:
                            number += 1
                            body = self._invoked(ONCE, number)
                            self.history.sent_once.add(body)
                        async with asyncio.timeout(TRY_S):
                            await sender.send_messages(ServiceBusMessage(body, message_id=body))
                        self._acknowledged(body)
                        body = ""
                        await asyncio.sleep(PACE_S)
            except ERRORS:
                await asyncio.sleep(0.05)

    async def _send_balanced(self, port: int) -> None:
        said = self._cluster.said[1]
        there = f"{self._cluster.hosts.address(1)}:{said.amqp_port}"
        here = f"{self._cluster.hosts.address(SWITCH_HOST)}:{port}"
        assert there in said.connection_string
        string, number = said.connection_string.replace(there, here), 0
        async with (
            ServiceBusClient.from_connection_string(string) as client,
            client.get_queue_sender(KEYLESS) as sender,
        ):
            while not self._stop.is_set():
                number += 1
                body, asked = self._invoked(BALANCED, number), time.monotonic()
                try:
                    await sender.send_messages(ServiceBusMessage(body))
                    self._acknowledged(body)
                except ERRORS as error:
                    self.history.refusals.append(f"{_after(asked)} through the balancer: {error!r}")
                await asyncio.sleep(PACE_S)

    async def _receive(self, queue: str, first_node: int) -> None:
        node = first_node
        while not self._is_over.is_set():
            node = node % 3 + 1
            try:
                opened = self._open()
                async with self._client(node) as client, client.get_queue_receiver(queue) as receiver:
                    while not self._is_over.is_set():
                        async with asyncio.timeout(TRY_S):
                            for message in await receiver.receive_messages(20, max_wait_time=1):
                                await self._complete(receiver, message, opened)
            except ERRORS:
                await asyncio.sleep(0.05)

    async def _receive_session(self, session: str, first_node: int) -> None:
        node = first_node
        while not self._is_over.is_set():
            node = node % 3 + 1
            try:
                opened = self._open()
                async with (
                    self._client(node) as client,
                    client.get_queue_receiver(ORDERED, session_id=session, prefetch_count=5) as receiver,
                ):
                    now = time.monotonic()
                    hold = Hold(session, opened.at, now, now, node)
                    self.history.holds.append(hold)
                    while not self._is_over.is_set():
                        async with asyncio.timeout(TRY_S):
                            for message in await receiver.receive_messages(5, max_wait_time=1):
                                completion = await self._complete(receiver, message, opened)
                                hold.proven_until = completion.asked
                                self.history.completed_of[session].append(completion)
            except ERRORS:
                await asyncio.sleep(0.05)

    def _open(self) -> Opened:
        return Opened(next(self._receivers), time.monotonic())

    async def _complete(self, receiver: Any, message: Any, opened: Opened) -> Completion:
        body, number, asked = str(message), message.sequence_number, time.monotonic()
        receipt = Receipt(asked, body, number, opened.receiver, max(opened.at, _handed_over(message)))
        self.history.received.append(receipt)
        await receiver.complete_message(message)
        self.history.completed[body, number] = receipt
        return Completion(body, asked, time.monotonic())


def _after(asked: float) -> str:
    return f"{time.strftime('%H:%M:%S')}, {time.monotonic() - asked:.1f} s after it was sent,"


def _handed_over(message: Any) -> float:
    """When it was locked, as its node said; that of a message session does not say it."""
    until = message.locked_until_utc
    return 0.0 if until is None else time.monotonic() - time.time() + until.timestamp() - LOCK_S
