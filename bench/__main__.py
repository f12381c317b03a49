"""`make bench`: what each layer costs, and what a client gets from a running namespace, beside peers in the same rounds.

    python -m bench [--seconds 3] [--rounds 3] [--only REGEX] [--peer NAME=amqp://user:password@host:port/queue] [--json FILE]
    python -m bench --meter-cost
    python -m bench --bill 10000000

A throw-away namespace is served by a process of its own from a temporary folder, with an ordinary and a partitioned
queue. Every scenario runs on every target before the next one starts, so that whatever else the machine does hits all
of them alike: figures of one run may be compared with each other, and with nothing else. Peers need an empty, durable
queue.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from bench import meter_cost
from bench.layers import layer_costs
from bench.scenarios import Scenario, scenarios
from twinbus.client.connection_string import parse_connection_string

LOAD = Path(__file__).with_name("load.py")
PRELOAD_SECONDS = 2.0
LOAD_TIMEOUT_S = 120.0


class Target:
    """A queue to put load on, and the process whose CPU time counts, if it is ours."""

    def __init__(self, name: str, url: str, pid: int | None = None) -> None:
        self.name = name
        self.url = url
        self.pid = pid

    def run(self, scenario: Scenario) -> dict[str, float]:
        """One measurement; the queue is empty before and after it."""
        options = dict(scenario.options)
        if scenario.mode == "drain":
            preload = {"size": options["size"], "window": 1000, "connections": 1, "seconds": PRELOAD_SECONDS}
            options["count"] = self._load("send", preload)["sent"]
        before = self._cpu_s()
        result = self._load(scenario.mode, options)
        messages = result.get("received", result.get("sent", 0))
        if before is not None and messages:
            after = self._cpu_s()
            result["server_us"] = ((after or before) - before) / messages * 1e6
        if scenario.mode == "send":
            self._load("drain", {"count": result["sent"], "credit": 1000})
        return result

    def _load(self, mode: str, options: dict[str, float]) -> dict[str, float]:
        words = [word for name, value in options.items() for word in (f"--{name}", f"{value:g}")]
        for index in range(1, len(words), 2):
            words[index] = str(int(float(words[index]))) if float(words[index]).is_integer() else words[index]
        command = [sys.executable, str(LOAD), mode, self.url, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False)
        if done.returncode:
            raise SystemExit(f"{self.name}: {mode} failed: {done.stderr.strip()[-500:]}")
        result: dict[str, float] = json.loads(done.stdout)
        return result

    def _cpu_s(self) -> float | None:
        if self.pid is None or not Path(f"/proc/{self.pid}/stat").exists():
            return None
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        # Its own, and that of children that have ended.
        return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


@contextmanager
def own_targets(*extra: str, suffix: str = "") -> Iterator[list[Target]]:
    """Of a namespace served with `extra` options."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("twinbus")), "serve", "bench", "--data", folder, "--json"]
        command += ["--amqp-port", "0", "--http-port", "0", "--queue", "ordinary", "--queue", "partitioned:partitioned"]
        command += extra
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            said = json.loads(server.stdout.readline())
            place = parse_connection_string(said["connection_string"])
            url = f"amqp://{quote(place.key_name)}:{quote(place.key, safe='')}@{place.host}:{place.port}"
            yield [Target(name + suffix, f"{url}/{name}", server.pid) for name in ("ordinary", "partitioned")]
        finally:
            server.terminate()
            server.wait(timeout=30)


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


def show_meter_cost(seconds: float, rounds: int) -> None:
    chosen = [scenario for scenario in scenarios(seconds) if re.search(meter_cost.CHOSEN, scenario.name)]
    with own_targets() as metered, own_targets("--no-meter", suffix=" without") as unmetered:
        results = run_rounds(chosen, [*metered, *unmetered], rounds)
    for one, other in zip(metered, unmetered, strict=True):
        print(f"\n{one.name}")
        meter_cost.compare([scenario.name for scenario in chosen], results, one.name, other.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="regular expression on scenario names")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=URL")
    parser.add_argument("--json", type=Path, help="write every single result here")
    parser.add_argument("--meter-cost", action="store_true", help="compare a namespace with and without its meter")
    parser.add_argument("--bill", type=int, metavar="OPERATIONS", help="bill a log of so many operations, on Spark")
    options = parser.parse_args()
    if options.bill:
        from bench import bill  # needs the spark extra

        bill.show(options.bill)
        return
    if options.meter_cost:
        show_meter_cost(options.seconds, options.rounds)
        return
    chosen = [scenario for scenario in scenarios(options.seconds) if re.search(options.only, scenario.name)]
    if not chosen:
        parser.error("no scenario has such a name")
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
