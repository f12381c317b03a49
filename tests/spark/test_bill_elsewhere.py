"""The bill on Spark that others run: a cluster, and a Connect server; the folders are where all of them see them."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cost.made_logs import busy_hours, counted, millis, write_log
from tests.spark.cluster import QUICK, Cluster, ConnectServer

OPERATIONS = busy_hours(millis("2026-11-15 06:00"), 3, seed=1)
DRIVER_S_MAX = 480
ON_CLUSTER = {
    # The workers run on this machine, and reach the driver by its loopback address only.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
}


def bill(folder: Path, master: str, settings: Mapping[str, str]) -> None:
    """Twice: the second run finds nothing new."""
    log = folder / "operations"
    write_log(log, OPERATIONS)
    command = [sys.executable, "-m", "twinbus", "pipeline", "bill", str(log), "--out", str(folder / "bill"), "--json"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    for hours in (3, 0):
        done = subprocess.run(
            [*command, "--master", master], capture_output=True, text=True, timeout=DRIVER_S_MAX, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        document = json.loads(done.stdout.splitlines()[-1])
        assert document["counted_hours"] == hours
        assert document["total"]["units"] == counted(OPERATIONS)["units"]


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1_000)
def test_a_bill_is_made_on_two_workers_of_a_cluster(tmp_path: Path) -> None:
    with Cluster(tmp_path, {}) as cluster:
        bill(tmp_path, cluster.start_all(worker_count=2).url, ON_CLUSTER)


@pytest.mark.rule("C4.2")
@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1_000)
def test_a_bill_is_made_through_spark_connect(tmp_path: Path) -> None:
    with ConnectServer(tmp_path, {}) as server:
        bill(tmp_path, server.start_all().url, {})
