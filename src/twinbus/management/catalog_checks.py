"""Checksums of the catalog: a connection in; rows that are checked, sums that are kept, and damage with its place out.

Every row has a checksum (twinbus.store.checksums), which triggers keep; the one row of `namespace` has the sum of all of them,
the number of the last change and a checksum of its own. A change that was made is also counted in a mark beside the file
(`twinbus.store.folder.commit_mark`): if the catalog knows fewer changes than the mark, those are lost, as when the disk damaged its log.

Damage in the catalog is refused as a whole. Without one rule a subscription would miss messages, without one entity others
would be created in its place.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from twinbus.store.checksums import values_sum

VERSION: Final = 1
MARK_SUFFIX: Final = "-mark"

KEYS: Final = {"entities": "id", "rules": "position", "access_rules": "key"}
FACTS: Final = {
    "entities": "id, created_at, updated_at, coalesce(first_store, -1), key, kind, description",
    "rules": "position, subscription, key, description",
    "access_rules": "length(key), key, description",
}
"""What the checksum of a row covers: integers, then texts."""

NAMESPACE_FACTS: Final = "created_at, modified_at, last_entity_id, row_sums, version, schema_sum, name"
ADD_CHECKSUM: Final = "ALTER TABLE {table} ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;"
ADD_SUMS: Final = """
ALTER TABLE namespace ADD COLUMN row_sums INTEGER NOT NULL DEFAULT 0;
ALTER TABLE namespace ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE namespace ADD COLUMN schema_sum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE namespace ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
"""
TRIGGERS: Final = """
CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN
    UPDATE {table} SET checksum = values_sum({facts}) WHERE {key} = NEW.{key};
END;
CREATE TRIGGER {table}_changed AFTER UPDATE OF description ON {table} BEGIN
    UPDATE {table} SET checksum = values_sum({facts}) WHERE {key} = NEW.{key};
END;
CREATE TRIGGER {table}_summed AFTER UPDATE OF checksum ON {table} BEGIN
    UPDATE namespace SET row_sums = row_sums + NEW.checksum - OLD.checksum;
END;
CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN
    UPDATE namespace SET row_sums = row_sums - OLD.checksum;
END;
"""
FILL: Final = "UPDATE {table} SET checksum = values_sum({facts});"
SCHEMA_TEXTS: Final = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name"
SET_SCHEMA_SUM: Final = "UPDATE namespace SET schema_sum = ?"
NEXT_VERSION: Final = "UPDATE namespace SET version = version + 1"
SEAL: Final = f"UPDATE namespace SET checksum = values_sum({NAMESPACE_FACTS}) RETURNING version"


def add_checksums() -> str:
    """SQL that gives the tables of a catalog without checksums some."""
    parts = [ADD_SUMS]
    for table, key in KEYS.items():
        names = {"table": table, "key": key, "facts": FACTS[table]}
        parts += [text.format(**names) for text in (ADD_CHECKSUM, TRIGGERS, FILL)]
    return "\n".join([*parts, f"PRAGMA user_version = {VERSION};"])


def statements_of(script: str) -> Iterator[str]:
    """One by one, since a script ends the transaction that it is run in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def seal(connection: sqlite3.Connection) -> int:
    """The last step of every transaction. Returns the number of the change."""
    connection.execute(NEXT_VERSION)
    ((version,),) = connection.execute(SEAL).fetchall()
    return int(version)


def seal_schema(connection: sqlite3.Connection) -> None:
    connection.execute(SET_SCHEMA_SUM, (_schema_sum(connection),))


def find_damage(connection: sqlite3.Connection, changes: int) -> Iterator[str]:
    """`changes`: as many as the mark knows of."""
    for (text,) in connection.execute("PRAGMA integrity_check"):
        if text != "ok":
            yield text
    rows = connection.execute(f"SELECT {NAMESPACE_FACTS}, checksum FROM namespace").fetchall()
    if len(rows) != 1 or _sum_of(rows[0][:-1]) != rows[0][-1]:
        yield "the facts of the namespace are not what was written"
        return
    _, _, _, row_sums, version, schema_sum, _, _ = rows[0]
    if schema_sum != _schema_sum(connection):
        yield "its schema is not what was written"
    total = 0
    for table, key in KEYS.items():
        for identity, checksum, *facts in connection.execute(f"SELECT {key}, checksum, {FACTS[table]} FROM {table}"):
            if _sum_of(tuple(facts)) != checksum:
                yield f"row {identity} of its table {table} is not what was written"
            total += checksum if isinstance(checksum, int) else 0
    if total != row_sums:
        yield "rows are missing"
    if changes > version:
        yield (
            f"its last {changes - version} changes are missing (if this is an older copy that you restored, run "
            "'twinbus store restored')"
        )


def _sum_of(facts: tuple[object, ...]) -> int | None:
    try:
        return values_sum(*facts)
    except (ValueError, TypeError, KeyError):
        return None


def _schema_sum(connection: sqlite3.Connection) -> int:
    return values_sum(*[text for (text,) in connection.execute(SCHEMA_TEXTS)])


def mark_of(catalog: Path) -> Path:
    return catalog.with_name(catalog.name + MARK_SUFFIX)
