"""The examples of the page on Spark Connect and declarative pipelines, as they stand there, with folders of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.cluster import ConnectServer
from tests.spark.conftest import WORKERS
from tests.spark.entities import Entities
from twinbus.pipeline.java import choose_java

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark-connect-and-pipelines.md"
COUNT = 200
RUN_S_MAX = 1_200

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(2 * RUN_S_MAX)]


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def environment(entities: Entities) -> dict[str, str]:
    """Where twinbus is installed, with the secret."""
    return {
        "BUS": entities.broker.connection_string,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(WORKERS),
        "JAVA_HOME": str(choose_java(os.environ).home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def named(program: str, **queues: str) -> str:
    """With queues that no other test has."""
    for name, queue in queues.items():
        program = program.replace(f'queue="{name}"', f'queue="{queue}"')
    return program


def run(command: list[str], folder: Path, variables: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.mark.rule("C4.2")
def test_the_example_for_connect_consumes_and_forwards(entities: Entities, tmp_path: Path) -> None:
    source, target = entities.queue(enable_partitioning=True), entities.queue(requires_duplicate_detection=True)
    entities.send(source, [f"m{number}" for number in range(COUNT)])
    client, _ = examples("python")
    variables = environment(entities)
    with ConnectServer(tmp_path, variables) as server:
        program = named(client, orders=source, invoices=target).replace("sc://localhost:15002", server.start_all().url)
        program = program.replace("checkpoints/invoices", str(tmp_path / "checkpoint"))
        assert run([sys.executable, "-c", f"{program}\nprint(waiting)"], tmp_path, variables).split() == [str(COUNT)]
    assert sorted(entities.broker.take_all(target)) == sorted(f"M{number}" for number in range(COUNT))
    assert entities.broker.count(source) == 0


@pytest.mark.rule("C4.2")
def test_the_example_of_a_declarative_pipeline_has_each_message_once_over_two_runs(
    entities: Entities, tmp_path: Path
) -> None:
    import pyarrow.dataset

    queue = entities.queue(enable_partitioning=True)
    (spec,), (_, definitions) = examples("yaml"), examples("python")
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(named(definitions, orders=queue))
    (tmp_path / "spark-pipeline.yml").write_text(spec.replace("/var/lib/orders", str(tmp_path)))
    found = re.search(r"^BUS='.*' spark-pipelines (.*)$", PAGE.read_text(), re.MULTILINE)
    assert found is not None
    command = [str(Path(sys.executable).parent / "spark-pipelines"), *found[1].split()]
    for last in (COUNT, 2 * COUNT):
        entities.send(queue, [f"m{number}" for number in range(last - COUNT, last)])
        run(command, tmp_path, environment(entities))
        files = [str(file) for file in (tmp_path / "spark-warehouse" / "orders").glob("*.parquet")]
        found = pyarrow.dataset.dataset(files).to_table(columns=["messageId"])["messageId"].to_pylist()
        assert sorted(found) == sorted(f"m{number}" for number in range(last))
