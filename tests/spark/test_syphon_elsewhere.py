"""The syphon on Spark that others run: a cluster, and a Connect server; secrets are in the environment of the nodes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import NamespaceProcess
from tests.pipeline.syphon.backlog import Backlog
from tests.spark.cluster import Cluster, ConnectServer
from tests.spark.syphon_process import START_S, running, variables
from twinbus.pipeline.syphon.key_folder import KeyFolder

COUNT = 2_000


@pytest.fixture
def backlog(tmp_path: Path) -> Iterator[Backlog]:
    spaces = Spaces(NamespaceProcess(tmp_path, "primary"), NamespaceProcess(tmp_path, "secondary"))
    with KeyFolder() as keys:
        yield Backlog(spaces, keys, queue_count=4)
    spaces.primary.kill()
    spaces.secondary.kill()


def drain(backlog: Backlog, master: str, metrics: Path) -> None:
    path = backlog.spaces.primary.create_queue()
    bodies = backlog.fill(path, COUNT)
    with running(backlog, "--metrics", str(metrics), master=master) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        assert process.wait(START_S) == 0
    (pair,) = json.loads(said.splitlines()[-1])
    assert (pair["moved"], pair["last_error"]) == (COUNT, None)
    assert sorted(backlog.spaces.primary.take_all(path)) == sorted(bodies)
    assert list(metrics.glob("*.parquet"))


@pytest.mark.rule("C4.2")
@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_backlog_is_brought_home_by_two_workers_of_a_cluster(backlog: Backlog, tmp_path: Path) -> None:
    with Cluster(tmp_path, variables(backlog)) as cluster:
        drain(backlog, cluster.start_all(worker_count=2).url, tmp_path / "metrics")
        assert cluster.workers_that_ran_executors() == 2


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_backlog_is_brought_home_through_spark_connect(backlog: Backlog, tmp_path: Path) -> None:
    with ConnectServer(tmp_path, variables(backlog)) as server:
        drain(backlog, server.start_all().url, tmp_path / "metrics")
