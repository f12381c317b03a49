"""A master that cannot be is told in one line, before Spark looks for it."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cost.made_logs import busy_hours, millis, write_log
from twinbus.cli.app import run
from twinbus.errors import ArgumentError
from twinbus.pipeline.masters import MasterUnavailable, check_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[*]",
        "local[2]",
        "local[2,4]",
        "local[*, 4]",
        "local-cluster[2,1,1024]",
        "yarn",
        "k8s://https://host",
        "plugged-in://host:1",
    ],
)
def test_masters_that_spark_knows_pass(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize("master", ["bogus", "", "local[x]", "local[2", "spark:host", "spark://", "sc://", "host:7077"])
def test_what_is_no_master_is_refused(master: str) -> None:
    with pytest.raises(ArgumentError, match="is not a Spark master"):
        check_master(master)


@pytest.mark.parametrize(
    "form", ["spark://127.0.0.1:{0}", "spark://127.0.0.1:{0},127.0.0.1:{0}", "sc://127.0.0.1:{0}/;x=y"]
)
def test_a_master_that_does_not_listen_is_reported(form: str, closed_port: int) -> None:
    with pytest.raises(MasterUnavailable, match=rf"Nothing listens at 127\.0\.0\.1:{closed_port}"):
        check_master(form.format(closed_port))


def test_one_of_several_masters_is_enough(closed_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_master(f"spark://127.0.0.1:{closed_port},127.0.0.1:{server.getsockname()[1]}")


def test_a_host_that_cannot_be_asked_from_here_is_left_to_spark() -> None:
    check_master("sc://no-such-host.invalid:15002")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--master", "bogus"], 2, "'bogus' is not a Spark master"),
        (["--conf", "spark.sql.shuffle.partitions=x"], 1, "spark.sql.shuffle.partitions"),
    ],
)
def test_a_session_that_cannot_start_is_reported_in_one_line(
    spark: "SparkSession", tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], code: int, told: str
) -> None:
    write_log(tmp_path / "log", busy_hours(millis("2026-11-15 06:00"), 1, seed=1, a_hour=3))
    assert run(["pipeline", "bill", str(tmp_path / "log"), "--out", str(tmp_path / "bill"), *words]) == code
    [line] = capfd.readouterr().err.splitlines()
    assert told in line
    assert "Unexpected error" not in line
