from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import pytest

from tests.pairing.namespaces import NamespaceProcess
from tests.pairing.quick_sdk import quick_sdk
from twinbus.pairing.backlog.queues import DESCRIPTION, backlog_queue_path, primary_name


@dataclass
class Spaces:
    primary: NamespaceProcess
    secondary: NamespaceProcess


@pytest.fixture(scope="module", autouse=True)
def sdk() -> Iterator[None]:
    with quick_sdk():
        yield


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spaces]:
    folder = tmp_path_factory.mktemp("namespaces")
    with ThreadPoolExecutor(2) as starting:
        primary, secondary = starting.map(lambda name: NamespaceProcess(folder, name), ("primary", "secondary"))
    _create_backlog_queues(primary, secondary)
    yield Spaces(primary, secondary)
    primary.kill()
    secondary.kill()


@pytest.fixture
def spaces(processes: Spaces) -> Iterator[Spaces]:
    """Two running namespaces; whatever a test does to them is mended after it."""
    yield processes
    processes.primary.revive()
    processes.secondary.revive()


def _create_backlog_queues(primary: NamespaceProcess, secondary: NamespaceProcess) -> None:
    """As a pair creates them, but with the shortest locks, so that what a syphon left behind comes again soon."""
    name = primary_name(f"127.0.0.1:{primary.amqp_port}")
    description = {**DESCRIPTION, "lock_duration": timedelta(seconds=5)}
    with secondary.administration() as administration:
        for index in range(2):
            administration.create_queue(backlog_queue_path(name, index), **description)
