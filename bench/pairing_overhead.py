"""What a paired sender costs: stock and paired senders take turns on the same queue, healthy and failed over.

Two namespaces are started for it. Turns are short and alternate, so that what else the machine does falls on both.

    python bench/pairing_overhead.py [--turns 20]
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import NamedTuple

from azure.servicebus import ServiceBusMessage

from tests.pairing.namespaces import NamespaceProcess
from twinbus.pairing import SendAvailabilityPairedNamespaceOptions, pair_namespaces

BODY = b"x" * 1024
SINGLES_A_TURN = 200
LISTS_A_TURN = 20
LIST_LENGTH = 100


class Measured(NamedTuple):
    rate: float
    cpu_us: float
    """Of this process, a message: what others do on the machine does not change it."""


def measure(send: Callable[[object], object], turn: Callable[[Callable[[object], object]], int]) -> Measured:
    started, cpu = time.perf_counter(), time.process_time()
    count = turn(send)
    return Measured(count / (time.perf_counter() - started), (time.process_time() - cpu) / count * 1e6)


def singles(send: Callable[[object], object]) -> int:
    for _ in range(SINGLES_A_TURN):
        send(ServiceBusMessage(BODY))
    return SINGLES_A_TURN


def lists(send: Callable[[object], object]) -> int:
    for _ in range(LISTS_A_TURN):
        send([ServiceBusMessage(BODY) for _ in range(LIST_LENGTH)])
    return LISTS_A_TURN * LIST_LENGTH


def compare(name: str, stock: Callable[[object], object], paired: Callable[[object], object], turns: int) -> None:
    for turn in (singles, lists):
        pairs: list[tuple[Measured, Measured]] = []
        for number in range(turns):
            # Each goes first as often as the other: a turn may leave work behind for the next.
            if number % 2:
                one, other = measure(stock, turn), measure(paired, turn)
            else:
                other, one = measure(paired, turn), measure(stock, turn)
            pairs.append((one, other))
        print(
            f"{name:12} {turn.__name__:8}"
            f" stock {median(one.rate for one, _ in pairs):7.0f}/s {median(one.cpu_us for one, _ in pairs):6.0f} us"
            f"  paired {median(other.rate for _, other in pairs):7.0f}/s"
            f" {median(other.cpu_us for _, other in pairs):6.0f} us"
            f"  rate ratio {median(other.rate / one.rate for one, other in pairs):.3f}"
            f"  cpu ratio {median(one.cpu_us / other.cpu_us for one, other in pairs):.3f}"
        )


def main() -> None:
    logging.disable(logging.CRITICAL)
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=int, default=20)
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
            stock = primary.client().get_queue_sender(path)
            compare("healthy", stock.send_messages, paired.send_messages, turns)
            primary.kill()
            paired.send_messages(ServiceBusMessage(BODY))
            stock = secondary.client().get_queue_sender(twin)
            compare("failed over", stock.send_messages, paired.send_messages, turns)
    finally:
        primary.kill()
        secondary.kill()


if __name__ == "__main__":
    main()
