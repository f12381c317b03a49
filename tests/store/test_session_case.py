"""Session ids are compared by their keys: in both stores, in every layer, and in folders of a version that compared letters."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.rows import HERE, UNLIMITED, holding, numbers, row
from twinbus.errors import StoreDamaged, StoreUnavailable
from twinbus.store.changes import Enqueued, SessionStateSet, session_runs
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME, SCHEMA_VERSION
from twinbus.store.memory import MemoryStore
from twinbus.store.messaging_store import MessagingStore, SessionSummary
from twinbus.store.reads import ANY_STATE
from twinbus.store.statements import load_schema

VERSION_1 = """
DROP TABLE damaged;
ALTER TABLE messages DROP COLUMN content_sum;
ALTER TABLE messages DROP COLUMN checksum;
ALTER TABLE duplicates DROP COLUMN checksum;
ALTER TABLE journal DROP COLUMN schema_sum;
ALTER TABLE journal DROP COLUMN fragment_sums;
ALTER TABLE journal DROP COLUMN checksum;
ALTER TABLE fragments DROP COLUMN active_count;
ALTER TABLE fragments DROP COLUMN deferred_count;
ALTER TABLE fragments DROP COLUMN scheduled_count;
ALTER TABLE fragments DROP COLUMN size_bytes;
ALTER TABLE fragments DROP COLUMN message_sums;
ALTER TABLE fragments DROP COLUMN state_sums;
ALTER TABLE fragments DROP COLUMN duplicate_sums;
ALTER TABLE fragments DROP COLUMN checksum;
DROP INDEX messages_of_session;
ALTER TABLE messages DROP COLUMN session_key;
CREATE INDEX messages_of_session ON messages (slot, session_id, id, state) WHERE session_id IS NOT NULL;
DROP TABLE session_states;
CREATE TABLE session_states (
    slot INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    state BLOB NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (slot, session_id)
) WITHOUT ROWID;
INSERT INTO session_states VALUES (1, '"Order"', x'01', 10), (1, '"ORDER"', x'03', 30), (1, '"order"', x'02', 20), (1, '"x"', x'04', 40);
PRAGMA user_version = 1;
"""


@pytest.fixture(params=["memory", "layers", "tables", "both"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessagingStore]:
    """Each with the same messages and states, some of them or all checkpointed."""
    store = MemoryStore() if request.param == "memory" else FolderStore(tmp_path / "store")
    holding(store, row(1, session_id="Order"), row(2, session_id="straße"), row(3, session_id="ORDER"))
    store.commit([SessionStateSet(HERE, "Order", b"old", 10)])
    if request.param in ("tables", "both"):
        assert isinstance(store, FolderStore)
        store.checkpoint()
    store.commit([Enqueued(HERE, [row(4, session_id="order")]), SessionStateSet(HERE, "oRDER", b"new", 20)])
    if request.param == "tables":
        assert isinstance(store, FolderStore)
        store.checkpoint()
    yield store
    store.close()


@pytest.mark.rule("A9.4")
def test_a_session_is_read_by_its_id_in_any_case(store: MessagingStore) -> None:
    for session_id in ("order", "Order", "ORDER"):
        found = store.scan(HERE, 0, 10, UNLIMITED, ANY_STATE, session_id)
        assert [(each.sequence_number, each.session_id) for each in found] == [(1, "Order"), (3, "ORDER"), (4, "order")]
    assert numbers(store.scan(HERE, 0, 10, UNLIMITED, ANY_STATE, "STRASSE")) == [2]
    assert numbers(store.scan(HERE, 0, 10, UNLIMITED, ANY_STATE, "other")) == []


def test_a_session_is_listed_once_with_the_id_of_its_first_message(store: MessagingStore) -> None:
    assert store.sessions(HERE) == [SessionSummary("Order", 3, 1, 20), SessionSummary("straße", 1, 2, None)]


def test_a_session_without_messages_is_listed_with_the_id_that_its_state_was_set_with(store: MessagingStore) -> None:
    store.commit([SessionStateSet(HERE, "Alone", b"1", 50), SessionStateSet(HERE, "aLONE", b"2", 60)])
    assert store.sessions(HERE)[-1] == SessionSummary("aLONE", 0, 0, 60)


def test_a_session_has_one_state_whatever_the_case_of_its_id(store: MessagingStore) -> None:
    assert store.session_state(HERE, "order") == store.session_state(HERE, "ORDER") == b"new"
    store.commit([SessionStateSet(HERE, "ORder", None, 30)])
    assert store.session_state(HERE, "Order") is None
    assert store.sessions(HERE)[0] == SessionSummary("Order", 3, 1, None)


@pytest.fixture
def older_folder(tmp_path: Path) -> Path:
    """A folder with tables of version 1, and a journal with messages that are not in them yet."""
    folder = tmp_path / "store"
    store = FolderStore(folder)
    holding(store, row(1, session_id="Order"), row(2, session_id="ORDER"), row(3), row(4, session_id="x"))
    store.checkpoint()
    store.commit([Enqueued(HERE, [row(5, session_id="order")])])
    store.close()
    connection = sqlite3.connect(folder / FILE_NAME)
    connection.executescript(VERSION_1)
    connection.close()
    return folder


@pytest.mark.rule("A9.4")
def test_sessions_of_an_older_folder_that_differ_in_case_are_one_afterwards(older_folder: Path) -> None:
    for _ in ("upgraded", "opened again"):
        store = FolderStore(older_folder)
        assert numbers(store.scan(HERE, 0, 10, UNLIMITED, ANY_STATE, "order")) == [1, 2, 5]
        assert numbers(store.scan(HERE, 0, 10, UNLIMITED, ANY_STATE)) == [1, 2, 3, 4, 5]
        assert store.sessions(HERE) == [SessionSummary("Order", 3, 1, 30), SessionSummary("x", 1, 4, 40)]
        assert store.session_state(HERE, "Order") == b"\x03"
        store.checkpoint()
        store.close()


def test_upgraded_tables_are_those_of_a_new_store(older_folder: Path, tmp_path: Path) -> None:
    FolderStore(older_folder).close()
    upgraded = sqlite3.connect(older_folder / FILE_NAME)
    new = sqlite3.connect(":memory:")
    new.executescript(load_schema("folder"))
    assert upgraded.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    for table in ("journal", "fragments", "messages", "contents", "session_states", "duplicates", "damaged"):
        columns = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?) ORDER BY name'
        assert upgraded.execute(columns, (table,)).fetchall() == new.execute(columns, (table,)).fetchall()
    indexes = "SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY name"
    assert upgraded.execute(indexes).fetchall() == new.execute(indexes).fetchall()
    upgraded.close()
    new.close()


def test_an_upgrade_that_is_cut_short_changes_nothing(older_folder: Path) -> None:
    connection = sqlite3.connect(older_folder / FILE_NAME)
    connection.execute("UPDATE messages SET session_id = 'no JSON' WHERE id & 15 = 4")
    connection.commit()
    with pytest.raises((StoreDamaged, StoreUnavailable)):
        FolderStore(older_folder)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.execute("UPDATE messages SET session_id = '\"x\"' WHERE id & 15 = 4")
    connection.commit()
    connection.close()
    store = FolderStore(older_folder)
    assert numbers(store.scan(HERE, 0, 10, UNLIMITED, ANY_STATE, "X")) == [4]
    store.close()


def test_rows_in_a_row_are_counted_by_session_under_the_name_that_came_first() -> None:
    assert session_runs(["a", None, "B", "A", "b", "a"]) == [("a", 3, 0), ("B", 2, 2)]
