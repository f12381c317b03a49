"""One suite for every messaging store: the `store` fixture is each of them in turn."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from twinbus.store.changes import Change
from twinbus.store.folder.store import FolderStore
from twinbus.store.memory import MemoryStore
from twinbus.store.messaging_store import MessagingStore
from twinbus.store.postgres.place import Owner, PostgresPlace
from twinbus.store.postgres.store import PostgresStore
from twinbus.testing.faulty_store import FaultSwitch, FaultyStore

OpenStore = Callable[[Path], MessagingStore]


class CheckpointingStore(FolderStore):
    """Everything in the tables, nothing in the overlay."""

    def commit(self, changes: Sequence[Change]) -> None:
        super().commit(changes)
        self.checkpoint()


class CheckpointingPostgresStore(PostgresStore):
    def commit(self, changes: Sequence[Change]) -> None:
        super().commit(changes)
        self.checkpoint()


STORES: dict[str, OpenStore] = {
    "memory": lambda _folder: MemoryStore(),
    "durable": FolderStore,
    "durable-checkpointed": CheckpointingStore,
    "faulty": lambda _folder: FaultyStore(MemoryStore(), FaultSwitch()),
}
ON_POSTGRES: dict[str, type[PostgresStore]] = {
    "postgres": PostgresStore,
    "postgres-checkpointed": CheckpointingPostgresStore,
}


@pytest.fixture(params=[*STORES, *ON_POSTGRES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessagingStore]:
    opened = open_postgres(request) if request.param in ON_POSTGRES else STORES[request.param](tmp_path / "store")
    yield opened
    opened.close()


def open_postgres(request: pytest.FixtureRequest) -> MessagingStore:
    place = PostgresPlace(request.getfixturevalue("postgres_dsn"), request.getfixturevalue("fresh_namespace"), 0, 1)
    return ON_POSTGRES[request.param](place, Owner.this_process())
