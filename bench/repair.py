"""A repair of many dead letters by filter, and what a client beside it notices: rate, processor time, latency of its sends.

python -m bench.repair [--count 1000000] [--rate 500] [--action "SET colour = 'blue'"] [--partitioned]

The client sends one message after another to a queue of its own, each when it is due, and its latency is from that moment on: a
client that is held up does not look fast.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path

from bench.processor_time import processor_seconds
from tests.cli.conftest import Served, serve
from twinbus.client.entity_extras import Repair
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.repair import repair_all

BODY = b"x" * 512
"""So that a million of them fit into a queue of the default size."""
STEP = 5_000
ALONE_S = 5.0
START_WAIT_S = 60.0


async def fill(connection_string: str, count: int) -> None:
    async with await Namespace.connect(connection_string) as namespace:
        sender = await namespace.sender("orders")
        receiver = await namespace.receiver("orders", credit=STEP)
        payloads = [encode_message(BODY, application_properties={"colour": "red"})] * STEP
        for start in range(0, count, STEP):
            wanted = min(STEP, count - start)
            assert not any(await sender.send_batches(payloads[:wanted]))
            while wanted:
                found = await receiver.receive(wanted, 30)
                assert not any(await receiver.dead_letter(found, "bad colour", None))
                wanted -= len(found)


async def ride(connection_string: str, rate: float, began: Event, ends: Event) -> list[float]:
    latencies: list[float] = []
    async with await Namespace.connect(connection_string) as namespace:
        sender = await namespace.sender("beside")
        payload, waiting = encode_message(BODY), set[asyncio.Task[None]]()

        async def one(due: float) -> None:
            assert await sender.send([payload]) == [None]
            latencies.append(time.perf_counter() - due)

        await one(time.perf_counter())
        latencies.clear()  # what the first one waits for is the link
        began.set()
        due = time.perf_counter()
        while not ends.is_set():
            task = asyncio.create_task(one(due))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            due += 1 / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await asyncio.gather(*waiting)
    return latencies


def _client(
    connection_string: str, rate: float, began: Event, ends: Event, results: "multiprocessing.Queue[list[float]]"
) -> None:
    results.put(asyncio.run(ride(connection_string, rate, began, ends)))


class Client:
    """In a process of its own: what it measures is the namespace and not this program."""

    def __init__(self, connection_string: str, rate: float) -> None:
        spawned = multiprocessing.get_context("spawn")
        began, self._ends, self._results = spawned.Event(), spawned.Event(), spawned.Queue()
        given = (connection_string, rate, began, self._ends, self._results)
        self._process = spawned.Process(target=_client, args=given)
        self._process.start()
        assert began.wait(START_WAIT_S), "the client did not start"

    def stop(self) -> str:
        self._ends.set()
        latencies: list[float] = self._results.get()
        self._process.join()
        cuts = statistics.quantiles(latencies, n=100)
        return f"p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms, {len(latencies)} sends"


async def repair(served: Served, action: str | None) -> None:
    connection_string, pid = served.ready["connection_string"], served.process.pid
    before, start = processor_seconds(pid) or 0.0, time.perf_counter()
    async with await Namespace.connect(connection_string) as namespace:
        extras = namespace.extras("orders/$DeadLetterQueue")
        async for each in repair_all(extras, Repair("colour = 'red'", action)):
            standing = each
    took, busy = time.perf_counter() - start, (processor_seconds(pid) or 0.0) - before
    print(
        f"{standing.repaired:,} repaired in {took:.1f} s: {standing.repaired / took:,.0f}/s; "
        f"{busy / standing.repaired * 1e6:.1f} us of processor time for each, with the client's sends"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--action")
    parser.add_argument("--partitioned", action="store_true")
    options = parser.parse_args()
    queue = "orders:partitioned" if options.partitioned else "orders"
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder), "bench", "--stores", "16", "--queue", queue, "--queue", "beside") as served,
    ):
        connection_string = served.ready["connection_string"]
        asyncio.run(fill(connection_string, options.count))
        client = Client(connection_string, options.rate)
        time.sleep(ALONE_S)
        print(f"client alone:  {client.stop()}")
        client = Client(connection_string, options.rate)
        asyncio.run(repair(served, options.action))
        print(f"client beside: {client.stop()}")


if __name__ == "__main__":
    main()
