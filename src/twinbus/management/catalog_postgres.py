"""A catalog in a schema of a PostgreSQL database, owned by one process at a time as a messaging store is.

One process serves a namespace, so nobody else changes its catalog: the owner answers from memory, and a successor reads it all
when it takes over. Every change is made under the epoch that the owner took it with.
"""

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.resources import files
from typing import Any

import psycopg

from twinbus.clock import Millis, boot_time
from twinbus.errors import ArgumentError, InternalError, StoreDamaged, StoreUnavailable
from twinbus.management.catalog import Execute
from twinbus.store.postgres.connection import Connection, in_our_words
from twinbus.store.postgres.lease import END_S, NO_RENEWAL, LeaseRenewal, give_back, take_over
from twinbus.store.postgres.place import CatalogPlace, Owner, PostgresPlace, server_of
from twinbus.store.postgres.schema import create_schema, schema_exists, set_search_path
from twinbus.store.postgres.statements import SQL

VERSION = 1
PUT_CATALOG = "INSERT INTO catalog (version, store_count) VALUES (%s, %s)"
CATALOG = "SELECT version, store_count FROM catalog"
PUT_STORE = "INSERT INTO stores (number, identity) VALUES (%s, %s)"
STORES = "SELECT number, identity, is_created FROM stores ORDER BY number"
MARK_CREATED = "UPDATE stores SET is_created = TRUE WHERE number = ?"
CREATE_COPY = "CREATE TABLE IF NOT EXISTS copy (one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), mark TEXT NOT NULL)"
HAS_COPY = "SELECT to_regclass('copy') IS NOT NULL"
COPY = "SELECT mark FROM copy"
SET_COPY = "INSERT INTO copy (mark) VALUES (?) ON CONFLICT (one) DO UPDATE SET mark = excluded.mark"
DROP_COPY = "DROP TABLE IF EXISTS copy"
PUT_NAMESPACE = "INSERT INTO namespace (name, created_at, modified_at, last_entity_id) VALUES (%s, %s, %s, 0)"


def first_place(dsns: Sequence[str], namespace: str, owner: Owner) -> CatalogPlace:
    """The catalog is in the first of its databases. Raises ArgumentError if it is in another one of them, where it would not be looked
    for, and StoreUnavailable if the first one cannot be looked at."""
    place = CatalogPlace(dsns[0], namespace)
    if len(dsns) == 1 or _exists(place, owner):
        return place
    for other in (CatalogPlace(dsn, namespace) for dsn in dsns[1:]):
        with suppress(StoreUnavailable):
            if _exists(other, owner):
                raise ArgumentError(
                    f"The catalog of the namespace is in {other}. Name its servers with --store in the order of the first start."
                )
    return place


def _exists(place: CatalogPlace, owner: Owner) -> bool:
    connection = Connection(place.dsn, owner.application(place.schema))
    try:
        return schema_exists(connection, place.schema)
    except psycopg.Error as error:
        raise in_our_words(error, server_of(place.dsn)) from error
    finally:
        connection.close()


class PostgresCatalog:
    """See `CatalogDatabase`. Raises StoreTaken while another process owns it.

    Without `store_count` it has to exist, and is taken as it is.
    """

    is_shared = False

    def __init__(
        self,
        place: CatalogPlace,
        owner: Owner,
        store_count: int | None,
        now: Millis,
        renewal: LeaseRenewal = NO_RENEWAL,
    ) -> None:
        self._renewal = renewal
        self._epoch = 0
        self._open(place, owner, store_count, now)

    def _open(self, place: CatalogPlace, owner: Owner, store_count: int | None, now: Millis) -> None:
        self.place = place
        self._owner = owner
        self._writing = threading.Lock()
        self._connection = self._connect()
        try:
            if store_count is not None:
                self._prepare(store_count, now)
            elif not schema_exists(self._connection, place.schema):
                raise ArgumentError(
                    f"There is no namespace in {place}. Name its servers in the order of the first start."
                )
            set_search_path(self._connection, place.schema)
            self._require_catalog(store_count)
            self._hold()
        except psycopg.Error as error:
            self._connection.close()
            raise in_our_words(error, server_of(place.dsn)) from error
        except BaseException:
            self._connection.close()
            raise

    def _hold(self) -> None:
        before = boot_time()
        self._epoch = take_over(self._connection, self.place, self._owner)
        self._renewal.start(self.place, self._owner, before)

    def _connect(self) -> Connection:
        return Connection(self.place.dsn, self._owner.application(self.place.schema))

    def _prepare(self, store_count: int, now: Millis) -> None:
        def fill() -> None:
            raw = self._connection.raw
            raw.execute(files("twinbus.management").joinpath("sql", "catalog_postgres.sql").read_bytes())
            raw.execute(PUT_CATALOG, (VERSION, store_count))
            raw.execute(PUT_NAMESPACE, (self.place.namespace, now, now))
            for number in range(store_count):
                raw.execute(PUT_STORE, (number, secrets.token_hex(16)))

        create_schema(self._connection, self.place.schema, fill)

    def _require_catalog(self, store_count: int | None) -> None:
        version, known_count = self._connection.one(CATALOG)
        if version > VERSION:
            raise StoreDamaged(f"{self.place} was written by a newer release. Use the release that wrote it.")
        if store_count not in (None, known_count):
            raise ArgumentError(
                f"The namespace in {self.place} has {known_count} messaging stores and cannot be served with "
                f"{store_count}: use --stores {known_count}."
            )

    def places(self, dsns: Sequence[str]) -> list[PostgresPlace]:
        """Where the messaging stores are: one after the other in the databases given."""
        stores = self.rows(STORES)
        return [
            PostgresPlace(dsns[number % len(dsns)], self.place.namespace, number, len(stores), identity, is_created)
            for number, identity, is_created in stores
        ]

    def mark_created(self, number: int) -> None:
        """The store is open: from now on it must be found. Raises InternalError."""
        with self.transaction() as execute:
            execute(MARK_CREATED, (number,))

    def copy_mark(self) -> str | None:
        """Of a namespace that was copied (`twinbus.server.data.copy_marks`)."""
        return self.rows(COPY)[0][0] if self.rows(HAS_COPY)[0][0] else None

    def set_copy_mark(self, text: str | None) -> None:
        with self.transaction() as execute:
            if text is None:
                execute(DROP_COPY, ())
            else:
                execute(CREATE_COPY, ())
                execute(SET_COPY, (text,))

    def snapshot(self) -> AbstractContextManager[None]:
        """This process alone writes it."""
        return nullcontext()

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._execute(statement, values)
        except psycopg.Error as error:
            raise in_our_words(error, server_of(self.place.dsn)) from error

    @contextmanager
    def transaction(self) -> Iterator[Execute]:
        with self._writing:
            try:
                self._connection = self._usable(self._connection)
                with self._connection.raw.transaction():
                    self._require_right()
                    yield self._execute
                self._connection.require_no_warning()
            except (psycopg.Error, StoreUnavailable) as fault:
                raise InternalError(
                    f"The catalog could not be written: {' '.join(str(fault).split())} Try again."
                ) from fault

    def _require_right(self) -> None:
        """To change it, in this transaction."""
        if self._connection.raw.execute(SQL["require_epoch"], (self._epoch,)).fetchone() is None:
            raise InternalError("Another process serves this namespace by now. Connect again.")

    def _usable(self, connection: Connection) -> Connection:
        if not connection.raw.broken:
            return connection
        connection.close()
        fresh = self._connect()
        set_search_path(fresh, self.place.schema)
        return fresh

    def _execute(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        cursor = self._connection.raw.execute(statement.replace("?", "%s").encode(), values)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Takes no longer than END_S: a database that hangs does not keep the process from ending."""
        self._renewal.stop(self.place)
        ending = threading.Thread(target=self._end, name="catalog-end", daemon=True)
        ending.start()
        ending.join(END_S)

    def _end(self) -> None:
        with self._writing:
            with suppress(psycopg.Error):
                give_back(self._connection, self.place, self._owner)
            self._connection.close()
