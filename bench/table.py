"""The table of docs/benchmarks.md: both kinds of queues beside the brokers that are installed, all in one run.

    python -m bench.table --kit FOLDER [--rounds 1] [--seconds 3] [--cap 100000] [--rows TEXT] [--postgres] [--out FILE]

The kit is a folder with `bench.py` and `peers.py`, which start brokers and put load on them with a client on the Proton C
engine; BENCH_KIT names it too. Peers that are missing are left out, with the reason. RabbitMQ 4 is looked for in the folder
BENCH_TRIXIE. One round of all peers takes about ten minutes; --rows takes those only whose scenario has this text in its name.

Not every peer waits for the disk: the classic queue of RabbitMQ 4.0 acknowledges without any sync (`fsyncs.py` of the kit counts
them). So there is a ratio to the best of all peers, and one to the best of those that sync what they acknowledge.

--postgres: the same queues of a second namespace too, whose stores are in PostgreSQL (bench.postgres).

Beside them, before and after, plain writes are synced at the pace of the latency row with nothing else running: what the disk
alone takes.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from twinbus.client.connecting.connection_string import parse_connection_string

PEERS = ("rabbitmq-classic", "rabbitmq-quorum", "rabbitmq4-classic", "rabbitmq4-quorum")
TITLES = {
    "rabbitmq-classic": "3.10 classic",
    "rabbitmq-quorum": "3.10 quorum",
    "rabbitmq4-classic": "4.0 classic",
    "rabbitmq4-quorum": "4.0 quorum",
    "ordinary": "twinbus, ordinary",
    "partitioned": "twinbus, partitioned",
    "postgresql-ordinary": "twinbus on PostgreSQL, ordinary",
    "postgresql-partitioned": "twinbus on PostgreSQL, partitioned",
}
OURS = ("ordinary", "partitioned")
QUEUES = [{"name": name, "partitioned": name == "partitioned", "max_message_size_kb": 2_048} for name in OURS]
ON_POSTGRES = "postgresql-"
UNSYNCED = {"rabbitmq4-classic"}
"""Peers that acknowledge what is not on the disk yet."""
PACE = 500
WRITE_BYTES = 1_200
KIT_TIMEOUT_S = 3_600


class Row(NamedTuple):
    title: str
    scenario: str
    figure: str  # the field of a result
    is_rate: bool = True


ROWS = (
    Row("send w1 c1", "send-1k-w1-c1", "send_rate"),
    Row("send w100 c1", "send-1k-w100-c1", "send_rate"),
    Row("send w1000 c8", "send-1k-w1000-c8", "send_rate"),
    Row("drain, 1 receiver", "drain-1k-r1", "recv_rate"),
    Row("send and receive, 1 x 1", "both-1k-1x1", "through_rate"),
    Row("send and receive, 4 x 4", "both-1k-4x4", "through_rate"),
    Row("send 64 KB, w100 c1", "send-64k-w100-c1", "send_rate"),
    Row("drain 64 KB, 1 receiver", "drain-64k-r1", "recv_rate"),
    Row("drain 240 KB, 1 receiver", "drain-240k-r1", "recv_rate"),
    Row("drain 1 MB, 1 receiver", "drain-1m-r1", "recv_rate"),
    Row("send w1, 1,000 connections", "send-1k-w1-c1000", "send_rate"),
    Row("send w1, 5,000 connections", "send-1k-w1-c5000", "send_rate"),
    Row(f"at {PACE}/s, received after, p99 ms", "lat-1k", "e2e_us.p99", is_rate=False),
    Row(f"at {PACE}/s, acknowledged after, p99 ms", "lat-1k", "ack_us.p99", is_rate=False),
)
CPU_SCENARIOS = ("send-1k-w1000-c8", "drain-1k-r1", "both-1k-4x4")
MORE = Path(__file__).with_name("more_scenarios.py")

Results = dict[tuple[str, str], list[dict[str, Any]]]


def present() -> tuple[list[str], list[str]]:
    """The peers that can be started here, and why the others cannot."""
    found: list[str] = []
    missing: list[str] = []
    if shutil.which("rabbitmq-server") or Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists():
        found += PEERS[:2]
    else:
        missing.append("RabbitMQ 3.10: the package rabbitmq-server is not installed")
    trixie = Path(os.environ.get("BENCH_TRIXIE", Path(tempfile.gettempdir()) / "sbbench-trixie"))
    if (trixie / "usr/lib/rabbitmq/bin/rabbitmq-server").exists():
        found += PEERS[2:]
    else:
        missing.append(f"RabbitMQ 4.0: it is not in {trixie} (BENCH_TRIXIE)")
    return found, missing


@contextmanager
def own_namespace(prefix: str = "", *extra: str) -> Iterator[list[str]]:
    """What the kit has to know of the two queues of a namespace that is served meanwhile, with these options."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("twinbus")), "serve", "bench", "--data", folder, "--json"]
        command += ["--amqp-port", "0", "--http-port", "0", "--no-meter", "--processes", "1"]
        entities = Path(folder, "entities.json")
        entities.write_text(json.dumps({"queue": QUEUES}))
        command += ["--entities", str(entities), *extra]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            place = parse_connection_string(json.loads(server.stdout.readline())["connection_string"])
            common = f"host={place.host},port={place.port},sasl=plain,user={place.key_name},password={place.key}"
            yield [f"name={prefix}{name},address={name},pid={server.pid},{common}" for name in OURS]
        finally:
            server.terminate()
            server.wait(timeout=60)


def synced_writes(seconds: float, folder: Path) -> list[float]:
    """The seconds that small appends took at the pace of the latency row, each synced, from when it was due."""
    took: list[float] = []
    with (folder / "plain").open("wb", buffering=0) as file:
        start = time.perf_counter()
        for number in range(int(PACE * seconds)):
            due = start + number / PACE
            time.sleep(max(0.0, due - time.perf_counter()))
            file.write(bytes(WRITE_BYTES))
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - due)
    return took


def run_kit(kit: Path, folder: Path, peers: Sequence[str], ours: Sequence[str], options: argparse.Namespace) -> Results:
    out = folder / "results.jsonl"
    chosen = list(dict.fromkeys(row.scenario for row in ROWS if re.search(options.rows, row.scenario)))
    scenarios = ",".join(chosen)
    command = [sys.executable, str(kit / "bench.py"), "run", "--peers", ",".join(peers), "--out", str(out)]
    command += ["--rounds", str(options.rounds), "--seconds", str(options.seconds), "--cap", str(options.cap)]
    command += ["--warmup", "1", "--quiet", "0", "--scenarios", scenarios, "--rate", str(PACE), "--dir", str(folder)]
    for spec in ours:
        command += ["--ours", spec]
    more = [sys.executable, str(MORE), str(kit), str(folder), str(out), scenarios, ",".join(peers), *ours]
    try:
        subprocess.run(command, check=True, timeout=KIT_TIMEOUT_S)
        subprocess.run(more, check=True, timeout=KIT_TIMEOUT_S)
    finally:
        stop = [sys.executable, str(kit / "peers.py"), "stop", "all", "--dir", str(folder)]
        subprocess.run(stop, check=False, timeout=120)
    results: Results = {}
    for line in out.read_text().splitlines():
        found = json.loads(line)
        if found.get("ok") and found.get("verified", True):
            results.setdefault((found["scenario"], found["peer"]), []).append(found)
    return results


def figure_of(result: dict[str, Any], name: str) -> float | None:
    value: Any = result
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return None if value is None else float(value)


def median(results: Results, scenario: str, peer: str, name: str) -> float | None:
    found = [figure for each in results.get((scenario, peer), []) if (figure := figure_of(each, name)) is not None]
    return statistics.median(found) if found else None


def table(results: Results, peers: Sequence[str], ours: Sequence[str], disk_ms: float) -> str:
    columns = [*peers, *ours]
    heads = [TITLES.get(name, name) for name in columns]
    lines = ["| | " + " | ".join(heads) + " | ratios to the best peer | to the best that syncs |"]
    lines.append("|---" * (len(columns) + 3) + "|")
    for row in ROWS:
        if not any((row.scenario, name) in results for name in columns):
            continue
        figures = {name: median(results, row.scenario, name, row.figure) for name in columns}
        scale = 1.0 if row.is_rate else 1e-3
        cells = [_cell(value, scale, row) for value in figures.values()]
        if row.is_rate:
            synced = [name for name in peers if name not in UNSYNCED]
            cells += [_ratios(figures, peers, ours), _ratios(figures, synced, ours)]
        else:
            plain = [f"{mine * scale / disk_ms:.2f}" for name in ours if (mine := figures[name]) is not None]
            cells += [f"to plain writes: {', '.join(plain)}" if plain else "", ""]
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    cpu = [
        ", ".join(
            "" if (value := median(results, scenario, name, "broker_cpu_per_100k")) is None else f"{value:.1f}"
            for scenario in CPU_SCENARIOS
        )
        for name in columns
    ]
    lines.append("| CPU s per 100,000: send w1000, drain, 4 x 4 | " + " | ".join(cpu) + " | | |")
    lines.append("")
    lines.append(f"Plain synced writes at {PACE}/s, nothing else running: p99 {disk_ms:.2f} ms.")
    return "\n".join(lines) + "\n"


def _ratios(figures: dict[str, float | None], peers: Sequence[str], ours: Sequence[str]) -> str:
    best = max((value for name in peers if (value := figures[name]) is not None), default=None)
    return ", ".join([f"{mine / best:.2f}" for name in ours if best and (mine := figures[name]) is not None])


def _cell(value: float | None, scale: float, row: Row) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if row.is_rate else f"{value * scale:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kit", type=Path, default=os.environ.get("BENCH_KIT"), help="default: BENCH_KIT")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--cap", type=int, default=100_000, help="most messages of one send")
    parser.add_argument("--rows", default="", help="a regular expression: only scenarios whose names it finds")
    parser.add_argument("--postgres", action="store_true", help="a namespace in PostgreSQL too")
    parser.add_argument("--out", type=Path, help="write the table here too")
    options = parser.parse_args()
    if options.kit is None or not (options.kit / "bench.py").exists():
        print("Other brokers are left out: --kit, or BENCH_KIT, names no folder with bench.py and peers.py.")
        return
    peers, missing = present()
    for reason in missing:
        print(f"left out: {reason}", file=sys.stderr)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        disk = synced_writes(options.seconds, folder)
        specs, names = stack.enter_context(own_namespace()), list(OURS)
        if options.postgres:
            from bench.postgres import postgres  # needs the extra, and the tests

            dsn = stack.enter_context(postgres())
            specs += stack.enter_context(own_namespace(ON_POSTGRES, "--store", dsn))
            names += [ON_POSTGRES + name for name in OURS]
        results = run_kit(options.kit.resolve(), folder, peers, specs, options)
        disk += synced_writes(options.seconds, folder)
    text = table(results, peers, names, statistics.quantiles(disk, n=100)[98] * 1e3)
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
