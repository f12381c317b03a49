"""What a message costs a running namespace as something around it grows: `python -m bench.breadth [--count 10000]`.

Over real sockets and to a real disk, with one client process. Each line is the processor time of the namespace and its stores in
microseconds, and means something on a busy machine too:

    topics      sent to a topic whose subscriptions all have an SQL filter that matches, and received from each
    sessions    five messages for each message session, sent in turns; a hundred sessions are accepted and emptied one by one
    queues      sent to queues in turns, a hundred under way at once, and received at the same time; then the same with one queue,
                beside queues at which somebody waits and to which nobody sends
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from bench.processor_time import processor_seconds
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.receiver import Receiver
from twinbus.client.sender import Sender

BODY = bytes(1_024)
BURST = 100
UNDER_WAY_MAX = 10
LINKS_PER_CONNECTION = 250
WAIT_S = 30.0
SUBSCRIPTION_COUNTS = (1, 2, 5, 10)
SESSION_COUNTS = (100, 10_000)
PER_SESSION = 5
EMPTIED = 100
QUEUE_COUNTS = (1, 1_000)
FILTER = {"name": "r", "sql": "quantity > 5 AND region = 'north'"}


class Served(NamedTuple):
    connection_string: str
    process_id: int

    async def cost_us(self, work: Callable[[], Awaitable[None]], count: int) -> float:
        """Of the namespace and its stores, for each of so many messages."""
        before = processor_seconds(self.process_id)
        await work()
        after = processor_seconds(self.process_id)
        assert before is not None
        assert after is not None
        return (after - before) / count * 1e6

    @asynccontextmanager
    async def connections(self, link_count: int) -> AsyncIterator[list[Namespace]]:
        """Enough for so many links."""
        count = -(-link_count // LINKS_PER_CONNECTION)
        opened = [await Namespace.connect(self.connection_string) for _ in range(count)]
        try:
            yield opened
        finally:
            for each in opened:
                await each.close()


@contextmanager
def served(entities: dict[str, Any]) -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "entities.json")
        file.write_text(json.dumps(entities))
        command = [str(Path(sys.executable).with_name("twinbus")), "serve", "breadth", "--data", f"{folder}/data"]
        command += ["--json", "--amqp-port", "0", "--http-port", "0", "--processes", "1", "--no-meter"]
        command += ["--entities", str(file)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            yield Served(json.loads(server.stdout.readline())["connection_string"], server.pid)
        finally:
            server.terminate()
            server.wait(timeout=60)


async def send(sender: Sender, payloads: Sequence[bytes]) -> None:
    under_way = []
    for start in range(0, len(payloads), BURST):
        under_way.append(sender.submit(payloads[start : start + BURST]))
        if len(under_way) >= UNDER_WAY_MAX:
            assert not any(await under_way.pop(0).wait())
    for outcomes in under_way:
        assert not any(await outcomes.wait())


async def drain(receiver: Receiver, count: int) -> None:
    settling = []
    while count:
        messages = await receiver.receive(min(count, BURST), wait_s=WAIT_S)
        assert messages, f"{count} messages did not come"
        settling.append(receiver.submit(messages))
        count -= len(messages)
    for outcomes in settling:
        assert not any(await outcomes.wait())


def messages(count: int, session_count: int = 0) -> list[bytes]:
    properties = {"quantity": 10, "region": "north"}
    return [
        encode_message(
            BODY,
            message_id=str(number),
            session_id=f"session-{number % session_count}" if session_count else None,
            application_properties=properties,
        )
        for number in range(count)
    ]


def line(what: str, *costs_us: float) -> None:
    print(f"{what:<52}", *[f"{cost:>10.1f}" for cost in costs_us], flush=True)


async def topics(count: int) -> None:
    table = [
        {"name": f"t{each}", "subscription": [{"name": f"s{number}", "rule": [FILTER]} for number in range(each)]}
        for each in SUBSCRIPTION_COUNTS
    ]
    with served({"topic": table}) as namespace:
        async with namespace.connections(1) as (connection,):
            for each in SUBSCRIPTION_COUNTS:
                sender = await connection.sender(f"t{each}")
                sent = await namespace.cost_us(partial(send, sender, messages(count)), count)
                received = await namespace.cost_us(partial(_receive_copies, connection, each, count), count * each)
                line(f"topic, {each} subscriptions with a filter; a copy received", sent, received)


async def _receive_copies(connection: Namespace, subscription_count: int, count: int) -> None:
    for number in range(subscription_count):
        receiver = await connection.receiver(f"t{subscription_count}/subscriptions/s{number}", credit=1_000)
        await drain(receiver, count)
        await receiver.close()


async def sessions(_: int) -> None:
    table = [{"name": f"q{each}", "sessions": True} for each in SESSION_COUNTS]
    with served({"queue": table}) as namespace:
        async with namespace.connections(1) as (connection,):
            for each in SESSION_COUNTS:
                sender = await connection.sender(f"q{each}")
                payloads = messages(PER_SESSION * each, each)
                sent = await namespace.cost_us(partial(send, sender, payloads), len(payloads))
                received = await namespace.cost_us(partial(_empty, connection, f"q{each}"), EMPTIED * PER_SESSION)
                line(f"{each:,} sessions, {PER_SESSION} messages each", sent, received)


async def _empty(connection: Namespace, path: str) -> None:
    for _ in range(EMPTIED):
        receiver = await connection.session_receiver(path, credit=BURST)
        await drain(receiver, PER_SESSION)
        await receiver.close()


async def queues(count: int) -> None:
    for each in QUEUE_COUNTS:
        with served({"queue": [{"name": f"q{number}"} for number in range(each)]}) as namespace:
            await _one_at_a_time(
                namespace, f"{each:,} queues, in turns", count, [f"q{number}" for number in range(each)]
            )
    with served({"queue": [{"name": f"q{number}"} for number in range(1_001)]}) as namespace:
        async with namespace.connections(1_000) as connections:
            for number in range(1, 1_001):
                await connections[number % len(connections)].receiver(f"q{number}", credit=BURST)
            await _one_at_a_time(namespace, "1 queue beside 1,000 that somebody waits at", count, ["q0"])


async def _one_at_a_time(namespace: Served, what: str, count: int, names: Sequence[str]) -> None:
    payloads = messages(count)
    async with namespace.connections(2 * len(names)) as connections:
        places = [(connections[number % len(connections)], name) for number, name in enumerate(names)]
        senders = [await connection.sender(name) for connection, name in places]
        receivers = [await connection.receiver(name, credit=BURST) for connection, name in places]
        numbers = iter(range(count))

        async def send_some() -> None:
            for number in numbers:
                assert not any(await senders[number % len(senders)].send([payloads[number]]))

        async def pass_all() -> None:
            drains = [drain(each, len(range(place, count, len(names)))) for place, each in enumerate(receivers)]
            await asyncio.gather(*[send_some() for _ in range(BURST)], *drains)

        line(f"{what}; both", await namespace.cost_us(pass_all, count))


JOBS = {"topics": topics, "sessions": sessions, "queues": queues}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("jobs", nargs="*", help="topics, sessions, queues; default: all")
    options = parser.parse_args()
    print(f"{'processor time of the namespace, us a message':<52} {'sent':>10} {'received':>10}")
    for name in options.jobs or JOBS:
        uvloop.run(JOBS[name](options.count))


if __name__ == "__main__":
    main()
