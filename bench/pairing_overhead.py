"""What a paired sender costs: stock and paired senders take turns on the same queue, healthy and failed over; and its memory.

Two namespaces are started for it. Turns are short and rotate, so that what else the machine does falls on all.

    python bench/pairing_overhead.py [--turns 60]
"""

import argparse
import gc
import logging
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from azure.servicebus import ServiceBusMessage

from tests.pairing.namespaces import NamespaceProcess
from twinbus.pairing import SendAvailabilityPairedNamespaceOptions, pair_namespaces

BODY = b"x" * 1024
SINGLES_A_TURN = 100
LISTS_A_TURN = 5
LIST_LENGTH = 100
SENDERS = 200


class Measured(NamedTuple):
    wall_us: float
    cpu_us: float
    """Both a message. The processor time is that of this process: what others do on the machine does not change it."""


Send = Callable[[Any], object]
Turn = Callable[[Send], int]


def measure(send: Send, turn: Turn) -> Measured:
    started, cpu = time.perf_counter(), time.process_time()
    count = turn(send)
    return Measured((time.perf_counter() - started) / count * 1e6, (time.process_time() - cpu) / count * 1e6)


def singles(send: Send) -> int:
    for _ in range(SINGLES_A_TURN):
        send(ServiceBusMessage(BODY))
    return SINGLES_A_TURN


def lists(send: Send) -> int:
    for _ in range(LISTS_A_TURN):
        send([ServiceBusMessage(BODY) for _ in range(LIST_LENGTH)])
    return LISTS_A_TURN * LIST_LENGTH


def compare(name: str, stock: Send, stock_again: Send, paired: Send, turns: int) -> None:
    """The second stock sender shows how far two equal senders come out apart: a ratio means nothing below that."""
    for turn in (singles, lists):
        contenders = {"stock": stock, "again": stock_again, "paired": paired}
        measured: dict[str, list[Measured]] = {each: [] for each in contenders}
        order = list(contenders)
        for _ in range(turns):
            # Each is first, second and last as often as the others: a turn may leave work behind for the next.
            order = [*order[1:], order[0]]
            for each in order:
                measured[each].append(measure(contenders[each], turn))
        wall = {each: median(one.wall_us for one in many) for each, many in measured.items()}
        cpu = {each: median(one.cpu_us for one in many) for each, many in measured.items()}
        print(
            f"{name:12} {turn.__name__:8} stock {1e6 / wall['stock']:6.0f}/s  paired {1e6 / wall['paired']:6.0f}/s"
            f"  rate {wall['stock'] / wall['paired']:.3f} (stock to itself {wall['stock'] / wall['again']:.3f})"
            f"  processor {cpu['stock']:4.0f} and {cpu['paired']:4.0f} us,"
            f" {cpu['stock'] / cpu['paired']:.3f} ({cpu['stock'] / cpu['again']:.3f})"
        )


def memory_of(make: Callable[[], object]) -> float:
    """Kilobytes of each, before it has a connection."""
    make()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    made = [make() for _ in range(SENDERS)]
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / len(made) / 1024


def main() -> None:
    logging.disable(logging.CRITICAL)
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=int, default=60)
    turns = arguments.parse_args().turns
    folder = Path(tempfile.mkdtemp())
    primary, secondary = NamespaceProcess(folder, "primary"), NamespaceProcess(folder, "secondary")
    try:
        path = primary.create_queue(max_size_in_megabytes=5120)
        twin = secondary.create_queue(max_size_in_megabytes=5120)
        options = SendAvailabilityPairedNamespaceOptions(backlog_queue_count=1, failover_interval=timedelta(0))
        with (
            secondary.administration() as administration,
            pair_namespaces(
                primary.connection_string,
                secondary.connection_string,
                options,
                secondary_administration=administration,
                retry_total=0,
            ) as client,
            client.get_queue_sender(path) as paired,
        ):
            stock, again = (primary.client().get_queue_sender(path) for _ in range(2))
            stock_kb = memory_of(lambda: primary.client().get_queue_sender(path))
            alone_kb = memory_of(lambda: client.primary.get_queue_sender(path))
            paired_kb = memory_of(lambda: client.get_queue_sender(path))
            print(
                f"memory of a sender: stock {alone_kb:.1f} KB ({stock_kb:.1f} KB with a client of its own), paired "
                f"{paired_kb:.1f} KB, so {paired_kb - alone_kb:.1f} KB more"
            )
            compare("healthy", stock.send_messages, again.send_messages, paired.send_messages, turns)
            primary.kill()
            paired.send_messages(ServiceBusMessage(BODY))
            stock, again = (secondary.client().get_queue_sender(twin) for _ in range(2))
            compare("failed over", stock.send_messages, again.send_messages, paired.send_messages, turns)
    finally:
        primary.kill()
        secondary.kill()


if __name__ == "__main__":
    main()
