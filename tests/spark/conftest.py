"""One Spark session and one namespace, a process of its own, for all tests here; every test makes its own entities.

Whoever uses `spark` is marked as such. Sources and sinks run in other processes than the test: nothing that is patched
here reaches them, and they need a namespace that listens on a real port.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pairing.namespaces import NamespaceProcess
from tests.spark.entities import Entities

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS = Path(__file__).parent / "workers"
TEST_SETTINGS: Mapping[str, str] = {"spark.sql.streaming.stopTimeout": "30s"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Tasks are tried four times, as on a cluster; a plain `local[2]` would try them once."""
    from twinbus.pipeline.session import QUICK_START, spark_session

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(WORKERS), os.environ.get("PYTHONPATH"))))
    places = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": str(tmp_path_factory.mktemp("scratch")),
    }
    settings = {**QUICK_START, **TEST_SETTINGS, **places}
    session = spark_session("tests", master="local[2,4]", settings=settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceProcess]:
    """A namespace with two messaging stores. Who kills or hangs it uses one of his own."""
    process = NamespaceProcess(tmp_path_factory.mktemp("namespace"), "bus")
    yield process
    process.kill()


@pytest.fixture
def entities(broker: NamespaceProcess) -> Entities:
    return Entities(broker)
