"""What it costs that every operation is metered: in this process, and for a namespace with and without an operations log.

    python -m bench --meter-cost [--seconds 3] [--rounds 5]

Two namespaces are served side by side, one of them with `--no-meter`, and take turns in every round. Throughput and the
servers' CPU time a message, rotation to Parquet included, are compared.
"""

import statistics
from collections.abc import Callable, Sequence

from twinbus.broker.receiver import Delivery
from twinbus.clock import SystemClock
from twinbus.cost.operations_book import OperationsBook
from twinbus.gateway.link_meter import LinkMeter
from twinbus.meter import EntityType
from twinbus.model.message import read_message
from twinbus.store.changes import StoredMessage

BURST = 100
CHOSEN = r"^(both-1k|send-1k-w100-c1|send-1k-w1-c8|drain-1k)$"

Measure = Callable[..., tuple[str, float]]
Results = dict[tuple[str, str], list[dict[str, float]]]


def meter_layers(payload: bytes, measure: Measure) -> list[tuple[str, float]]:
    """Of a message sent, received and settled, as bursts of 100."""
    messages = [read_message(payload, lambda: "new") for _ in range(BURST)]
    numbers = list(range(1, BURST + 1))
    deliveries = [
        Delivery(StoredMessage(number, each.content, 0, 0), b"", 0)
        for number, each in zip(numbers, messages, strict=True)
    ]

    def way_of_a_burst(meter: LinkMeter, book: OperationsBook) -> Callable[[], None]:
        def work() -> None:
            meter.sent(messages, numbers)
            meter.delivered(deliveries)
            meter.settled(BURST)
            book.write_down()

        return work

    found = []
    for name, exact_max in (("added up", 0), ("exact rows", 10_000_000)):
        book = OperationsBook(SystemClock(), exact_max)
        meter = LinkMeter(book, "orders", EntityType.QUEUE, "bench", is_partitioned=False)
        found.append(measure(f"meter: in, out and settled, {name}", way_of_a_burst(meter, book), book.take_all))
    return found


def compare(scenario_names: Sequence[str], results: Results, metered: str, unmetered: str) -> None:
    """The medians of both, and what metering takes, in percent."""
    print(f"{'':20}{'metered':>22}{'not metered':>22}{'throughput':>14}{'CPU time':>12}")
    for name in scenario_names:
        rates, costs = [], []
        for target in (metered, unmetered):
            rounds = results[name, target]
            rates.append(statistics.median(each["rate"] for each in rounds))
            costs.append(statistics.median(each["server_us"] for each in rounds))
        cells = [f"{rate:,.0f}/s [{cost:.1f} µs]" for rate, cost in zip(rates, costs, strict=True)]
        change, more = 100 * (rates[0] / rates[1] - 1), 100 * (costs[0] / costs[1] - 1)
        print(f"{name:20}{cells[0]:>22}{cells[1]:>22}{change:>+13.1f}%{more:>+11.1f}%")
