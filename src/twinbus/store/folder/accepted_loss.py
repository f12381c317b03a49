"""A damaged folder whose loss was accepted in; a folder that opens out, and what did not fit in a folder beside it.

What can be used stays: tables that pass their check, or the rows of others that can still be read (`salvage`), and of the
journal every batch up to the first that is damaged or missing. Files that go, and those that are cut, are in `set-aside-N` as
they were found.

Salvaged tables are made in a folder of their own, which gets its name when they are whole. Then the damaged ones go, and from then
on the salvaged ones are what the store goes on with, also if the process ends before they are in place: the next one finds no
tables, and takes them. If it finds tables, they may be others, which somebody has put there since: it begins anew.

Clients may hold the numbers of messages that go with a part of the journal, so no message may get them again: that there are some
is noted before.
"""

import logging
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from twinbus.errors import StoreDamaged
from twinbus.store.folder.journal import (
    SegmentFile,
    give_to_owner,
    make_folder,
    segment_numbers,
    segment_path,
    sync_folder,
)
from twinbus.store.folder.salvage import salvage
from twinbus.store.folder.table_check import check_tables, check_whole_file
from twinbus.store.folder.tables import FILE_NAME, SQL, bring_home, connect, prepare
from twinbus.store.layers.recovery import FIRST_SEQUENCE

KEPT_NAMES = ("lock", "identity")
SET_ASIDE_NAME = "set-aside"
SALVAGING_NAME = "salvaging"
SALVAGED_NAME = "salvaged"
CACHE_BYTES = 1 << 20

log = logging.getLogger(__name__)


def go_on_without(folder: Path, note_lost_numbers: Callable[[], None] = lambda: None, last_commit: int = 0) -> None:
    """Only while the folder is locked. Afterwards nothing that is left in it is damaged, contents of messages aside. `last_commit`: as far
    as the witness knows."""
    position = _usable_position(folder)
    if position is None:
        position = _salvaged_position(folder)
    shutil.rmtree(folder / SALVAGED_NAME, ignore_errors=True)
    if position is None:
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.name not in KEPT_NAMES:
                _put_aside(path)
        return
    _cut_journal(folder, position, note_lost_numbers, last_commit)
    sync_folder(folder)


def _usable_position(folder: Path) -> int | None:
    """Up to which segment the tables hold the journal, with accepted damage; None if the tables cannot be used."""
    if not (folder / FILE_NAME).exists():
        return None
    connection: sqlite3.Connection | None = None
    try:
        connection = connect(folder, CACHE_BYTES)
        prepare(connection, folder)
        bring_home(connection, folder)
        check_tables(connection, folder)
        if findings := check_whole_file(connection):
            raise StoreDamaged(f"{folder / FILE_NAME} is damaged: {findings[0]}")
        connection.execute(SQL["accept_damage"])
        position: int = connection.execute(SQL["journal_row"]).fetchone()[0]
    except (StoreDamaged, sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
            raise
        log.error("tables_set_aside", extra={"fields": {"file": str(folder / FILE_NAME), "reason": str(error)}})
        return None
    finally:
        if connection is not None:
            connection.close()
    return position


def _salvaged_position(folder: Path) -> int | None:
    """Tables with what can still be read take the place of those that cannot be used; None if there is nothing to start from."""
    salvaged = folder / SALVAGED_NAME / FILE_NAME
    if (not salvaged.exists() or (folder / FILE_NAME).exists()) and not _salvage(folder):
        return None
    # The first one that goes is the file of the tables itself: with others missing it would be an older state of them.
    for path in sorted(folder.glob(f"{FILE_NAME}*")):
        _put_aside(path)
    salvaged.rename(folder / FILE_NAME)
    sync_folder(folder)
    log.error("tables_salvaged", extra={"fields": {"file": str(folder / FILE_NAME)}})
    return _usable_position(folder)


def _salvage(folder: Path) -> bool:
    """Whether there are salvaged tables now, whole and durable."""
    if not (folder / FILE_NAME).exists():
        return False
    draft = folder / SALVAGING_NAME
    shutil.rmtree(draft, ignore_errors=True)
    make_folder(draft)
    try:
        salvage(folder, draft)
    except StoreDamaged as error:
        log.error("tables_not_salvaged", extra={"fields": {"file": str(folder / FILE_NAME), "reason": str(error)}})
        shutil.rmtree(draft, ignore_errors=True)
        return False
    sync_folder(draft)
    shutil.rmtree(folder / SALVAGED_NAME, ignore_errors=True)
    draft.rename(folder / SALVAGED_NAME)
    sync_folder(folder)
    return True


def _cut_journal(folder: Path, position: int, note_lost_numbers: Callable[[], None], last_commit: int) -> None:
    expected = position + 1
    sequence: int | None = None
    for number in [number for number in segment_numbers(folder) if number > position]:
        path = segment_path(folder, number)
        if number != expected:
            note_lost_numbers()
            _put_aside(path)
            continue
        try:
            segment = SegmentFile.open(folder, number)
        except StoreDamaged:
            segment = None
        if segment is None or (sequence is not None and segment.next_sequence != sequence):
            if segment is not None:
                segment.close()
            note_lost_numbers()
            _put_aside(path)
            continue
        try:
            for _ in segment.batches():
                pass
            expected, sequence = number + 1, segment.next_sequence
        except StoreDamaged:
            # What follows cannot be applied without what is lost here.
            expected = 0
            note_lost_numbers()
            _put_aside_copy(path)
            os.truncate(path, segment.end)
        finally:
            segment.close()
    if sequence is not None and sequence <= last_commit:
        note_lost_numbers()
    if not any(number > position for number in segment_numbers(folder)):
        note_lost_numbers()
        SegmentFile.create(folder, position + 1, FIRST_SEQUENCE).close()


def _put_aside(path: Path) -> None:
    place = _place(path)
    path.rename(place)
    _log(path, place)


def _put_aside_copy(path: Path) -> None:
    place = _place(path)
    shutil.copy2(path, place)
    give_to_owner(place, path.parent)
    _log(path, place)


def _place(path: Path) -> Path:
    """In a folder of its own for each loss, so that no file takes the place of another."""
    number = 1
    while (place := path.parent / f"{SET_ASIDE_NAME}-{number}" / path.name).exists():
        number += 1
    make_folder(place.parent)
    return place


def _log(path: Path, place: Path) -> None:
    log.error("file_set_aside", extra={"fields": {"file": str(path), "to": str(place)}})
