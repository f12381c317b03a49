"""A catalog in PostgreSQL that all nodes of a namespace change, each in the turn of a name; the others follow what they are told.

What is read has a connection of its own, so that it never sees a change that is not complete. Every change is made only while `allow`
says that this node may make one.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from twinbus.clock import Millis
from twinbus.errors import InternalError, StoreUnavailable
from twinbus.management.catalog import Execute
from twinbus.management.catalog_postgres import PostgresCatalog
from twinbus.store.postgres.connection import in_our_words
from twinbus.store.postgres.lease import take_over
from twinbus.store.postgres.place import CatalogPlace, Owner, server_of
from twinbus.store.postgres.schema import set_search_path


class SharedPostgresCatalog(PostgresCatalog):
    """See `CatalogDatabase`. `all_nodes`: as whom all nodes hold the catalog together. Raises StoreTaken while a process that is no node
    owns it."""

    is_shared = True

    def __init__(self, place: CatalogPlace, owner: Owner, all_nodes: Owner, store_count: int, now: Millis) -> None:
        self.allow: Callable[[Execute], None] = lambda _: None
        self._all_nodes = all_nodes
        self._reading = threading.RLock()
        self._open(place, owner, store_count, now)

    def _hold(self) -> None:
        take_over(self._connection, self.place, self._all_nodes)
        self._reader = self._connect()
        set_search_path(self._reader, self.place.schema)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One thread at a time. Raises InternalError if the database cannot be read."""
        with self._reading:
            try:
                self._reader = self._usable(self._reader)
                with self._reader.raw.transaction():
                    self._reader.raw.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                    yield
            except (psycopg.Error, StoreUnavailable) as fault:
                raise InternalError(f"The catalog cannot be read: {' '.join(str(fault).split())} Try again.") from fault

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._reading:
            try:
                cursor = self._reader.raw.execute(statement.replace("?", "%s").encode(), values)
                return cursor.fetchall() if cursor.description else []
            except psycopg.Error as error:
                raise in_our_words(error, server_of(self.place.dsn)) from error

    def _require_right(self) -> None:
        self.allow(self._execute)

    def close(self) -> None:
        self._connection.close()
        self._reader.close()
