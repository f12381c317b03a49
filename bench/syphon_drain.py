"""How fast one syphon process drains a backlog: real namespaces, real messages, brokers on the same machine.

python -m bench.syphon_drain [--count 100000] [--queues 10] [--destinations 20]
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.pairing.namespaces import NamespaceProcess
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.clock import SteadyClock
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.syphon.tasks import BulkSyphon

BODY = b"x" * 1024


async def fill(secondary: NamespaceProcess, queues: list[str], destinations: list[str], count: int) -> None:
    each = count // len(queues)
    async with await Namespace.connect(secondary.connection_string) as namespace:
        for queue in queues:
            sender = await namespace.sender(queue)
            payloads = [
                encode_message(BODY, application_properties={"x-ms-path": destinations[number % len(destinations)]})
                for number in range(each)
            ]
            for start in range(0, each, 2000):
                outcomes = await sender.send_batches(payloads[start : start + 2000])
                assert not any(outcomes)


class Drained(NamedTuple):
    moved: int
    took_s: float
    busy_s: float
    """Processor time of the syphon's process."""


async def drain(primary: NamespaceProcess, secondary: NamespaceProcess, queues: list[str], count: int) -> Drained:
    moved = 0
    finished = asyncio.Event()

    def on_event(event: PairingEvent) -> None:
        nonlocal moved
        if event.kind is EventKind.SYPHON_MOVED:
            moved += event.count
            if moved >= count:
                finished.set()
        else:
            print(event)

    options = SendAvailabilityPairedNamespaceOptions(on_event=on_event)
    syphon = BulkSyphon(primary.connection_string, secondary.connection_string, queues, options, SteadyClock())
    started, cpu = time.perf_counter(), time.process_time()
    running = asyncio.create_task(syphon.run())
    await finished.wait()
    took, busy = time.perf_counter() - started, time.process_time() - cpu
    syphon.stop()
    await running
    return Drained(moved, took, busy)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=100_000)
    arguments.add_argument("--queues", type=int, default=10)
    arguments.add_argument("--destinations", type=int, default=20)
    given = arguments.parse_args()
    folder = Path(tempfile.mkdtemp())
    primary, secondary = NamespaceProcess(folder, "primary"), NamespaceProcess(folder, "secondary")
    try:
        queues = [secondary.create_queue(max_size_in_megabytes=5120) for _ in range(given.queues)]
        destinations = [primary.create_queue() for _ in range(given.destinations)]
        asyncio.run(fill(secondary, queues, destinations, given.count))
        moved, took, busy = asyncio.run(drain(primary, secondary, queues, given.count))
        each = busy / moved * 1e6
        print(f"{moved} messages in {took:.1f} s: {moved / took:.0f}/s, syphon process {each:.0f} us a message")
        print(f"{sum(primary.count(path) for path in destinations)} messages at their destinations")
    finally:
        primary.kill()
        secondary.kill()


if __name__ == "__main__":
    main()
