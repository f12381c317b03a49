"""The whole way over other people's Spark: its Python workers have no twinbus installed, and get it as an archive."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.cluster import Cluster, ConnectServer, python_without_twinbus
from tests.spark.entities import Entities
from twinbus.pipeline.cache_folder import put
from twinbus.pipeline.shipping import archive

COUNT = 1_200
DRIVER_S_MAX = 240


def can_import(python: Path, packages: str) -> bool:
    """As the workers of the cluster would: with nothing on their path that the tests put there."""
    command = [str(python), "-c", f"import {packages}"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


class Pass:
    """A partitioned queue with messages, an empty one, and the program that moves them from one to the other."""

    def __init__(self, entities: Entities, folder: Path) -> None:
        self._folder = folder
        self._broker = entities.broker
        self._source, self._target = entities.queue(enable_partitioning=True), entities.queue()
        entities.send(self._source, [f"message {number}" for number in range(COUNT)])
        self._python = python_without_twinbus(folder / "python")
        assert can_import(self._python, "pyspark, pyarrow")
        assert not can_import(self._python, "twinbus")
        self.environment = {"BUS": self._broker.connection_string, "PYSPARK_PYTHON": str(self._python)}

    def run(self, url: str) -> None:
        command = [sys.executable, "-m", "tests.spark.full_pass", url, self._source, self._target, str(self._folder)]
        environment = {**os.environ, **self.environment, "XDG_CACHE_HOME": str(self._folder)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=DRIVER_S_MAX, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout.splitlines()[-1]) == {"batches": 2, "read_back": COUNT}

    def check(self) -> None:
        assert sorted(self._broker.take_all(self._target)) == sorted(f"MESSAGE {number}" for number in range(COUNT))
        assert self._broker.count(self._source) == 0


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_stream_runs_on_two_workers_of_a_cluster(entities: Entities, tmp_path: Path) -> None:
    whole = Pass(entities, tmp_path)
    with Cluster(tmp_path, whole.environment) as cluster:
        whole.run(cluster.start_all(worker_count=2).url)
        assert cluster.workers_that_ran_executors() == 2
    whole.check()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_stream_runs_through_spark_connect(entities: Entities, tmp_path: Path) -> None:
    """Artifacts of a session do not reach the process of a streaming source: the server has our archive on its path."""
    whole = Pass(entities, tmp_path)
    put(tmp_path / "twinbus.zip", archive())
    environment = {**whole.environment, "PYTHONPATH": str(tmp_path / "twinbus.zip")}
    with ConnectServer(tmp_path, environment) as server:
        whole.run(server.start_all().url)
    whole.check()
