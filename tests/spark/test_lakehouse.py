"""Captures into Delta and Iceberg, with their real packages: of Maven Central, and for the newest Spark that each is built for."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.entities import Entities
from tests.spark.lakehouse_job import DIED
from tests.spark.test_spark_versions import INSTALL_S_MAX, ROOT, RUN_S_MAX, python_with_spark

PACKAGES = {
    "delta": ("4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    "iceberg": ("4.1.4", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"),
}
UNRESOLVED = "unresolved dependenc"
COUNT = 200


def run(
    table_format: str, entities: Entities, queue: str, folder: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    version, packages = PACKAGES[table_format]
    hidden = ("SPARK_", "PYSPARK_", "PYTHON")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    environment = {**inherited, "PYTHONPATH": path, "BUS": entities.broker.connection_string, **more}
    command = [
        str(python_with_spark(version)),
        "-m",
        "tests.spark.lakehouse_job",
        table_format,
        packages,
        queue,
        str(folder),
    ]
    # Into files: a JVM that outlives its Python would keep pipes open, and nobody would see the end. It is ended with its group.
    out, errors = folder / "stdout", folder / "stderr"
    with out.open("w") as stdout, errors.open("w") as stderr:
        job = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=stdout, stderr=stderr, start_new_session=True)
        try:
            code = job.wait(RUN_S_MAX)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    done = subprocess.CompletedProcess(command, code, out.read_text(), errors.read_text())
    if UNRESOLVED in done.stdout + done.stderr:
        pytest.skip(f"Spark cannot get {packages}")
    return done


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(INSTALL_S_MAX + 3 * RUN_S_MAX)
@pytest.mark.parametrize("table_format", PACKAGES)
def test_each_message_is_in_the_table_once_although_the_capture_died_between_table_and_checkpoint(
    table_format: str, entities: Entities, tmp_path: Path
) -> None:
    queue = entities.queue(enable_partitioning=True)
    entities.send(queue, [f"a{number}" for number in range(COUNT)])
    died = run(table_format, entities, queue, tmp_path, DIES="1")
    assert died.returncode == DIED, died.stderr[-3000:]
    entities.send(queue, [f"b{number}" for number in range(COUNT)])
    # Without limits, as before Spark 4.2, a run that has a batch to repeat does that alone, and leaves what is new to the next.
    for _ in range(2):
        done = run(table_format, entities, queue, tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        seen = json.loads(done.stdout.splitlines()[-1])
        assert (seen["state"], seen["numbers"]) == ("done", seen["rows"])
        if seen["rows"] == 2 * COUNT:
            return
    raise AssertionError(seen)
