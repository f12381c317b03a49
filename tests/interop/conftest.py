from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.running_server import RunningServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for each file: every test makes entities of its own."""
    running = RunningServer(tmp_path_factory.mktemp("data"))
    yield running
    running.stop()


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    return tmp_path / "data"
