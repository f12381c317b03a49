"""One suite for every messaging store: the `store` fixture is each of them in turn."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from twinbus.store.changes import Change
from twinbus.store.folder.store import FolderStore
from twinbus.store.memory import MemoryStore
from twinbus.store.messaging_store import MessagingStore
from twinbus.testing.faulty_store import FaultSwitch, FaultyStore

OpenStore = Callable[[Path], MessagingStore]


class CheckpointingStore(FolderStore):
    """Everything in the tables, nothing in the overlay."""

    def commit(self, changes: Sequence[Change]) -> None:
        super().commit(changes)
        self.checkpoint()


STORES: dict[str, OpenStore] = {
    "memory": lambda _folder: MemoryStore(),
    "durable": FolderStore,
    "durable-checkpointed": CheckpointingStore,
    "faulty": lambda _folder: FaultyStore(MemoryStore(), FaultSwitch()),
}


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessagingStore]:
    opened = STORES[request.param](tmp_path / "store")
    yield opened
    opened.close()
