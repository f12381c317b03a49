"""One suite for every messaging store: the `store` fixture is each of them in turn."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from twinbus.store.memory import MemoryStore
from twinbus.store.messaging_store import MessagingStore

OpenStore = Callable[[Path], MessagingStore]

STORES: dict[str, OpenStore] = {"memory": lambda _folder: MemoryStore()}


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessagingStore]:
    opened = STORES[request.param](tmp_path / "store")
    yield opened
    opened.close()
