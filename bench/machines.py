"""What it costs that a queue lies at another node, and how long its fragments are away.

    python -m bench.machines [--turns 20] [--failures 3] [--costs 1]

Two nodes on this machine, PostgreSQL beside them with syncs as it is delivered. All stores are moved to node a; then the same load is put
on the queue through a and through b, in short turns one after the other, so that whatever else the machine does meets both. Latency is from
when a message was due until it was received; the figure is the median over the turns, of their p99 too, and beside it stands the
processor time that a message took in each process, which says whether the machine was busy with something else. A *move* is the time that
the log gives for one store. After a kill (SIGKILL) and a freeze (SIGSTOP) of a, a client at b sends to a queue of a's store until it is accepted.
*Costs* are microseconds of processor time a message of 1 KiB, sent and drained over 4 connections with 1,000 under way, in each process; they
can be measured beside other work. 0 of something leaves it out.
"""

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from bench.cores import children_of
from bench.postgres import postgres
from bench.processor_time import own_seconds, processor_seconds
from bench.targets import Target
from tests.server.machines.machines import STORES, Node, until
from twinbus.cli.app import run

QUEUE = "ordinary"
PACE, TURN_S = 500, 3


class Two:
    """The nodes a and b; a has all stores whenever `gathered` returns."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self._folder, self._dsn, self._starts = folder, dsn, 0
        self.a, self.b = self._start("a"), self._start("b")
        for node in (self.a, self.b):
            node.ready()

    def _start(self, name: str) -> Node:
        self._starts += 1
        return Node(self._folder / str(self._starts), self._dsn, "bench", name, "--queue", QUEUE)

    def again(self) -> None:
        self.a.kill()
        self.a = self._start("a").ready()

    def gathered(self) -> None:
        for store in range(STORES):
            move = ["store", "move", str(store), "--to", "a", "--connection-string", self.b.connection_string]
            assert run(move) == 0
        until(self._is_gathered, "the stores have not moved")

    def _is_gathered(self) -> bool:
        owners = self.b.owners()
        return len(owners) == 1 and f"process {self.a.pid}" in next(iter(owners)) and sum(owners.values()) == STORES

    def stop(self) -> None:
        for node in (self.a, self.b):
            node.thaw()
            node.kill()


def away_s(node: Node, fail: Callable[[], None]) -> float:
    with (
        ServiceBusClient.from_connection_string(node.connection_string, retry_total=0, socket_timeout=5) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages(ServiceBusMessage("before"))
        fail()
        began = time.monotonic()
        while True:
            try:
                sender.send_messages(ServiceBusMessage("after"))
                return time.monotonic() - began
            except ServiceBusError:
                time.sleep(0.02)


def postmaster_of(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        backend = connection.info.backend_pid
    return int(Path(f"/proc/{backend}/stat").read_text().rsplit(")", 1)[1].split()[1])


def meter_of(two: Two, postmaster: int) -> Callable[[], dict[str, float]]:
    """Seconds that each process has used so far."""
    deciding = {f"{node.name} decides": node.pid for node in (two.a, two.b)}
    storing = {f"{node.name} stores": children_of(node.pid)[0] for node in (two.a, two.b)}

    def used() -> dict[str, float]:
        own = {name: own_seconds(pid) for name, pid in (deciding | storing).items()}
        return own | {"PostgreSQL": processor_seconds(postmaster) or 0.0}

    return used


def latencies(two: Two, used: Callable[[], dict[str, float]], turns: int) -> None:
    """Of what comes in and goes out through the owner, and through the other node."""
    options: dict[str, float] = {"size": 1024, "rate": PACE, "seconds": TURN_S, "credit": 100}
    found: dict[str, list[dict[str, float]]] = {"a": [], "b": []}
    for turn in range(turns):
        for node in (two.a, two.b) if turn % 2 else (two.b, two.a):
            before = used()
            result = Target.of(QUEUE, node.connection_string).load("latency", options)
            after = used()
            result |= {name: (after[name] - before[name]) / result["received"] * 1e6 for name in before}
            found[node.name].append(result)
    for name, what in (("a", "through the owner"), ("b", "through the other")):
        medians = {key: statistics.median(each[key] for each in found[name]) for key in found[name][0]}
        cpu = ", ".join(f"{key} {medians[key]:.0f}" for key in used())
        p99s = sorted(round(each["p99_ms"], 1) for each in found[name])
        print(
            f"{what}: {PACE}/s, {turns} turns of {TURN_S} s, medians: p50 {medians['p50_ms']:.2f} ms, p99 {medians['p99_ms']:.2f} ms; "
            f"us a message: {cpu}; p99 of all turns {p99s}",
            flush=True,
        )
    more = [other["p99_ms"] - owner["p99_ms"] for owner, other in zip(found["a"], found["b"], strict=True)]
    print(
        f"p99 through the other above that of the turn beside it: median {statistics.median(more):.2f} ms", flush=True
    )


def costs(two: Two, used: Callable[[], dict[str, float]], seconds: float = 3.0) -> None:
    """Of what is sent and drained through the owner, and through the other node."""
    for node, what in ((two.a, "through the owner"), (two.b, "through the other")):
        target = Target.of(QUEUE, node.connection_string)
        options: dict[str, float] = {"connections": 4}
        before = used()
        sent = target.load("send", options | {"size": 1024, "window": 1000, "seconds": seconds})["sent"]
        between = used()
        target.load("drain", options | {"credit": 1000, "count": sent})
        after = used()
        for mode, first, last in (("sent", before, between), ("drained", between, after)):
            shown = ", ".join(f"{name} {(last[name] - first[name]) / sent * 1e6:.1f}" for name in before)
            print(f"{mode} {what}: {sent:,.0f} messages; us a message: {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--failures", type=int, default=3)
    parser.add_argument("--costs", type=int, default=1)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        dsn = stack.enter_context(postgres())
        two = Two(folder, dsn)
        stack.callback(two.stop)
        two.gathered()
        moved = [int(ms) for ms in re.findall(r"event=store_moved .*ms=(\d+)", two.b.log)]
        print(
            f"moves: {len(moved)}, median {statistics.median(moved or [0]):.0f} ms, longest {max(moved or [0])} ms",
            flush=True,
        )
        used = meter_of(two, postmaster_of(dsn))
        for _ in range(given.costs):
            costs(two, used)
        if given.turns:
            latencies(two, used, given.turns)
        for word in ("kill", "freeze") if given.failures else ():
            away = []
            for _ in range(given.failures):
                two.gathered()
                away.append(away_s(two.b, getattr(two.a, word)))
                two.again()
            print(f"after a {word}: {[round(each, 2) for each in away]} s until a store is served again", flush=True)


if __name__ == "__main__":
    main()
