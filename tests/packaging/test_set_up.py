"""`make setup` and what it sets up work on a machine that has Python and make, and neither Java nor Node, Go or Docker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOT_THERE = ("java", "javac", "jshell", "mvn", "node", "npm", "npx", "go", "gofmt", "docker", "dockerd", "dotnet")
SPARK_JOB = """
from twinbus.pipeline.session import spark_session
spark = spark_session("set-up", master="local[1]")
print(spark.range(7).count())
spark.stop()
"""

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of such a machine: every command that is on the PATH here, but those."""
    folder = tmp_path_factory.mktemp("bin")
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for command in place.iterdir() if place.is_dir() else ():
            link = folder / command.name
            if command.name not in NOT_THERE and not link.is_symlink():
                link.symlink_to(command)
    dropped = ("JAVA_HOME", "PYTHONPATH", "VIRTUAL_ENV")
    return {**{name: value for name, value in os.environ.items() if name not in dropped}, "PATH": str(folder)}


@pytest.fixture(scope="module")
def set_up(source: Path, bare: dict[str, str]) -> Path:
    base = Path(sys.base_prefix) / "bin" / "python3"
    done = subprocess.run(
        ["make", "setup", f"PYTHON={base}"], cwd=source, env=bare, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return source / ".venv" / "bin"


def printed(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_machine_is_bare(bare: dict[str, str]) -> None:
    for name in NOT_THERE:
        done = subprocess.run(["sh", "-c", f"command -v {name}"], env=bare, capture_output=True, check=False)
        assert done.returncode != 0, name


def test_an_outage_is_rehearsed_and_brought_home_by_spark(set_up: Path, bare: dict[str, str]) -> None:
    words = [str(set_up / "twinbus"), "rehearse", "--duration", "6", "--json"]
    report = json.loads(printed(words, bare))
    assert report["is_balanced"]
    assert report["settings"]["engine"] == "spark"


def test_spark_runs_with_the_java_that_was_installed(set_up: Path, bare: dict[str, str]) -> None:
    assert printed([str(set_up / "python"), "-c", SPARK_JOB], bare).strip() == "7"
