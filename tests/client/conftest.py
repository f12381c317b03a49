"""A real namespace in a thread of its own, and the bulk client connected to it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.namespace import Namespace


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for each file: every test creates its own entities."""
    running = RunningServer(tmp_path_factory.mktemp("data"))
    yield running
    running.stop()


@pytest.fixture
async def namespace(server: RunningServer) -> AsyncIterator[Namespace]:
    async with await Namespace.connect(server.connection_string, clock=server.clock, timeout_s=10) as connected:
        yield connected
