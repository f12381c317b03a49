"""A real namespace in a thread of its own, with entities for each test and the options to reach them."""

from collections.abc import Iterator

import pytest

from tests.pipeline.source.bus import Bus
from twinbus.pipeline.source.access.connections import CONNECTIONS
from twinbus.testing.local_namespace import LocalNamespace


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNamespace]:
    with LocalNamespace(tmp_path_factory.mktemp("data")) as running:
        yield running
        CONNECTIONS.close()


@pytest.fixture
def bus(namespace: LocalNamespace) -> Bus:
    return Bus(namespace)
