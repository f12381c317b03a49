"""The archive for executors: what is in it can be imported where twinbus is not installed."""

import os
import subprocess
import sys
from pathlib import Path

from tests.spark.cluster import python_without_twinbus
from twinbus.cli.app import run
from twinbus.pipeline.shipping import archive

READING_AND_WRITING = "pyspark_servicebus, twinbus.pipeline.source.data_source, twinbus.pipeline.sink.writers"
NEEDED = f"{READING_AND_WRITING}, twinbus.pipeline.syphon.task, twinbus.pipeline.replay.dead_letter_task"


def test_executors_can_import_all_they_need_from_the_archive(tmp_path: Path) -> None:
    file = tmp_path / "twinbus.zip"
    assert run(["pipeline", "package", str(file)]) == 0
    python = python_without_twinbus(tmp_path / "python")
    environment = {**os.environ, "PYTHONPATH": str(file)}
    command = [str(python), "-c", f"import {NEEDED}; print(twinbus.__file__)"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(str(file)), done.stderr


def test_readers_and_writers_need_no_more_than_pyarrow_and_pyspark() -> None:
    """What else a cluster has to have is for the jobs that say so."""
    others = "import sys; sys.modules |= dict.fromkeys(['azure', 'pandas', 'uvloop', 'websockets', 'typer'])"
    command = [sys.executable, "-c", f"{others}; import {READING_AND_WRITING}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_same_code_makes_the_same_archive() -> None:
    assert archive() == archive()
