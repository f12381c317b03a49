"""Everything in the folder of a store that is not in use, checked: a folder in, damage with file and place out.

Nothing is repaired or set aside. The tables are opened, so that SQLite brings what its log holds into them.
"""

import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from twinbus.errors import MessagingError
from twinbus.store.damage import Damage
from twinbus.store.folder.identity import StoreIdentity
from twinbus.store.folder.medium import FolderMedium, lock_folder, unlock_folder
from twinbus.store.folder.table_check import check_facts, check_rows, check_whole_file, damage_in, place_of
from twinbus.store.folder.tables import FILE_NAME, SCHEMA_VERSION, SQL, connect
from twinbus.store.layers.recovery import check_segments

CACHE_BYTES = 4 << 20


def check_folder(folder: Path, witness: Path | None, *, with_set_aside: bool = True) -> list[Damage]:
    """Raises StoreInUse while a process has it open. What was set aside before is damage, but keeps no store from being served: leave it
    out to know whether this one can be."""
    try:
        return _checked(folder, witness, with_set_aside)
    except OSError as fault:
        if fault.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # which says nothing about the folder
        return [Damage(str(fault.filename or folder), "the file", f"it cannot be read: {fault.strerror}")]


def _checked(folder: Path, witness: Path | None, with_set_aside: bool) -> list[Damage]:
    identity = StoreIdentity(folder, witness)
    try:
        identity.require()
    except MessagingError as gone:
        return [Damage(str(folder), "the folder", str(gone))]
    if not (folder / FILE_NAME).exists():
        return []  # it was never opened
    lock = lock_folder(folder)
    try:
        return list(_check(folder, identity, with_set_aside))
    finally:
        unlock_folder(lock)


def _check(folder: Path, identity: StoreIdentity, with_set_aside: bool) -> Iterator[Damage]:
    file = str(folder / FILE_NAME)
    connection: sqlite3.Connection | None = None
    try:
        connection = connect(folder, CACHE_BYTES)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA_VERSION:
            yield Damage(file, f"schema version {version}", "it has no checksums yet: serve the namespace once")
            return
        yield from (Damage(file, "its structure", text) for text in check_whole_file(connection))
        yield from (Damage(file, "its facts", text) for text in check_facts(connection, folder))
        for each in damage_in(connection) if with_set_aside else ():
            yield Damage(file, each.place, f"set aside before: {each.what}")
        after: int | None = -1
        while after is not None:
            page = check_rows(connection, after)
            for where in page.damaged:
                yield Damage(file, place_of(connection, where), "it is not what was written")
            after = page.next_id
        journal_row = connection.execute(SQL["journal_row"]).fetchone()
        if journal_row is None:
            return  # which is among the facts; how far the journal was read is not known
        medium, position = FolderMedium(folder), journal_row[0]
        wrong = check_segments(medium, position, identity.last_commit, is_new=identity.is_new)
        yield from (Damage(str(folder), "the journal", text) for text in wrong)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        yield Damage(file, "the file", str(error))
    finally:
        if connection is not None:
            connection.close()
