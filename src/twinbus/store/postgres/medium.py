"""A schema of a database as the medium of a store: owned by a lease, and by an epoch that fences everyone before.

    hold       the lease is free or ours -> end the connections of the owner before -> raise the epoch -> take the lease
    commit     only under our epoch, whose row it locks (`journal`)
    release    give the lease back

The lease alone is not enough: its owner may be frozen and wake up after it ended. The epoch alone would be: but then a store
would change hands whenever somebody asks.
"""

from contextlib import suppress

import psycopg
from psycopg import sql

from twinbus.clock import boot_time
from twinbus.errors import ArgumentError, StoreDamaged, StoreGone, StoreUnavailable
from twinbus.store import journal_record
from twinbus.store.medium import kept_in_database
from twinbus.store.postgres.connection import Connection, in_our_words
from twinbus.store.postgres.journal import SegmentRows, fenced
from twinbus.store.postgres.lease import NO_RENEWAL, LeaseRenewal, leave, take_over
from twinbus.store.postgres.place import Owner, PostgresPlace, server_of
from twinbus.store.postgres.schema import create_schema, schema_exists, set_search_path
from twinbus.store.postgres.statements import JOURNAL_COUNT, SQL, journal_statement
from twinbus.store.postgres.tables import PostgresTables
from twinbus.store.postgres.watch import PATIENCE, PATIENCE_OF_CHECKPOINTS
from twinbus.store.room import UNKNOWN_SPACE, Space
from twinbus.store.statements import load_schema

SCHEMA_VERSION = 1
ADVICE = "Name the servers with --store in the order of the first start, or restore the database."
TRUNCATE_WAIT = "100ms"
DELETE_WAIT = "10s"
"""For a lock that keeps writers out, which no backup takes."""


class PostgresMedium:
    """See `Medium`. `renewal` keeps the lease alive from `hold` to `release`."""

    def __init__(self, place: PostgresPlace, owner: Owner, renewal: LeaseRenewal = NO_RENEWAL) -> None:
        self._place = place
        self._owner = owner
        self._renewal = renewal
        self._connection: Connection | None = None
        self._retired: list[int] = []  # the tables hold them, and their rows are still there
        self.epoch = 0

    def __str__(self) -> str:
        return str(self._place)

    @property
    def is_new(self) -> bool:
        """A schema is created together with its first segment."""
        return False

    def hold(self) -> None:
        self._connection = connection = self._connect()
        self._create_schema(connection)
        set_search_path(connection, self._place.schema)
        self._require_store(connection)
        before = boot_time()
        self.epoch = take_over(connection, self._place, self._owner)
        self._renewal.start(self._place, self._owner, before)

    def _connect(self, patience: int = PATIENCE) -> Connection:
        return Connection(self._place.dsn, self._owner.application(self._place.schema), patience)

    def _create_schema(self, connection: Connection) -> None:
        place = self._place
        if place.is_created and not schema_exists(connection, place.schema):
            raise StoreGone(f"{self} is missing, and the messaging store has been in use. {ADVICE}")
        facts = (SCHEMA_VERSION, journal_record.VERSION, place.number, place.store_count, place.identity)

        def fill() -> None:
            connection.raw.execute(load_schema("postgres").encode())
            connection.raw.execute(SQL["put_store"], facts)

        create_schema(connection, place.schema, fill)

    def _require_store(self, connection: Connection) -> None:
        version, records, store_count, identity = connection.one(SQL["store"].decode())
        if version > SCHEMA_VERSION or records > journal_record.VERSION:
            raise StoreDamaged(f"{self} was written by a newer release. Open the store with that release.")
        if self._place.identity not in ("", identity):
            raise StoreGone(f"{self} holds another store than the one that has been in use. {ADVICE}")
        if store_count != self._place.store_count:
            raise ArgumentError(
                f"{self} belongs to a namespace of {store_count} messaging stores and cannot be served with "
                f"{self._place.store_count}: use --stores {store_count}."
            )

    def tables(self, cache_bytes: int) -> PostgresTables:
        return PostgresTables(self._open(), self._beside(), self._beside, lambda: self.epoch)

    def _beside(self) -> Connection:
        """A connection for what takes its time."""
        connection = self._connect(PATIENCE_OF_CHECKPOINTS)
        set_search_path(connection, self._place.schema)
        return connection

    def kept_in(self) -> str:
        (is_replicated,) = self._open().one(SQL["is_replicated"].decode())
        return kept_in_database(is_replicated)

    def space(self) -> Space:
        return UNKNOWN_SPACE

    def give_back(self) -> None:
        """Nothing is kept."""

    def is_lack_of_space(self, error: BaseException) -> bool:
        """Only the server could tell, and it ends the transaction whatever it is."""
        return False

    def are_numbers_lost(self) -> bool:
        """Of a database that was restored only its operator knows (`twinbus store restored`)."""
        return False

    def keep(self) -> None:
        """The schema is its own witness."""

    @property
    def last_commit(self) -> int:
        """What is missing at the end only the server could tell."""
        return 0

    def committed(self, sequence: int) -> None:
        """The commit found its epoch, so it is where everybody looks."""

    def segment_numbers(self) -> list[int]:
        return [number for (number,) in self._open().raw.execute(SQL["segments"])]

    def segment_name(self, number: int) -> str:
        return f"{self}, journal segment {number}"

    def create_segment(self, number: int, first_sequence: int) -> SegmentRows:
        connection = self._open()
        self._empty_journals()
        if number - JOURNAL_COUNT in self._retired:
            self._delete_rows(number - JOURNAL_COUNT)
        with connection.transaction():
            self._require_epoch(connection)
            connection.raw.execute(SQL["put_segment"], (number, first_sequence))
        connection.require_no_warning()
        return SegmentRows(self, connection, number, first_sequence)

    def open_segment(self, number: int) -> SegmentRows:
        connection = self._open()
        (first_sequence,) = connection.one(SQL["first_sequence"].decode(), number)
        return SegmentRows(self, connection, number, first_sequence)

    def delete_segment(self, number: int) -> None:
        self.retire_segment(number)

    def retire_segment(self, number: int) -> None:
        """Its rows go as soon as nobody reads them, as a backup may: the journal is needed two segments later."""
        self._retired.append(number)
        self._empty_journals()

    def _empty_journals(self) -> None:
        for number in list(self._retired):
            try:
                self._forget_segment(number, TRUNCATE_WAIT, "truncate")
            except psycopg.errors.LockNotAvailable:
                return

    def _delete_rows(self, number: int) -> None:
        """Its journal is needed, and a backup that takes an hour still has it: what is deleted can go on being read. The space comes
        back when the journal is emptied the next time."""
        self._forget_segment(number, DELETE_WAIT, "delete_rows", number)

    def _forget_segment(self, number: int, wait: str, statement: str, *parameters: int) -> None:
        connection = self._open()
        with connection.transaction():
            self._require_epoch(connection)
            connection.raw.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(wait)))
            connection.raw.execute(SQL["delete_segment"], (number,))
            connection.raw.execute(journal_statement(statement, number), parameters or None)
        self._retired.remove(number)

    def _require_epoch(self, connection: Connection) -> None:
        if connection.raw.execute(SQL["require_epoch"], (self.epoch,)).fetchone() is None:
            raise fenced(str(self))

    def failure(self, error: Exception) -> StoreUnavailable | None:
        return in_our_words(error, server_of(self._place.dsn)) if isinstance(error, psycopg.Error) else None

    def release(self) -> None:
        self._renewal.stop(self._place)
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with suppress(psycopg.Error):
            leave(connection, self._place, self._owner)
        connection.close()

    def _open(self) -> Connection:
        assert self._connection is not None
        return self._connection
