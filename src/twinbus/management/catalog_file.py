"""A catalog in a small SQLite file of its own.

Every row is checked when the file is opened (`catalog_checks`): a catalog that the disk damaged is refused.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from twinbus.clock import Millis
from twinbus.errors import InternalError
from twinbus.management.catalog_checks import (
    VERSION,
    add_checksums,
    find_damage,
    mark_of,
    seal,
    seal_schema,
    statements_of,
)
from twinbus.store.checksums import values_sum
from twinbus.store.folder.commit_mark import CommitMark
from twinbus.store.folder.private_file import make_private

SCHEMA = """
CREATE TABLE IF NOT EXISTS namespace (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    modified_at INTEGER NOT NULL,
    last_entity_id INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS entities (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    description TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    first_store INTEGER
);
CREATE TABLE IF NOT EXISTS rules (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription INTEGER NOT NULL REFERENCES entities (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    description TEXT NOT NULL,
    UNIQUE (subscription, key)
);
CREATE TABLE IF NOT EXISTS access_rules (
    key TEXT PRIMARY KEY,
    description TEXT NOT NULL
);
"""
IS_THERE = "SELECT 1 FROM sqlite_master WHERE name = 'namespace'"
# Catalogs that were created before it was kept have no such column.
ENTITY_COLUMNS = "SELECT name FROM pragma_table_info('entities')"
ADD_FIRST_STORE = "ALTER TABLE entities ADD COLUMN first_store INTEGER"
FIRST_NAMESPACE = (
    "INSERT INTO namespace (only_row, name, created_at, modified_at, last_entity_id) VALUES (1, ?, ?, ?, 0) "
    "ON CONFLICT DO NOTHING"
)


class CatalogFile:
    """See `CatalogDatabase`."""

    is_shared = False

    def __init__(
        self, path: Path, namespace: str, now: Millis, *, was_in_use: bool = False, is_taken_back: bool = False
    ) -> None:
        """Open the file, or create it unless it `was_in_use`. Raises InternalError. `is_taken_back`: it may be older than its mark says, until
        the first change."""
        self._path = path
        self._writing = threading.Lock()
        if was_in_use and not path.exists():
            raise self._gone()
        try:
            make_private(path)
            with (
                ExitStack() as opened
            ):  # a catalog that is refused may be put back in its place, and must not be written to then
                self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
                opened.callback(self._database.close)
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = FULL")
                self._database.execute("PRAGMA foreign_keys = ON")
                self._database.execute("PRAGMA trusted_schema = ON")
                self._database.create_function("values_sum", -1, values_sum, deterministic=True)
                # What is not UTF-8 is damage, which its checksum tells.
                self._database.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
                self._mark = CommitMark(mark_of(path))
                opened.callback(self._mark.close)
                self._prepare(namespace, now, was_in_use)
                with self._one_moment():
                    for damage in find_damage(self._database, 0 if is_taken_back else self._mark.number):
                        raise self.damage(damage)
                opened.pop_all()
        except (sqlite3.Error, OSError, UnicodeDecodeError) as fault:  # an error may quote what is damaged
            raise InternalError(f"The catalog {path} cannot be opened: {fault}. Check the data folder.") from fault

    def _prepare(self, namespace: str, now: Millis, was_in_use: bool) -> None:
        """Create the tables in a new file, give those of an older version checksums, refuse those of a newer one."""
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise InternalError(
                f"The catalog {self._path} has version {version}, this twinbus reads {VERSION}. Use the release that wrote it."
            )
        if was_in_use and version == 0 and not self._database.execute(IS_THERE).fetchall():
            raise self._gone()
        if version < VERSION:
            self._database.executescript("BEGIN IMMEDIATE;" + SCHEMA)
            if ("first_store",) not in self._database.execute(ENTITY_COLUMNS).fetchall():
                self._database.execute(ADD_FIRST_STORE)
            self._database.execute(FIRST_NAMESPACE, (namespace, now, now))
            for statement in statements_of(add_checksums()):
                self._database.execute(statement)
            seal_schema(self._database)
            seal(self._database)
            self._database.execute("COMMIT")

    def _gone(self) -> InternalError:
        return InternalError(
            f"The catalog {self._path} is missing or empty, and the namespace has been in use. Restore the file from a copy, or move the "
            "data folder away for a new namespace."
        )

    def damage(self, what: str) -> InternalError:
        return InternalError(f"The catalog {self._path} is damaged: {what}. Restore the file from a copy.")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What is read inside is of one moment, although another process may change the catalog meanwhile. Raises InternalError."""
        try:
            with self._one_moment():
                yield
        except sqlite3.Error as fault:
            raise InternalError(f"The catalog {self._path} cannot be read: {fault}. Try again.") from fault

    @contextmanager
    def _one_moment(self) -> Iterator[None]:
        with self._writing:
            self._database.execute("BEGIN")
            try:
                yield
            finally:
                self._database.rollback()

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._database.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[Callable[[str, Sequence[object]], list[tuple[Any, ...]]]]:
        with self._writing:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                try:
                    yield self._execute
                    version = seal(self._database)
                    self._database.execute("COMMIT")
                    self._mark.set(version)
                finally:
                    # Also after a COMMIT that failed, which leaves the transaction open.
                    if self._database.in_transaction:
                        self._database.rollback()
            except sqlite3.Error as fault:
                raise InternalError(f"The catalog could not be written: {fault}. Nothing was changed.") from fault

    def _execute(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        return self._database.execute(statement, values).fetchall()

    def close(self) -> None:
        with self._writing:
            self._database.close()
            self._mark.close()
