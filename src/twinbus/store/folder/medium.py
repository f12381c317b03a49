"""A folder as the medium of a store: the lock is a file lock, segments are files, the tables are SQLite."""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path

from twinbus.errors import StoreDamaged, StoreInUse, StoreUnavailable
from twinbus.store.changes import FragmentKey
from twinbus.store.damage import CheckedPage, Damage, RowsDamaged
from twinbus.store.folder.accepted_loss import go_on_without
from twinbus.store.folder.checkpoint import empty_log, give_back_space, is_large, write_checkpoint
from twinbus.store.folder.commit_mark import CommitMark
from twinbus.store.folder.disk_space import space_of
from twinbus.store.folder.identity import StoreIdentity
from twinbus.store.folder.journal import (
    SPARE_NAME,
    SegmentFile,
    give_to_owner,
    make_folder,
    segment_numbers,
    segment_path,
)
from twinbus.store.folder.steady_writes import SteadyWrites
from twinbus.store.folder.table_check import check_rows, check_tables, damage_in, set_aside
from twinbus.store.folder.tables import (
    FILE_NAME,
    Snapshot,
    TablesFile,
    bring_home,
    connect,
    prepare,
    snapshot,
)
from twinbus.store.layers.overlay import Layer
from twinbus.store.layers.pace import Pace
from twinbus.store.room import Space

LOCK_NAME = "lock"
FROZEN_CACHE_BYTES = 1 << 20


class FolderMedium:
    """See `Medium`. `witness` is a file outside of the folder that knows whether there was a store (`identity`). `is_taken_back`: it may
    have fewer commits than its witness knows of, and the witness is told of no others."""

    def __init__(self, folder: Path, witness: Path | None = None, *, is_taken_back: bool = False) -> None:
        self._folder = folder
        self._witness = witness
        self._is_taken_back = is_taken_back
        self._identity: StoreIdentity | None = None
        self._had_tables = False
        self._lock = -1
        self._mark: CommitMark | None = None

    def __str__(self) -> str:
        return str(self._folder)

    @property
    def is_new(self) -> bool:
        return self._identity is not None and (self._identity.is_new or not self._had_tables)

    def hold(self) -> None:
        self._identity = identity = StoreIdentity(self._folder, self._witness)
        if not identity.is_loss_accepted:
            identity.require()
        make_folder(self._folder)
        self._lock = lock_folder(self._folder)
        if identity.is_loss_accepted:
            go_on_without(self._folder, identity.note_lost_numbers, identity.last_commit)
            identity.forget_commits()
        self._mark = None if self._is_taken_back else identity.commit_mark()
        self._had_tables = (self._folder / FILE_NAME).exists()

    def tables(self, cache_bytes: int) -> "FolderTables":
        return FolderTables(self._folder, cache_bytes)

    @property
    def epoch(self) -> int:
        return 0

    def kept_in(self) -> str:
        return "folder, one disk"

    def are_numbers_lost(self) -> bool:
        return self._identity is not None and self._identity.are_numbers_lost

    def keep(self) -> None:
        assert self._identity is not None
        self._identity.keep()

    @property
    def last_commit(self) -> int:
        return 0 if self._mark is None else self._mark.number

    def committed(self, sequence: int) -> None:
        # A removed file still accepts writes, but nobody will ever find them. The lock file shows it for the folder.
        if os.fstat(self._lock).st_nlink == 0:
            raise StoreUnavailable(f"{self._folder} was removed while in use. Restore the folder and reopen the store.")
        if self._mark is not None:
            self._mark.set(sequence)

    def segment_numbers(self) -> list[int]:
        return segment_numbers(self._folder)

    def segment_name(self, number: int) -> str:
        return str(segment_path(self._folder, number))

    def create_segment(self, number: int, first_sequence: int) -> SegmentFile:
        return SegmentFile.create(self._folder, number, first_sequence)

    def open_segment(self, number: int) -> SegmentFile | None:
        return SegmentFile.open(self._folder, number)

    def delete_segment(self, number: int) -> None:
        segment_path(self._folder, number).unlink()

    def space(self) -> Space:
        return space_of(self._folder)

    def give_back(self) -> None:
        (self._folder / SPARE_NAME).unlink(missing_ok=True)

    def is_lack_of_space(self, error: BaseException) -> bool:
        if isinstance(error, sqlite3.Error):
            return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)

    def failure(self, error: Exception) -> StoreUnavailable | None:
        if not isinstance(error, OSError | sqlite3.Error | UnicodeDecodeError):
            return None
        if is_damage(error):
            return StoreDamaged(f"the tables of {self._folder} are damaged: {error}. Restore the folder.")
        if self.is_lack_of_space(error):
            return StoreUnavailable(
                f"The disk of {self._folder} is full. Free some space; the store opens by itself then."
            )
        if isinstance(error, PermissionError):
            return StoreUnavailable(
                f"{error.filename or self._folder} cannot be used: {error.strerror}. Give it to the user who serves the namespace; the "
                "store opens by itself then."
            )
        return StoreUnavailable(f"store {self._folder} failed: {error}. Repair the disk and reopen the store.")

    def release(self) -> None:
        if self._mark is not None:
            self._mark.close()
            self._mark = None
        if self._lock >= 0:
            unlock_folder(self._lock)
            self._lock = -1


class FolderTables:
    """See `Tables`. One connection reads, a second one writes for checkpoints."""

    def __init__(self, folder: Path, cache_bytes: int) -> None:
        self._folder = folder
        self._reader = connect(folder, cache_bytes)
        try:
            prepare(self._reader, folder)
            bring_home(self._reader, folder)
            check_tables(self._reader, folder)
            self._file = TablesFile(folder)
            self._writer = connect(folder, cache_bytes)
            self._steady = SteadyWrites([folder / FILE_NAME, folder / f"{FILE_NAME}-wal"])
        except BaseException:
            self._reader.close()
            raise

    def snapshot(self, fragment: FragmentKey = 0) -> AbstractContextManager[Snapshot]:
        return snapshot(self._reader, fragment)

    @contextmanager
    def frozen(self, fragment: FragmentKey) -> Iterator[Snapshot]:
        self._file.require()
        with closing(connect(self._folder, FROZEN_CACHE_BYTES)) as connection, snapshot(connection, fragment) as found:
            yield found

    def write_checkpoint(self, layer: Layer, pace: Pace) -> None:
        with pace.turn():
            self._file.require()
            try:
                with self._steady.during(pace.is_hurried) if is_large(layer) else nullcontext():
                    write_checkpoint(self._writer, layer, pace)
            except sqlite3.OperationalError:
                with suppress(sqlite3.Error):
                    empty_log(self._writer)
                raise
            self._file.require()

    def tidy(self, pace: Pace, *, is_short: bool) -> None:
        with pace.turn():
            self._file.require()
            give_back_space(self._writer, pace, is_short=is_short)
            if is_short:
                empty_log(self._writer)

    def damage(self) -> list[Damage]:
        return damage_in(self._reader)

    def check(self, after: int) -> CheckedPage:
        with self.snapshot():
            return check_rows(self._reader, after)

    def set_aside(self, damaged: RowsDamaged) -> str:
        try:
            places = set_aside(self._reader, damaged.where)
        except sqlite3.Error as error:
            raise StoreDamaged(
                f"{self._folder / FILE_NAME}: {damaged}, and could not be set aside: {error}. Restore the folder from a copy."
            ) from error
        return f"{self._folder}: {places[0]}. It was set aside"

    def close(self) -> None:
        self._writer.close()
        self._reader.close()
        self._steady.close()


def is_damage(error: Exception) -> bool:
    """Whether an error of the system or of SQLite means that the tables are not what was written."""
    if isinstance(error, sqlite3.OperationalError):
        return "malformed" in str(error)
    # An error whose text quotes a damaged schema cannot be decoded.
    return isinstance(error, sqlite3.DatabaseError | UnicodeDecodeError)


def lock_folder(folder: Path) -> int:
    """Raises StoreInUse."""
    descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_to_owner(descriptor, folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreInUse(f"{folder} is open in another process. Stop that process, or use another folder.") from None
    return descriptor


def unlock_folder(lock: int) -> None:
    os.close(lock)
