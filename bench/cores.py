"""What a second process brings, and what four and eight would.

    python -m bench.cores [--rounds 3] [--processes 1,2] [--seconds 3] [--each] [--pinned] [--apart]

Namespaces with each number of processes are served in turns, and load is put on both kinds of queue: sending (1 KiB, 4 connections,
1,000 in flight), draining over 4 connections, and 4 senders beside 4 receivers. With `--each` there are as many for each process: a
process that has less to do takes smaller bursts, and those cost more a message. Rates need a machine with nothing else to do; the
processor time of every process, for each message, does not. From that follows the rate on a machine with enough cores: nodes alike
share the work, so N of them decide

    N / (d + r * (N - 1) / N) messages a second

where d is what one process needs for a message, and r what it costs if the message lies at another node: both are measured, with
one process and with two. With `--processes 1,2,4` the cost of four is measured as well, and what they bring is 4 d / d4. The store
processes are the next limit, then the disk.

Cores share caches, or are two threads of one: each is slower while the other works, and more processes keep both at work. With
`--pinned` everything runs on one core. Even so, processes that take turns on a core find its caches cold, and more of them do more
often, which on a machine with a core for each they would not. With `--apart` that is measured by itself: as many namespaces of one
process each, which have nothing to do with each other, share the same load at the same time, from as many load generators in both
cases. What N processes of one namespace bring is then N times the cost of those, divided by their own.

The load is shown as `load`. The last lines have how much of a core each process took: where all of them together take all cores,
no number of processes makes a rate higher.
"""

import argparse
import os
import resource
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.processor_time import own_seconds, started_at
from bench.scenarios import Scenario
from bench.targets import Target, own_targets

SCALED_TO = (2, 4, 8)


def cases(seconds: float, connections: int = 4) -> list[Scenario]:
    load: dict[str, float] = {"size": 1024, "connections": connections}
    timed = load | {"seconds": seconds}
    return [
        Scenario("send 4", "send", timed | {"window": 1000}, "rate", True),
        Scenario("drain 4", "drain", load | {"credit": 1000}, "rate", True),
        Scenario("4 x 4", "both", timed | {"window": 100, "credit": 100}, "rate", True),
    ]


def load_seconds() -> float:
    """Of processor time, of all loads that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def processes_of(pid: int, count: int) -> dict[str, int]:
    """The processes of a namespace by what they do."""
    found = {} if count == 1 else {"supervisor": pid}
    # A process in reserve was started last.
    nodes = [pid] if count == 1 else sorted(children_of(pid), key=started_at)[:count]
    for number, node in enumerate(nodes):
        found[f"decides {number}"], found[f"stores {number}"] = node, children_of(node)[0]
    return found


class Served(NamedTuple):
    """So many processes, of one namespace or of as many."""

    processes: int
    is_apart: bool = False

    def __str__(self) -> str:
        return f"{self.processes} apart" if self.is_apart else str(self.processes)


class Measured(NamedTuple):
    rate: float
    cost: dict[str, float]  # microseconds a message, by process
    share: dict[str, float]  # of a core, by process


def measure(targets: Sequence[Target], scenario: Scenario, processes: int) -> Measured:
    """A load on each of these at the same time, the same one on the same target more than once. `processes`: of each namespace."""
    options = [dict(scenario.options) for _ in targets]
    if scenario.mode == "drain":
        preload = {"size": 1024, "window": 1000, "connections": scenario.options["connections"], "seconds": 2}
        for each, sent in zip(options, _load_all(targets, "send", [preload] * len(targets)), strict=True):
            each["count"] = sent["sent"]
    namespaces = list(dict.fromkeys(target.pid or 0 for target in targets))
    watched = {
        name if len(namespaces) == 1 else f"{name} of {number}": pid
        for number, namespace in enumerate(namespaces)
        for name, pid in processes_of(namespace, processes).items()
    }
    before, load_before = {name: own_seconds(pid) for name, pid in watched.items()}, load_seconds()
    results = _load_all(targets, scenario.mode, options)
    used = {name: own_seconds(pid) - before[name] for name, pid in watched.items()}
    used["load"] = load_seconds() - load_before
    messages = sum(result.get("received", result.get("sent", 0)) for result in results) or 1
    if scenario.mode == "send":
        rest = {"credit": 1000, "connections": scenario.options["connections"]}
        _load_all(targets, "drain", [rest | {"count": result["sent"]} for result in results])
    rate = sum(result[scenario.figure] for result in results)
    cost = {name: seconds / messages * 1e6 for name, seconds in used.items()}
    return Measured(rate, cost, {name: each * rate / 1e6 for name, each in cost.items()})


def _load_all(targets: Sequence[Target], mode: str, options: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    with ThreadPoolExecutor(len(targets)) as threads:
        return list(threads.map(lambda target, chosen: target.load(mode, chosen), targets, options))


def rounds(
    number: int, counts: list[int], seconds: float, *, each: bool, is_apart: bool
) -> Iterator[tuple[str, Served, Measured]]:
    for _ in range(number):
        for processes in counts:
            connections, loads = 4 * processes if each else 4, processes if is_apart else 1
            yield from _round(Served(processes), connections, loads, seconds)
            if is_apart and processes > 1:
                yield from _round(Served(processes, is_apart=True), connections, loads, seconds)


def _round(served: Served, connections: int, loads: int, seconds: float) -> Iterator[tuple[str, Served, Measured]]:
    processes = 1 if served.is_apart else served.processes
    with ExitStack() as stack:
        extra = ["--processes", str(processes)] if processes > 1 else []
        namespaces = [stack.enter_context(own_targets(*extra)) for _ in range(loads if served.is_apart else 1)]
        for queues in zip(*namespaces, strict=True):
            targets = queues if served.is_apart else queues * loads
            for scenario in cases(seconds, max(1, connections // loads)):
                yield f"{targets[0].name}, {scenario.name}", served, measure(targets, scenario, processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--each", action="store_true", help="4 connections for each process, and not in all")
    parser.add_argument("--pinned", action="store_true", help="all processes on one core: for costs, not for rates")
    parser.add_argument("--apart", action="store_true", help="also as many namespaces of one process, side by side")
    options = parser.parse_args()
    if options.pinned:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    counts = [int(each) for each in options.processes.split(",")]
    found: dict[str, dict[Served, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for name, served, measured in rounds(
        options.rounds, counts, options.seconds, each=options.each, is_apart=options.apart
    ):
        found[name][served].append(measured)
        shown = ", ".join(f"{process} {cost:.1f}" for process, cost in measured.cost.items())
        print(f"{name}, {served}: {measured.rate:,.0f}/s; us a message: {shown}", flush=True)
    print()
    for name, by_count in found.items():
        print(f"{name}: {_summary(by_count)}")
    print()
    for name, by_count in found.items():
        for served, results in by_count.items():
            print(f"{name}, {served}, of a core: {_shares(results)}")


def _summary(found: dict[Served, list[Measured]]) -> str:
    rates = {served: statistics.median(each.rate for each in results) for served, results in found.items()}
    decide = {
        served: statistics.median(_sum_of(each.cost, "decides") for each in results)
        for served, results in found.items()
    }
    parts = [f"{served} {rates[served]:,.0f}/s, {decide[served]:.1f} us decide" for served in rates]
    one, two = Served(1), Served(2)
    for served in [served for served in rates if served.processes > 1 and not served.is_apart]:
        count, apart = served.processes, served._replace(is_apart=True)
        if one in rates:
            parts.append(f"{count} by their own cost x {count * decide[one] / decide[served]:.2f}")
        if apart in rates:
            parts.append(f"{count} beside as many apart x {count * decide[apart] / decide[served]:.2f}")
    if one in rates and two in rates:
        relay = max(0.0, 2 * (decide[two] - decide[one]))
        scaled = (f"{n} x {n * decide[one] / (decide[one] + relay * (n - 1) / n):.2f}" for n in SCALED_TO)
        parts += [f"measured x {rates[two] / rates[one]:.2f}", f"another node costs {relay:.1f} us", *scaled]
    return "; ".join(parts)


def _shares(results: list[Measured]) -> str:
    names = results[0].share
    medians = {name: statistics.median(each.share[name] for each in results) for name in names}
    shown = [f"{name} {share:.2f}" for name, share in medians.items()]
    return f"{', '.join(shown)}; all {sum(medians.values()):.2f}"


def _sum_of(costs: dict[str, float], what: str) -> float:
    return sum(cost for name, cost in costs.items() if name.startswith(what))


if __name__ == "__main__":
    main()
