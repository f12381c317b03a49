"""A folder of the version before opens, keeps what it holds, and is checked from then on.

`folder_of_tables_2.tar.gz` was written by a version whose rows had no checksums, and left by a crash: five messages, a session
state and a duplicate key in the tables, a message and a removal in the journal.
"""

import sqlite3
import tarfile
from pathlib import Path

import pytest

from tests.contract.rows import DEFERRED, HERE, NOON, SCHEDULED, UNLIMITED, everything, row
from twinbus.errors import StoreUnavailable
from twinbus.store.changes import Enqueued
from twinbus.store.durable import DurableStore
from twinbus.store.reads import ANY_STATE
from twinbus.store.tables import FILE_NAME, SCHEMA_VERSION

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
        store = DurableStore(folder)
        assert everything(store) == KEPT
        assert store.scan(HERE, 0, 10, UNLIMITED, ANY_STATE, "order") == KEPT[:1]
        assert store.session_state(HERE, "ORDER") == b"half way"
        assert store.duplicates(HERE) == [("key", NOON + 7)]
        assert store.damage() == []
        store.close()
    tables = sqlite3.connect(folder / FILE_NAME)
    assert tables.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    tables.close()


def test_an_upgraded_folder_takes_messages(folder: Path) -> None:
    store = DurableStore(folder)
    store.commit([Enqueued(HERE, [row(7, b"new")])])
    store.close()
    store = DurableStore(folder)
    assert everything(store) == [*KEPT, row(7, b"new")]
    store.close()


def test_a_row_of_an_upgraded_folder_is_checked(folder: Path) -> None:
    DurableStore(folder).close()
    tables = sqlite3.connect(folder / FILE_NAME)
    tables.execute("UPDATE contents SET content = 'twO' WHERE content = x'74776f'")
    tables.commit()
    tables.close()
    store = DurableStore(folder)
    with pytest.raises(StoreUnavailable, match="message 2"):
        everything(store)
    store.close()
    store = DurableStore(folder)
    assert everything(store) == KEPT[1:]
    assert len(store.damage()) == 1
    store.close()
