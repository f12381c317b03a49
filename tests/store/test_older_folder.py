"""A folder of a version before opens, keeps what it holds, and is checked from then on.

`folder_of_tables_2.tar.gz` was written by a version whose rows had no checksums, and left by a crash: five messages, a session
state and a duplicate key in the tables, a message and a removal in the journal.

`folder_of_tables_3.tar.gz` was written by the version after that, and left by a crash during a checkpoint: four messages, a
session state and a duplicate key in the tables; in a sealed segment two messages, and that a duplicate key was forgotten; in
the newest one a message that was deferred, a scheduled one that became active, one more message, a removal, a session state
and a duplicate key.
"""

import sqlite3
import tarfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.rows import DEFERRED, HERE, NOON, SCHEDULED, UNLIMITED, everything, row
from twinbus.clock import NEVER
from twinbus.errors import StoreDamaged, StoreUnavailable
from twinbus.store.changes import Enqueued
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME, SCHEMA_VERSION, upgrade
from twinbus.store.messaging_store import FragmentSummary
from twinbus.store.reads import ANY_STATE

KEPT = [
    row(2, b"two", session_id="Order"),
    row(3, b"", state=DEFERRED),
    row(4, b"four", state=SCHEDULED, due_at=NOON),
    row(5, b"x" * 20_000, expires_at=NOON + 1),
    row(6, b"in the journal"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).parent / "folder_of_tables_2.tar.gz") as archive:
        archive.extractall(tmp_path / "store", filter="data")
    return tmp_path / "store"


def test_an_older_folder_keeps_what_it_holds(folder: Path) -> None:
    for _ in ("upgraded", "opened again"):
        store = FolderStore(folder)
        assert everything(store) == KEPT
        assert store.scan(HERE, 0, 10, UNLIMITED, ANY_STATE, "order") == KEPT[:1]
        assert store.session_state(HERE, "ORDER") == b"half way"
        assert store.duplicates(HERE) == [("key", NOON + 7)]
        assert store.damage() == []
        store.close()
    tables = sqlite3.connect(folder / FILE_NAME)
    assert tables.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    tables.close()


@pytest.mark.parametrize("damage", ["no database", "no table"])
def test_older_tables_that_cannot_be_upgraded_are_damage(folder: Path, damage: str) -> None:
    """As in a backup that is restored: it is asked before the store is opened."""
    if damage == "no database":
        (folder / f"{FILE_NAME}-wal").unlink()
        (folder / FILE_NAME).write_bytes(b"scribble" * 10_000)
    else:
        with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
            connection.execute("DROP TABLE messages")
    with pytest.raises(StoreDamaged, match=rf"{folder / FILE_NAME} cannot be upgraded: .*{damage.removeprefix('no ')}"):
        upgrade(folder)


def test_an_upgraded_folder_takes_messages(folder: Path) -> None:
    store = FolderStore(folder)
    store.commit([Enqueued(HERE, [row(7, b"new")])])
    store.close()
    store = FolderStore(folder)
    assert everything(store) == [*KEPT, row(7, b"new")]
    store.close()


def test_a_row_of_an_upgraded_folder_is_checked(folder: Path) -> None:
    FolderStore(folder).close()
    tables = sqlite3.connect(folder / FILE_NAME)
    tables.execute("UPDATE contents SET content = 'twO' WHERE content = x'74776f'")
    tables.commit()
    tables.close()
    store = FolderStore(folder)
    with pytest.raises(StoreUnavailable, match="message 2"):
        everything(store)
    store.close()
    store = FolderStore(folder)
    assert everything(store) == KEPT[1:]
    assert len(store.damage()) == 1
    store.close()


def test_a_folder_left_during_a_checkpoint_keeps_what_it_holds(tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).parent / "folder_of_tables_3.tar.gz") as archive:
        archive.extractall(tmp_path / "store", filter="data")
    for _ in ("replayed", "opened again"):
        store = FolderStore(tmp_path / "store")
        became_active = replace(row(8, b"four"), enqueued_at=NOON + 2)
        assert everything(store) == [
            row(2, b"two", state=DEFERRED, delivery_count=3, session_id="Order"),
            row(3, b"", state=DEFERRED),
            row(5, b"x" * 20_000, expires_at=NOON + 1),
            row(7, b"scheduled there", state=SCHEDULED, due_at=NOON + 5),
            became_active,
            row(9, b"in the newest segment", session_id="ö\x00"),
        ]
        assert store.session_state(HERE, "order") == b"half way"
        assert store.session_state(HERE, "other") == b""
        assert store.duplicates(HERE) == [("key", NOON + 7), ("later", NOON + 9)]
        assert store.due(HERE, NOON + 100, 10) == ([7], NEVER)
        assert store.summaries() == [FragmentSummary(HERE, 9, 3, 2, 1, 20_043)]
        assert store.damage() == []
        store.close()


def test_a_journal_of_a_newer_release_is_refused_and_stays_as_it_is(folder: Path) -> None:
    (journal,) = folder.glob("journal-*")
    journal.write_bytes(journal.read_bytes().replace(b"TWINBUSJ", b"TWINBUSK", 1))
    before = journal.read_bytes()
    with pytest.raises(StoreDamaged, match="newer release"):
        FolderStore(folder)
    assert journal.read_bytes() == before
