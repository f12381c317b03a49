"""What it costs that every operation is metered: in this process, and for a namespace with and without an operations log.

    python -m bench --meter-cost [--seconds 3] [--rounds 5] [--only REGEX]

In every round two new namespaces are served, one of them with `--no-meter`, for two processes of the same code differ
by a few percent for as long as they live. They are measured in turn, the one that was second in a round first in the
next. What the machine does besides drifts more slowly than that, so each pair is compared by itself, and the result is
the median of the pairs.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.scenarios import Scenario
from bench.targets import Target, own_targets
from twinbus.broker.consumer import TakenMessage
from twinbus.clock import SystemClock
from twinbus.gateway.links.link_meter import LinkMeter
from twinbus.meter.book import OperationsBook
from twinbus.meter.operation import EntityType
from twinbus.model.message import read_message
from twinbus.store.changes import StoredMessage

MESSAGES = 100
"""What `Measure` divides by."""
BURSTS = (5, 100)
CHOSEN = r"^(both-1k|send-1k-w100-c1|send-1k-w1-c8|drain-1k)$"
WARM_UP = Scenario("warm-up", "send", {"size": 1024, "window": 100, "connections": 1, "seconds": 0.5}, "rate", True)

Measure = Callable[..., tuple[str, float]]


def meter_layers(payload: bytes, measure: Measure) -> list[tuple[str, float]]:
    """Of a message sent, received and settled, in small and large bursts."""
    found = []
    for name, exact_max in (("added up", 0), ("exact rows", 10_000_000)):
        for burst in BURSTS:
            book = OperationsBook(SystemClock(), exact_max)
            meter = LinkMeter(book, "orders", EntityType.QUEUE, "bench", is_partitioned=False)
            work = _way_of_messages(payload, burst, meter, book)
            found.append(measure(f"meter: in, out and settled by {burst}, {name}", work, book.take_all))
    return found


def _way_of_messages(payload: bytes, burst: int, meter: LinkMeter, book: OperationsBook) -> Callable[[], None]:
    messages = [read_message(payload, lambda: "new") for _ in range(burst)]
    numbers = list(range(1, burst + 1))
    deliveries = [
        TakenMessage(StoredMessage(number, each.content, 0, 0), b"", 0)
        for number, each in zip(numbers, messages, strict=True)
    ]

    def work() -> None:
        for _ in range(MESSAGES // burst):
            meter.sent(messages, numbers)
            meter.delivered(deliveries)
            meter.settled(burst)
        book.write_down()

    return work


class Pair(NamedTuple):
    """The same load on both, one right after the other: messages a second, and the server's CPU time for each."""

    metered: dict[str, float]
    unmetered: dict[str, float]

    @property
    def throughput(self) -> float:
        """What metering changes, in percent."""
        return 100 * (self.metered["rate"] / self.unmetered["rate"] - 1)

    @property
    def cpu_time(self) -> float:
        return 100 * (self.metered["server_us"] / self.unmetered["server_us"] - 1)


def show(chosen: Sequence[Scenario], rounds: int) -> None:
    pairs: dict[tuple[str, str], list[Pair]] = {}
    print(f"{'':32}{'metered':>20}{'not metered':>20}{'throughput':>12}{'CPU time':>10}", flush=True)
    for number in range(rounds):
        with own_targets() as metered, own_targets("--no-meter") as unmetered:
            for targets in zip(metered, unmetered, strict=True):
                for target in targets:
                    target.run(WARM_UP)
                for scenario in chosen:
                    pair = _measured(scenario, *targets, metered_first=number % 2 == 0)
                    pairs.setdefault((scenario.name, targets[0].name), []).append(pair)
                    _show_pair(f"{number + 1}: {scenario.name}, {targets[0].name}", pair)
    print(f"\nWhat metering changes, median of {rounds} and the range:")
    for (scenario_name, target_name), found in pairs.items():
        throughput = _summary([pair.throughput for pair in found])
        cpu_time = _summary([pair.cpu_time for pair in found])
        print(f"  {scenario_name + ', ' + target_name:30}throughput {throughput}   CPU time {cpu_time}")


def _measured(scenario: Scenario, metered: Target, unmetered: Target, *, metered_first: bool) -> Pair:
    if metered_first:
        return Pair(metered.run(scenario), unmetered.run(scenario))
    second = unmetered.run(scenario)
    return Pair(metered.run(scenario), second)


def _show_pair(name: str, pair: Pair) -> None:
    cells = "".join(f"{each['rate']:>10,.0f}/s {each['server_us']:>5.1f} µs" for each in pair)
    print(f"{name:32}{cells}{pair.throughput:>+11.1f}%{pair.cpu_time:>+9.1f}%", flush=True)


def _summary(changes: Sequence[float]) -> str:
    return f"{statistics.median(changes):+5.1f}% ({min(changes):+.1f} to {max(changes):+.1f})"
