"""A copy of a store that is in use, by another process: a folder in, a folder with everything up to one commit out.

A checkpoint is one transaction that writes what a segment adds up to and the segment's number, and leaves out what was removed
in later segments. So a state of the tables needs those segments at least as far as they went when it was written. It is held
by a transaction, the later segments are copied, and then the tables, which may take long, as they were in that transaction.
If a checkpoint has ended while segments were copied, one of them may have been retired: then all of it begins again.

A batch that is being appended may be in the copy in part, as after a crash: it is cut off, and was not acknowledged yet.
"""

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from twinbus.errors import StoreDamaged, StoreUnavailable
from twinbus.store.folder.identity import IDENTITY_NAME, StoreIdentity
from twinbus.store.folder.journal import (
    NAME_PREFIX,
    SegmentFile,
    make_folder,
    segment_numbers,
    segment_path,
    sync_folder,
)
from twinbus.store.folder.tables import FILE_NAME

TRIES_MAX = 100
OWNER_ONLY = 0o600


def copy_store(source: Path, target: Path, witness: Path | None = None) -> None:
    """`target` is a new folder. Raises StoreGone if there was a store that is not in `source`, and StoreUnavailable if the store
    cannot be copied."""
    identity = StoreIdentity(source, witness)
    identity.require()
    make_folder(target)
    if identity.holds_nothing:
        return
    reason: Exception | None = None
    for _ in range(TRIES_MAX):
        try:
            if _copied(source, target):
                return
        except (FileNotFoundError, StoreDamaged, sqlite3.Error) as fault:
            # A segment was retired, or is being appended to, while it was read.
            reason = fault
        for leftover in target.iterdir():
            leftover.unlink()
    raise StoreUnavailable(f"The messaging store in {source} cannot be copied: {reason or 'it changes too fast'}.")


def copy_bytes_max(source: Path) -> int:
    """What a copy of the store takes, or a little more: of a segment nobody knows where its batches end, and what is in SQLite's log
    may be in the tables already."""
    return bytes_of(source, FILE_NAME, NAME_PREFIX)


def bytes_of(folder: Path, *prefixes: str) -> int:
    """Of all files there whose names begin so."""
    size = 0
    for file in folder.iterdir() if folder.is_dir() else ():
        if file.name.startswith(prefixes):
            with suppress(FileNotFoundError):  # its owner has removed it meanwhile
                size += file.stat().st_size
    return size


def copy_database(source: Path, target: Path) -> None:
    """One consistent state of a SQLite file that others write, durable."""
    try:
        with closing(_existing(source)) as live:
            _copy_state(live, target)
    except sqlite3.Error as fault:
        raise StoreUnavailable(f"{source} cannot be copied: {fault}.") from fault


def _existing(file: Path) -> sqlite3.Connection:
    """SQLite would create a file that is missing: somebody else would take it for one that has nothing in it."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)


def _copy_state(source: sqlite3.Connection, target: Path) -> None:
    """What this connection sees."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    with closing(sqlite3.connect(target)) as copy:
        source.execute("PRAGMA query_only = ON")
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")
    sync_file(target)


def copy_file(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(OWNER_ONLY)
    sync_file(target)


def sync_file(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copied(source: Path, target: Path) -> bool:
    with closing(_existing(source / FILE_NAME)) as held, closing(_existing(source / FILE_NAME)) as live:
        held.execute("BEGIN")
        position = _position(held)
        numbers = [number for number in segment_numbers(source) if number > position]
        for number in numbers:
            shutil.copyfile(segment_path(source, number), segment_path(target, number))
        if not numbers or _position(live) != position:
            return False
        for number in numbers:
            _cut(target, number)
        try:
            _copy_state(held, target / FILE_NAME)
        except sqlite3.Error as fault:
            # What is held does not change any more. So it is the disk, and it would be no better the next time.
            raise StoreUnavailable(f"The messaging store in {source} cannot be copied: {fault}.") from fault
    if (source / IDENTITY_NAME).exists():  # earlier versions kept none
        copy_file(source / IDENTITY_NAME, target / IDENTITY_NAME)
    sync_folder(target)
    return True


def _position(tables: sqlite3.Connection) -> int:
    """The newest segment that they hold; of tables of every version."""
    position: int = tables.execute("SELECT position FROM journal").fetchone()[0]
    return position


def _cut(folder: Path, number: int) -> None:
    """At the end of its last whole batch. Raises StoreDamaged if the copy cannot be one of a journal at one moment."""
    path = segment_path(folder, number)
    segment = SegmentFile.open(folder, number)
    if segment is not None:
        try:
            for _ in segment.batches():
                pass
            os.truncate(path, segment.end)
        finally:
            segment.close()
    path.chmod(OWNER_ONLY)
    sync_file(path)
