"""The tables of a store in SQLite, read one snapshot at a time.

The write-ahead log lets the one writer, a checkpoint, work while others read. A snapshot sees one state of the tables and
knows which journal segments are in it. Every row is checked against its checksum when it is read. Code that lays an overlay on
a snapshot omits the layers of those segments, so a checkpoint may finish at any moment.
"""

import json
import sqlite3
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from operator import lt
from pathlib import Path
from typing import Any

from twinbus.clock import Millis
from twinbus.errors import StoreDamaged, StoreUnavailable
from twinbus.model.session_key import session_key
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.changes import FragmentKey, fragment_index
from twinbus.store.checksums import FACTS, content_sum, row_sum, values_sum
from twinbus.store.crc32 import crc32
from twinbus.store.damage import RowsDamaged
from twinbus.store.folder.private_file import make_private
from twinbus.store.layers.located_changes import Row
from twinbus.store.row_ids import COUNTER_MASK, row_id
from twinbus.store.statements import load_schema, load_statements, load_upgrade

FILE_NAME = "tables.sqlite"
SCHEMA_VERSION = 3
SQLITE_VERSION_MIN = (3, 38)
PAGE_BYTES = 16_384  # half the cost of a row of 1 KiB in pages of 4,096
WAL_BYTES_KEPT = 4 << 20
UPGRADE_CACHE_BYTES = 4 << 20
NO_STATE = -1
PAGE_ROWS = 1_000
INCREMENTAL = 2  # of the pragma auto_vacuum

SQL = load_statements("folder")


def connect(folder: Path, cache_bytes: int) -> sqlite3.Connection:
    make_private(folder / FILE_NAME)
    connection = sqlite3.connect(folder / FILE_NAME, isolation_level=None, check_same_thread=False)
    # What is not UTF-8 is damage, which its checksum tells; an error of the library would hide where it is.
    connection.text_factory = _text
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    if (folder / FILE_NAME).stat().st_size == 0:
        # Only in a new file: this writes, even if nothing changes.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{cache_bytes // 1024}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    # Some systems build SQLite so that it overwrites what is deleted: all of a message would be written once more, to be removed.
    connection.execute("PRAGMA secure_delete = OFF")
    return connection


class TablesFile:
    """The file as it was opened. A file without a name takes everything that is written, and nobody finds it again."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE_NAME
        self._opened = _inode(self._file)

    def require(self) -> None:
        """Raises StoreUnavailable if the name belongs to another file, or to none."""
        if _inode(self._file) != self._opened:
            raise StoreUnavailable(f"{self._file} was removed while in use. Restore the folder and reopen the store.")


def _inode(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def prepare(connection: sqlite3.Connection, folder: Path) -> None:
    """Create the tables in a new file and upgrade those of an older version; refuse those of a newer one."""
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        raise StoreDamaged(f"SQLite {sqlite3.sqlite_version} is too old for a store. Use 3.38 or later.")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        connection.executescript(f"BEGIN;{load_schema('folder')}PRAGMA user_version = {SCHEMA_VERSION};")
        write_journal_row(connection, 0)
        connection.execute("COMMIT")
    elif version > SCHEMA_VERSION:
        raise StoreDamaged(
            f"{folder / FILE_NAME} has schema version {version}, this twinbus reads {SCHEMA_VERSION}. "
            f"Open the store with the release that wrote it."
        )
    else:
        connection.create_function("session_key", 1, _stored_key, deterministic=True)
        connection.create_function("content_sum", 1, lambda content: content_sum(content or b""), deterministic=True)
        connection.create_function("values_sum", -1, values_sum, deterministic=True)
        for older in range(version, SCHEMA_VERSION):
            upgrade = load_upgrade("folder", older)
            connection.executescript(f"BEGIN IMMEDIATE;{upgrade}PRAGMA user_version = {older + 1};")
            if older + 1 == SCHEMA_VERSION:
                (position,) = connection.execute("SELECT position FROM journal").fetchone()
                write_journal_row(connection, position)
            connection.execute("COMMIT")
    if connection.execute("PRAGMA auto_vacuum").fetchone() != (INCREMENTAL,):
        _make_shrinkable(connection)


def upgrade(folder: Path) -> None:
    """Bring tables of an older version to this one, if there are any, while nobody uses them. Raises StoreDamaged."""
    if not (folder / FILE_NAME).exists():
        return
    try:
        with closing(connect(folder, UPGRADE_CACHE_BYTES)) as connection:
            prepare(connection, folder)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as fault:
        raise StoreDamaged(f"{folder / FILE_NAME} cannot be upgraded: {fault}.") from fault


def _make_shrinkable(connection: sqlite3.Connection) -> None:
    """Write the file of an older version anew, so that it can give space back. Without space for a copy it stays as it is."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    with suppress(sqlite3.OperationalError):
        connection.execute("VACUUM")


def write_journal_row(connection: sqlite3.Connection, position: int) -> None:
    """In the transaction of a checkpoint, after everything else."""
    facts = (position, schema_sum(connection), *connection.execute(SQL["fragment_sums"]).fetchone())
    connection.execute(SQL["put_journal_row"], (*facts, values_sum(*facts)))


def schema_sum(connection: sqlite3.Connection) -> int:
    return values_sum(*[sql for (sql,) in connection.execute(SQL["schema"])])


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _stored_key(stored_id: str) -> str:
    return json.dumps(session_key(json.loads(stored_id)))


def bring_home(connection: sqlite3.Connection, folder: Path) -> None:
    """Copy the write-ahead log into the tables, durably, before anything else reads them. If a sync of the log has failed,
    its content can be read although it is not on the disk, and journal segments would be deleted because of it."""
    is_busy, log_pages, home_pages = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if is_busy or home_pages < log_pages:
        raise StoreUnavailable(
            f"another program uses {folder / FILE_NAME}, so its log cannot be emptied. Stop that program."
        )


def stored_text(text: str | None) -> str | None:
    return None if text is None else json.dumps(text)


def _row(values: tuple[Any, ...]) -> Row:
    """The row of a message that is whole; the place of its content is the checksum of its content."""
    session_id = values[8]
    return values[1:10] if session_id is None else (*values[1:8], json.loads(session_id), values[9])


def is_whole(values: tuple[Any, ...]) -> bool:
    """Whether the columns of a message, from `id` to `checksum`, are what was written."""
    facts: tuple[int, int, int, int, int, int, int, int] = values[:8]
    try:
        return row_sum(*facts, values[9], values[8]) == int(values[10])
    except (ValueError, TypeError):
        return False


def _are_plainly_whole(found: Sequence[tuple[Any, ...]]) -> bool:
    """As `is_whole` of all of these, without a call for each: False if one is damaged, or of a message session."""
    pack = FACTS.pack
    try:
        odd = [values for values in found if values[8] is not None or crc32(pack(*values[:8], values[9])) != values[10]]
    except struct.error:
        return False
    return not odd


def state_is_whole(slot: int, values: tuple[Any, ...]) -> bool:
    """Of a session state, from `session_key` to `checksum`."""
    key, session_id, updated_at, content, checksum = values
    try:
        return values_sum(slot, updated_at, content, key, session_id) == int(checksum)
    except (ValueError, TypeError):
        return False


def duplicate_is_whole(slot: int, key: object, until: object, checksum: object) -> bool:
    try:
        return values_sum(slot, until, key) == checksum
    except (ValueError, TypeError):
        return False


class Snapshot:
    """One state of the tables, seen from one fragment. Ask for rows only if `has_fragment`."""

    def __init__(self, connection: sqlite3.Connection, position: int, fragment: FragmentKey, slot: int | None) -> None:
        self.position = position  # of the journal: the newest segment that is in the tables
        self.has_fragment = slot is not None
        self.slot = slot or 0
        self._connection = connection
        self._base = fragment_index(fragment) << SEQUENCE_BITS

    def of(self, fragment: FragmentKey) -> "Snapshot":
        """The same state seen from another fragment."""
        found = self._connection.execute(SQL["slot_of"], (fragment,)).fetchone()
        return Snapshot(self._connection, self.position, fragment, found[0] if found else None)

    def id(self, number: int) -> int:
        return row_id(self.slot, number)

    def number(self, identity: int) -> int:
        return self._base + (identity & COUNTER_MASK)

    def rows_after(
        self, after: int, last: int | None, count_max: int, states: Collection[MessageState], key: str | None
    ) -> list[tuple[int, Row]]:
        counter, end = (
            min(max(number - self._base, 0), COUNTER_MASK)
            for number in (after, self._base + COUNTER_MASK if last is None else last)
        )
        parameters = {
            "slot": self.slot,
            "after": self.id(counter),
            "last": self.id(end),
            "session_key": stored_text(key),
            "count_max": count_max,
            **{state.name.lower(): state if state in states else NO_STATE for state in MessageState},
        }
        statement = SQL["rows_after"] if key is None else SQL["session_rows_after"]
        base = self._base
        found = self._connection.execute(statement, parameters).fetchall()
        self._require_whole(found)
        return [(base + (values[0] & COUNTER_MASK), _row(values)) for values in found]

    def row(self, number: int) -> Row | None:
        if not self._owns(number):
            return None
        values = self._connection.execute(SQL["row_by_id"], (self.id(number),)).fetchone()
        if values is None:
            return None
        self._require_whole([values])
        return _row(values)

    def rows(self, numbers: Sequence[int]) -> dict[int, Row]:
        """Those of them that exist, by number."""
        found = self._of("rows", [number for number in numbers if self._owns(number)]).fetchall()
        self._require_whole(found)
        return {self.number(values[0]): _row(values) for values in found}

    def sums(self, numbers: Sequence[int]) -> dict[int, int]:
        """A sum that is damaged is not that of its content, so `contents` finds it."""
        base = self._base
        return {base + (identity & COUNTER_MASK): found for identity, found in self._of("content_sums", numbers)}

    def contents(self, sums: Mapping[int, int]) -> dict[int, bytes]:
        """The contents of rows, by number; their checksums by number are those of the rows."""
        base = self._base
        found = self._of("contents", list(sums))
        contents = {base + (identity & COUNTER_MASK): content for identity, content in found}
        with suppress(KeyError, TypeError):  # what is missing, or is no blob
            if list(map(crc32, map(contents.__getitem__, sums))) == list(sums.values()):
                return contents
        damaged = [
            self.id(number)
            for number, expected in sums.items()
            if not isinstance(content := contents.get(number), bytes) or content_sum(content) != expected
        ]
        if damaged:
            raise _damaged_messages(damaged)
        return contents

    def _of(self, what: str, numbers: Sequence[int]) -> sqlite3.Cursor:
        """Rows or contents with these numbers, which are mostly asked for without a gap: reading on is cheaper than looking each up."""
        if numbers and numbers[-1] - numbers[0] == len(numbers) - 1 and all(map(lt, numbers, islice(numbers, 1, None))):
            return self._connection.execute(SQL[f"{what}_of_range"], (self.id(numbers[0]), self.id(numbers[-1])))
        identities = json.dumps([self.id(number) for number in numbers])
        return self._connection.execute(SQL[f"{what}_by_id"], (identities,))

    def _require_whole(self, found: Sequence[tuple[Any, ...]]) -> None:
        if not _are_plainly_whole(found):
            damaged = [values[0] for values in found if not is_whole(values)]
            if damaged:
                raise _damaged_messages(damaged)

    def scheduled_after(self, at: Millis, number: int, count_max: int) -> list[tuple[Millis, int]]:
        return self._times("scheduled_after", at, number, count_max)

    def mortal_after(self, at: Millis, number: int, count_max: int) -> list[tuple[Millis, int]]:
        return self._times("mortal_after", at, number, count_max)

    def counts_without(self, hidden: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
        """(slot, state, count, bytes) of all fragments, without these rows, given by id."""
        return self._connection.execute(SQL["counts_without"], (json.dumps(hidden),))

    def last_numbers(self) -> dict[FragmentKey, int | None]:
        """Highest number ever used, for every fragment."""
        return dict(self._connection.execute(SQL["last_numbers"]))

    def session_pages(self, hidden: Sequence[int]) -> Iterator[list[tuple[str, int, int]]]:
        """(session id of the first message, active count, first number), without these rows, given by number."""
        identities = json.dumps([self.id(number) for number in hidden])
        cursor = self._connection.execute(SQL["sessions_without"], {"slot": self.slot, "hidden": identities})
        while found := cursor.fetchmany(PAGE_ROWS):
            yield [(json.loads(session_id), count, self.number(first)) for session_id, count, first in found]

    def state_pages(self) -> Iterator[list[tuple[str, Millis]]]:
        """(session id that the state was set with, when)."""
        cursor = self._connection.execute(SQL["session_states"], (self.slot,))
        while found := cursor.fetchmany(PAGE_ROWS):
            damaged = [
                ("session_states", (self.slot, values[0])) for values in found if not state_is_whole(self.slot, values)
            ]
            if damaged:
                raise RowsDamaged("states of message sessions are damaged", damaged)
            yield [(json.loads(values[1]), values[2]) for values in found]

    def session_state(self, key: str) -> bytes | None:
        parameters = (self.slot, stored_text(key))
        found = self._connection.execute(SQL["session_state"], parameters).fetchone()
        if found is None:
            return None
        *facts, state = found
        if (
            not state_is_whole(self.slot, tuple(facts))
            or not isinstance(state, bytes)
            or content_sum(state) != facts[3]
        ):
            raise RowsDamaged("the state of a message session is damaged", [("session_states", parameters)])
        return state

    def duplicates(self) -> dict[str, Millis]:
        found = self._connection.execute(SQL["duplicates"], (self.slot,)).fetchall()
        damaged = [
            ("duplicates", (self.slot, values[0])) for values in found if not duplicate_is_whole(self.slot, *values)
        ]
        if damaged:
            raise RowsDamaged("keys of duplicate detection are damaged", damaged)
        return {json.loads(key): until for key, until, _ in found}

    def _owns(self, number: int) -> bool:
        return 0 < number - self._base <= COUNTER_MASK

    def _times(self, name: str, at: Millis, number: int, count_max: int) -> list[tuple[Millis, int]]:
        identity = self.id(number) if number else 0
        parameters = {"slot": self.slot, "at": at, "id": identity, "count_max": count_max}
        return [(when, self.number(found)) for when, found in self._connection.execute(SQL[name], parameters)]


def _damaged_messages(identities: Sequence[int]) -> RowsDamaged:
    return RowsDamaged("messages are damaged", [("messages", (identity,)) for identity in identities])


@contextmanager
def snapshot(connection: sqlite3.Connection, fragment: FragmentKey = 0) -> Iterator[Snapshot]:
    """A snapshot for one fragment, or without one for what concerns all of them."""
    connection.execute("BEGIN")
    try:
        # The first read fixes the state that the transaction sees.
        position, slot = connection.execute(SQL["position_and_slot"], (fragment,)).fetchone()
        yield Snapshot(connection, position, fragment, slot)
    finally:
        # SQLite has ended it already if the disk could not be read. What it would say of a COMMIT then would hide why.
        if connection.in_transaction:
            connection.execute("COMMIT")
