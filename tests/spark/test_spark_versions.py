"""Older versions of Spark, each with a Python of its own, which is installed once into the build folder, that git ignores."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.interop.foreign_suite import BUILD
from tests.spark.entities import Entities

ROOT = Path(__file__).parents[2]
COUNT = 300
RUN_S_MAX = 400
INSTALL_S_MAX = 900
OLDER = ("4.0.5", "4.1.4")


def python_with_spark(version: str) -> Path:
    """Spark is built when it is installed, which takes minutes; pip keeps what it built."""
    folder = BUILD / f"spark-{version}"
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, clear=True, symlinks=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            f"--python={python}",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        packages = [f"pyspark=={version}", "pyarrow>=18", "pandas>=2.2,<3", "setuptools"]
        subprocess.run([*command, *packages], check=True, timeout=INSTALL_S_MAX)
        (folder / "installed").touch()
    return python


class OlderSpark:
    def __init__(self, version: str, entities: Entities, folder: Path) -> None:
        self._python = python_with_spark(version)
        self._folder = folder
        self.source, self.target = entities.queue(enable_partitioning=True), entities.queue()
        hidden = ("SPARK_", "PYSPARK_", "PYTHON")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        self._environment = {**inherited, "PYTHONPATH": path, "BUS": entities.broker.connection_string}

    def run(self) -> dict[str, object]:
        command = [str(self._python), "-m", "tests.spark.older_spark", self.source, self.target, str(self._folder)]
        done = subprocess.run(
            command, env=self._environment, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return found


@pytest.mark.rule("C4.2")
@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(INSTALL_S_MAX + 2 * RUN_S_MAX)
@pytest.mark.parametrize("version", OLDER)
def test_an_older_spark_reads_batches_and_streams_and_writes(version: str, entities: Entities, tmp_path: Path) -> None:
    """And refuses what it cannot do. The second run continues where the first one stopped."""
    spark = OlderSpark(version, entities, tmp_path)
    for run in (1, 2):
        entities.send(spark.source, [f"{run}-{number}" for number in range(COUNT)])
        seen = spark.run()
        assert (seen["version"], seen["batch"], seen["captured"]) == (version, run * COUNT, run * COUNT)
        assert f"mode=consume needs Spark 4.2 or later for streams; this is Spark {version}." in str(seen["refused"])
    sent = [f"{run}-{number}" for run in (1, 2) for number in range(COUNT)]
    assert sorted(entities.broker.take_all(spark.target)) == sorted([*sent, "one more", "one more"])
    assert entities.broker.count(spark.source) == 2 * COUNT
