"""The server that the official SDKs are run against, and SDKs that do not idle while they poll."""

from collections.abc import Iterator

import pytest

from tests.interop.running_server import RunningServer
from tests.pairing.quick_sdk import quick_sdk


@pytest.fixture(scope="module", autouse=True)
def quick_polling() -> Iterator[None]:
    """For one file at a time: other tests have an SDK that sleeps as they need it."""
    with quick_sdk():
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for each file: every test creates its own entities."""
    running = RunningServer(tmp_path_factory.mktemp("data"))
    yield running
    running.stop()
