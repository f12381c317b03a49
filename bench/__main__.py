"""`make bench`: what each layer costs, and what a client gets from a running namespace, compared with peers in the same rounds.

    python -m bench [--seconds 3] [--rounds 3] [--only REGEX] [--peer NAME=amqp://user:password@host:port/queue] [--json FILE]
    python -m bench --meter-cost [--seconds 3] [--rounds 3] [--only REGEX]
    python -m bench --bill 10000000

A throw-away namespace is served by a process of its own from a temporary folder, with an ordinary and a partitioned
queue. Every scenario runs on every target before the next one starts, so that whatever else the machine does hits all
of them alike: figures of one run may be compared with each other, and with nothing else. Peers need an empty, durable
queue.
"""

import argparse
import json
import re
import statistics
from pathlib import Path

from bench import meter_cost
from bench.layers import layer_costs
from bench.scenarios import Scenario, scenarios
from bench.targets import Target, own_targets


def show_layers() -> None:
    print("Cost of each layer, microseconds a 1 KiB message in bursts of 100:\n")
    for name, cost in layer_costs():
        print(f"  {cost:7.2f}  {name}")
    print()


def show(chosen: list[Scenario], targets: list[Target], results: dict[tuple[str, str], list[dict[str, float]]]) -> None:
    """Medians; in brackets the server's CPU time a message where it is known."""
    width = max(len(scenario.name) for scenario in chosen)
    print(f"{'':{width}}  " + "  ".join(f"{target.name:>24}" for target in targets))
    for scenario in chosen:
        cells = []
        for target in targets:
            rounds = results[scenario.name, target.name]
            figure = statistics.median(result[scenario.figure] for result in rounds)
            text = f"{figure:,.0f}/s" if scenario.is_rate else f"p99 {figure:.1f} ms"
            costs = [result["server_us"] for result in rounds if "server_us" in result]
            cells.append(f"{text} [{statistics.median(costs):.0f} µs]" if costs else text)
        print(f"{scenario.name:{width}}  " + "  ".join(f"{cell:>24}" for cell in cells))


def run_rounds(
    chosen: list[Scenario], targets: list[Target], rounds: int
) -> dict[tuple[str, str], list[dict[str, float]]]:
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(rounds):
        for scenario in chosen:
            for target in targets:
                results.setdefault((scenario.name, target.name), []).append(target.run(scenario))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="regular expression on scenario names")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=URL")
    parser.add_argument("--json", type=Path, help="write every single result here")
    parser.add_argument("--meter-cost", action="store_true", help="compare a namespace with and without its meter")
    parser.add_argument("--bill", type=int, metavar="OPERATIONS", help="bill a log of this many operations, on Spark")
    options = parser.parse_args()
    if options.bill:
        from bench import bill  # needs the spark extra

        bill.show(options.bill)
        return
    only = options.only or (meter_cost.CHOSEN if options.meter_cost else "")
    chosen = [scenario for scenario in scenarios(options.seconds) if re.search(only, scenario.name)]
    if not chosen:
        parser.error("no scenario has such a name")
    if options.meter_cost:
        if not all(scenario.is_rate for scenario in chosen):
            parser.error("the cost of the meter is compared where the figure is a rate: leave latency out of --only")
        meter_cost.show(chosen, options.rounds)
        return
    show_layers()
    with own_targets() as targets:
        targets += [Target(*peer.split("=", 1)) for peer in options.peer]
        results = run_rounds(chosen, targets, options.rounds)
        show(chosen, targets, results)
    if options.json is not None:
        rows = [{"scenario": key[0], "target": key[1], "rounds": rounds} for key, rounds in results.items()]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
