"""What a second process brings, and what four and eight would.

    python -m bench.cores [--rounds 3] [--processes 1,2] [--seconds 3] [--each] [--pinned]

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
`--pinned` everything runs on one core, so that costs can be compared whatever the number of processes.

The load is shown as `load`. The last lines have how much of a core each process took: where all of them together take all cores,
no number of processes makes a rate higher.
"""

import argparse
import os
import resource
import statistics
from collections import defaultdict
from collections.abc import Iterator
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


class Measured(NamedTuple):
    rate: float
    cost: dict[str, float]  # microseconds a message, by process
    share: dict[str, float]  # of a core, by process


def measure(target: Target, scenario: Scenario, count: int) -> Measured:
    assert target.pid is not None
    options = dict(scenario.options)
    if scenario.mode == "drain":
        options["count"] = target.load("send", {"size": 1024, "window": 1000, "connections": 4, "seconds": 2})["sent"]
    processes = processes_of(target.pid, count)
    before, load_before = {name: own_seconds(pid) for name, pid in processes.items()}, load_seconds()
    result = target.load(scenario.mode, options)
    used = {name: own_seconds(pid) - before[name] for name, pid in processes.items()}
    used["load"] = load_seconds() - load_before
    messages = result.get("received", result.get("sent", 0)) or 1
    if scenario.mode == "send":
        target.load("drain", {"count": result["sent"], "credit": 1000, "connections": 4})
    rate, cost = result[scenario.figure], {name: seconds / messages * 1e6 for name, seconds in used.items()}
    return Measured(rate, cost, {name: each * rate / 1e6 for name, each in cost.items()})


def rounds(number: int, counts: list[int], seconds: float, *, each: bool) -> Iterator[tuple[str, int, Measured]]:
    for _ in range(number):
        for count in counts:
            with own_targets(*(["--processes", str(count)] if count > 1 else [])) as targets:
                for target in targets:
                    for scenario in cases(seconds, 4 * count if each else 4):
                        yield f"{target.name}, {scenario.name}", count, measure(target, scenario, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--each", action="store_true", help="4 connections for each process, and not in all")
    parser.add_argument("--pinned", action="store_true", help="all processes on one core: for costs, not for rates")
    options = parser.parse_args()
    if options.pinned:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    counts = [int(each) for each in options.processes.split(",")]
    found: dict[str, dict[int, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for name, count, measured in rounds(options.rounds, counts, options.seconds, each=options.each):
        found[name][count].append(measured)
        shown = ", ".join(f"{process} {cost:.1f}" for process, cost in measured.cost.items())
        print(f"{name}, {count}: {measured.rate:,.0f}/s; us a message: {shown}", flush=True)
    print()
    for name, by_count in found.items():
        print(f"{name}: {_summary(by_count)}")
    print()
    for name, by_count in found.items():
        for count, results in by_count.items():
            print(f"{name}, {count}, of a core: {_shares(results)}")


def _summary(by_count: dict[int, list[Measured]]) -> str:
    rates = {count: statistics.median(each.rate for each in results) for count, results in by_count.items()}
    decide = {
        count: statistics.median(_sum_of(each.cost, "decides") for each in results)
        for count, results in by_count.items()
    }
    parts = [f"{count} {rates[count]:,.0f}/s, {decide[count]:.1f} us decide" for count in rates]
    if 1 in rates:
        parts += [f"{n} by their own cost x {n * decide[1] / decide[n]:.2f}" for n in rates if n > 1]
    if 1 in rates and 2 in rates:
        relay = max(0.0, 2 * (decide[2] - decide[1]))
        scaled = (f"{n} x {n * decide[1] / (decide[1] + relay * (n - 1) / n):.2f}" for n in SCALED_TO)
        parts += [f"measured x {rates[2] / rates[1]:.2f}", f"another node costs {relay:.1f} us", *scaled]
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
