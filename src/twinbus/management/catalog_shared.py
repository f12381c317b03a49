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
from twinbus.errors import ArgumentError, InternalError, StoreUnavailable
from twinbus.management.catalog import Execute
from twinbus.management.catalog_postgres import PostgresCatalog
from twinbus.store.postgres.connection import Connection, in_our_words
from twinbus.store.postgres.lease import take_over
from twinbus.store.postgres.place import CatalogPlace, Owner, server_of
from twinbus.store.postgres.schema import schema_exists, set_search_path


class SharedPostgresCatalog(PostgresCatalog):
    """See `CatalogDatabase`. `all_nodes`: as whom all nodes hold the catalog together. Raises StoreTaken while a process that is no node
    owns it."""

    def __init__(self, place: CatalogPlace, owner: Owner, all_nodes: Owner, store_count: int, now: Millis) -> None:
        self.place = place
        self.allow: Callable[[Execute], None] = lambda _: None
        self._owner = owner
        self._writing = threading.Lock()
        self._reading = threading.RLock()
        self._connection = self._connect()
        try:
            self._prepare(store_count, now)
            if not schema_exists(self._connection, place.schema):
                raise ArgumentError(
                    f"There is no namespace in {place}. Name its servers in the order of the first start."
                )
            set_search_path(self._connection, place.schema)
            self._require_catalog(store_count)
            take_over(self._connection, place, all_nodes)
            self._reader = self._connect()
            set_search_path(self._reader, place.schema)
        except psycopg.Error as error:
            self._connection.close()
            raise in_our_words(error, server_of(place.dsn)) from error
        except BaseException:
            self._connection.close()
            raise

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

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        with self._writing:
            try:
                self._connection = self._usable(self._connection)
                with self._connection.raw.transaction():
                    self.allow(self._execute)
                    yield self._execute
                self._connection.require_no_warning()
            except (psycopg.Error, StoreUnavailable) as fault:
                raise InternalError(
                    f"The catalog could not be written: {' '.join(str(fault).split())} Try again."
                ) from fault

    def _usable(self, connection: Connection) -> Connection:
        if not connection.raw.broken:
            return connection
        connection.close()
        fresh = self._connect()
        set_search_path(fresh, self.place.schema)
        return fresh

    def close(self) -> None:
        self._connection.close()
        self._reader.close()
