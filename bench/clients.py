"""`python -m bench.clients`: one process of the twinbus client compared with one of the stock client, on the same namespace.

    python -m bench.clients [--rounds 3] [--count 5000] [--size 1024] [--partitioned]

A throw-away namespace is served by a process of its own. In each round every job is done by both clients, one right
after the other, so that whatever else the machine does hits both alike: the ratios mean something, the rates little.

    lists      sends of 100 messages a call; the twinbus client puts them into batches and has several calls in flight
    receive    lists of up to 100, each message completed; the bulk client takes more while settlements are under way
    singles    a message a call; the bulk client has several calls of 100 messages under way, each message a transfer
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.errors import MessagingError

LIST = 100
UNDER_WAY_MAX = 20
BULK_SHARE = 4
"""Times as many messages for the bulk client, or it would be done before it has begun."""
QUEUE = "clients"
QUEUE_MB_MAX = 5_120
JOBS = ("lists", "receive", "singles")
CLIENTS = ("stock", "bulk")
RUN_TIMEOUT_S = 300.0
SERVER_STOP_S = 300.0
"""It writes what is only in its journals to its tables, which may be much."""


class Figures(NamedTuple):
    rate: float
    cpu_us: float
    """CPU time of the client process for a message: what is left of the figures on a busy machine."""


class Stopwatch:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def figures(self, count: int) -> Figures:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return Figures(count / wall, cpu / count * 1e6)


def run_stock(connection_string: str, job: str, count: int, size: int) -> Figures:
    """The official SDK, used as its documentation advises. The first message is not measured: it opens the link."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    body = bytes(size)
    with ServiceBusClient.from_connection_string(connection_string) as client:
        if job == "receive":
            with client.get_queue_receiver(QUEUE, prefetch_count=1_000) as receiver:
                left = count - 1
                for message in receiver.receive_messages(1, max_wait_time=30):
                    receiver.complete_message(message)
                watch = Stopwatch()
                while left > 0:
                    messages = receiver.receive_messages(min(LIST, left), max_wait_time=10)
                    for message in messages:
                        receiver.complete_message(message)
                    left -= len(messages)
                return watch.figures(count - 1)
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages(ServiceBusMessage(body, message_id="first"))
            watch = Stopwatch()
            step = LIST if job == "lists" else 1
            for first in range(1, count, step):
                numbers = range(first, min(first + step, count))
                sender.send_messages([ServiceBusMessage(body, message_id=str(number)) for number in numbers])
            return watch.figures(count - 1)


async def run_bulk(connection_string: str, job: str, count: int, size: int) -> Figures:
    async with await Namespace.connect(connection_string) as namespace:
        if job == "receive":
            return await _bulk_receive(namespace, count)
        return await _bulk_send(namespace, count, bytes(size), in_batches=job == "lists")


async def _bulk_send(namespace: Namespace, count: int, body: bytes, *, in_batches: bool) -> Figures:
    sender = await namespace.sender(QUEUE)
    submit = sender.submit_batches if in_batches else sender.submit
    _require(await sender.send([encode_message(body, message_id="first")]))
    watch = Stopwatch()
    under_way = []
    for first in range(1, count, LIST):
        numbers = range(first, min(first + LIST, count))
        under_way.append(submit([encode_message(body, message_id=str(number)) for number in numbers]))
        if len(under_way) >= UNDER_WAY_MAX:
            _require(await under_way.pop(0).wait())
    for outcomes in under_way:
        _require(await outcomes.wait())
    return watch.figures(count - 1)


async def _bulk_receive(namespace: Namespace, count: int) -> Figures:
    receiver = await namespace.receiver(QUEUE, credit=1_000)
    _require(await receiver.complete(await receiver.receive(1, wait_s=30)))
    left = count - 1
    watch = Stopwatch()
    settling = []
    while left > 0:
        messages = await receiver.receive(min(LIST, left), wait_s=10)
        if not messages:
            raise SystemExit(f"{left} messages did not come")
        settling.append(receiver.submit(messages))
        left -= len(messages)
    for outcomes in settling:
        _require(await outcomes.wait())
    figures = watch.figures(count - 1)
    await receiver.close()
    return figures


def _require(outcomes: list[MessagingError | None]) -> None:
    for outcome in outcomes:
        if outcome is not None:
            raise SystemExit(f"refused: {outcome}")


@contextmanager
def served(*, is_partitioned: bool) -> Iterator[str]:
    """The connection string of a namespace in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        # As large as can be: benchmarks of the pipeline put twenty million messages into it.
        entities = Path(folder) / "entities.toml"
        entities.write_text(
            f'[[queue]]\nname = "{QUEUE}"\npartitioned = {json.dumps(is_partitioned)}\nmax_size_mb = {QUEUE_MB_MAX}\n'
        )
        command = [
            str(Path(sys.executable).with_name("twinbus")),
            "serve",
            "clients",
            "--data",
            f"{folder}/data",
            "--json",
        ]
        command += ["--amqp-port", "0", "--http-port", "0", "--entities", str(entities), "--processes", "1"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["connection_string"]
        finally:
            server.terminate()
            try:
                server.wait(SERVER_STOP_S)
            finally:
                server.kill()  # nothing, if it has ended


def in_process_of_its_own(client: str, connection_string: str, job: str, options: argparse.Namespace) -> Figures:
    command = [sys.executable, "-m", "bench.clients", "--client", client, "--job", job]
    count = options.count * (BULK_SHARE if client == "bulk" else 1)
    command += ["--count", str(count), "--size", str(options.size)]
    done = subprocess.run(
        command, input=connection_string, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"{client}: {job} failed: {done.stderr.strip()[-500:]}")
    return Figures(*json.loads(done.stdout))


def compare(options: argparse.Namespace) -> None:
    results: dict[tuple[str, str], list[Figures]] = {(job, client): [] for job in JOBS for client in CLIENTS}
    with served(is_partitioned=options.partitioned) as connection_string:
        for _ in range(options.rounds):
            for job in JOBS:
                for client in CLIENTS:
                    results[job, client].append(in_process_of_its_own(client, connection_string, job, options))
            for client in CLIENTS:
                # What the singles left behind: how many matters, not who receives them.
                in_process_of_its_own(client, connection_string, "receive", options)
    print(f"{'':10}{'stock':>12}{'bulk':>12}{'ratio':>9}{'stock CPU':>14}{'bulk CPU':>12}{'ratio':>9}")
    for job in JOBS:
        stock, bulk = (Figures(*map(statistics.median, zip(*results[job, client], strict=True))) for client in CLIENTS)
        rates = f"{stock.rate:>10,.0f}/s{bulk.rate:>10,.0f}/s{bulk.rate / stock.rate:>8.1f}x"
        costs = f"{stock.cpu_us:>11,.0f} µs{bulk.cpu_us:>9,.1f} µs{stock.cpu_us / bulk.cpu_us:>8.1f}x"
        print(f"{job:10}{rates}{costs}")


def comparison_parser(description: str | None, count: int) -> argparse.ArgumentParser:
    """The options of a comparison with the stock client."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--size", type=int, default=1_024)
    parser.add_argument("--partitioned", action="store_true")
    return parser


def show_rates(results: Mapping[str, Sequence[float]]) -> None:
    """Medians, and how they compare with the first, which is the stock client's."""
    rates = {name: statistics.median(found) for name, found in results.items()}
    stock_rate = next(iter(rates.values()))
    for name, found in rates.items():
        print(f"{name:36}{found:>10,.0f}/s{found / stock_rate:>8.1f}x")


def main() -> None:
    parser = comparison_parser(__doc__, 5_000)
    parser.add_argument("--client", choices=CLIENTS, help="run one client, connection string on standard input")
    parser.add_argument("--job", choices=JOBS)
    options = parser.parse_args()
    if options.client is None:
        compare(options)
        return
    connection_string = sys.stdin.read().strip()
    arguments = connection_string, options.job, options.count, options.size
    figures = run_stock(*arguments) if options.client == "stock" else uvloop.run(run_bulk(*arguments))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
