import threading
from collections.abc import Iterable, Iterator
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


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of threads: for the next one of each name that is in here, the system has none."""
    names: list[str] = []
    start = threading.Thread.start

    def start_or_not(self: threading.Thread) -> None:
        if self.name in names:
            names.remove(self.name)
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", start_or_not)
    return names


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spaces]:
    folder = tmp_path_factory.mktemp("namespaces")
    with ThreadPoolExecutor(2) as starting:
        primary, secondary = starting.map(lambda name: NamespaceProcess(folder, name), ("primary", "secondary"))
    _create_backlog_queues(_backlog_queues(primary), secondary)
    yield Spaces(primary, secondary)
    primary.kill()
    secondary.kill()


@pytest.fixture
def spaces(processes: Spaces) -> Iterator[Spaces]:
    """Two running namespaces; whatever a test does to them is mended after it, and what it set aside is gone."""
    yield processes
    processes.primary.revive()
    processes.secondary.revive()
    queues = _backlog_queues(processes.primary)
    if any(map(processes.secondary.count, queues)):
        # Both, one after the other: so each is in a store of its own again.
        with processes.secondary.administration() as administration:
            for queue in queues:
                administration.delete_queue(queue)
        _create_backlog_queues(queues, processes.secondary)


def _backlog_queues(primary: NamespaceProcess) -> list[str]:
    name = primary_name(f"127.0.0.1:{primary.amqp_port}")
    return [backlog_queue_path(name, index) for index in range(2)]


def _create_backlog_queues(queues: Iterable[str], secondary: NamespaceProcess) -> None:
    """As a pair creates them, but with the shortest locks, so that what a syphon left behind comes again soon."""
    description = {**DESCRIPTION, "lock_duration": timedelta(seconds=5)}
    with secondary.administration() as administration:
        for queue in queues:
            administration.create_queue(queue, **description)
