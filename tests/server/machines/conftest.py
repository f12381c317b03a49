"""Three hosts with a namespace on them, for the tests of one module."""

from collections.abc import Iterator

import pytest

from tests.server.machines.host_clients import KEYLESS, LOCK_S, ONCE, ORDERED
from tests.server.machines.hosts import Cluster
from twinbus.cli.app import run

LOCKS = ("--lock-duration", f"{LOCK_S}s", "--max-delivery-count", "2000")
"""What the SDK has read ahead when its connection ends comes again after that time."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("hosts"))
    try:
        made.start()
        there = ("--connection-string", made.said[1].connection_string)
        for queue, kind in ((KEYLESS, ()), (ORDERED, ("--sessions",)), (ONCE, ("--duplicate-detection",))):
            assert run(["queue", "create", queue, "--partitioned", *kind, *LOCKS, *there]) == 0
        yield made
    finally:
        made.stop()
