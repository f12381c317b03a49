"""Goal: at every moment a store in PostgreSQL holds what a memory store holds that was told the same.

Method: as for a folder (`test_durable_against_memory`). A crash is an owner that is never heard of again, and another one that
takes the store over when the lease has ended.
"""

import pytest

from tests.store.held_tasks import HeldTasks
from tests.store.postgres_places import end_lease, opened, place
from tests.store.test_durable_against_memory import TINY, check_against_memory
from twinbus.store.postgres.place import PostgresPlace
from twinbus.store.postgres.store import PostgresStore

STEPS = 80


class PostgresWorld:
    def __init__(self, where: PostgresPlace) -> None:
        self._place = where
        self.tasks = HeldTasks()
        self._left: list[PostgresStore] = []
        self.store = self._open()

    def _open(self) -> PostgresStore:
        return opened(self._place, limits=TINY, start_task=self.tasks)

    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()

    def crash(self) -> None:
        if self.tasks.newest is not None:
            self.tasks.newest.forget()
        self._left.append(self.store)
        end_lease(self._place)
        self.store = self._open()

    def abandon(self) -> None:
        for store in (*self._left, self.store):
            store.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_store_in_postgresql_holds_what_a_memory_store_holds(
    seed: int, postgres_dsn: str, fresh_namespace: str
) -> None:
    check_against_memory(PostgresWorld(place(postgres_dsn, fresh_namespace)), seed, STEPS, read_every=8)
