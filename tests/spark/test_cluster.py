"""The whole way over other people's Spark: its Python workers have no twinbus installed, and get it as an archive."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.cluster import Cluster, ConnectServer, python_without_twinbus
from tests.spark.conftest import WORKERS
from tests.spark.entities import Entities
from twinbus.pipeline.cache_folder import put
from twinbus.pipeline.shipping import archive

COUNT = 1_200
DRIVER_S_MAX = 300


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
        self._source = entities.queue(enable_partitioning=True)
        self._target = entities.queue(requires_duplicate_detection=True)
        entities.send(self._source, [f"message {number}" for number in range(COUNT)])
        self._python = python_without_twinbus(folder / "python")
        assert can_import(self._python, "pyspark, pyarrow")
        assert not can_import(self._python, "twinbus")
        self.environment = {
            "BUS": self._broker.connection_string,
            "PYSPARK_PYTHON": str(self._python),
            "PYTHONPATH": str(WORKERS),  # so that they start sooner; nothing of ours is there
        }

    def start(self, url: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tests.spark.full_pass", url, self._source, self._target, str(self._folder)]
        environment = {**os.environ, **self.environment, "XDG_CACHE_HOME": str(self._folder)}
        with (self._folder / "driver.log").open("w") as log:
            return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)

    def finish(self, driver: "subprocess.Popen[str]") -> None:
        try:
            printed, _ = driver.communicate(timeout=DRIVER_S_MAX)
        finally:
            driver.kill()
        assert driver.returncode == 0, (self._folder / "driver.log").read_text()[-3000:]
        assert json.loads(printed.splitlines()[-1]) == {"batches": 2, "read_back": COUNT}

    def wait_for_the_first_batch(self, driver: "subprocess.Popen[str]") -> None:
        while not (self._folder / "checkpoint" / "commits" / "0").exists():
            assert driver.poll() is None, (self._folder / "driver.log").read_text()[-3000:]
            time.sleep(0.02)

    def check(self) -> None:
        assert sorted(self._broker.take_all(self._target)) == sorted(f"MESSAGE {number}" for number in range(COUNT))
        assert self._broker.count(self._source) == 0


@pytest.mark.rule("C4.2")
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_stream_runs_on_two_workers_of_a_cluster(entities: Entities, tmp_path: Path) -> None:
    whole = Pass(entities, tmp_path)
    with Cluster(tmp_path, whole.environment) as cluster:
        cluster.begin(worker_count=2)
        whole.finish(whole.start(cluster.url))
        assert cluster.workers_that_ran_executors() == 2
    whole.check()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_stream_survives_the_death_of_an_executor(entities: Entities, tmp_path: Path) -> None:
    whole = Pass(entities, tmp_path)
    with Cluster(tmp_path, whole.environment) as cluster:
        driver = whole.start(cluster.start_all(worker_count=2).url)
        whole.wait_for_the_first_batch(driver)
        os.kill(cluster.executors()[0], signal.SIGKILL)
        whole.finish(driver)
    whole.check()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_stream_runs_through_spark_connect(entities: Entities, tmp_path: Path) -> None:
    """Artifacts of a session do not reach the process of a streaming source: the server has our archive on its path."""
    whole = Pass(entities, tmp_path)
    put(tmp_path / "twinbus.zip", archive())
    environment = {**whole.environment, "PYTHONPATH": f"{WORKERS}{os.pathsep}{tmp_path / 'twinbus.zip'}"}
    with ConnectServer(tmp_path, environment) as server:
        whole.finish(whole.start(server.start_all().url))
    whole.check()
