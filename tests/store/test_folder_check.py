"""`check_folder`: a store that is not in use, with everything that it can hold."""

import sqlite3
from pathlib import Path

import pytest

from tests.contract.rows import HERE, holding, row
from twinbus.store.changes import DuplicatesSeen, Enqueued, SessionStateSet
from twinbus.store.folder.folder_check import check_folder
from twinbus.store.folder.journal import segment_numbers, segment_path
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME
from twinbus.store.store_limits import StoreLimits

AT_ONCE = StoreLimits(segment_entries_max=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With messages, states of message sessions and keys of duplicate detection in its tables."""
    store = FolderStore(tmp_path / "store", AT_ONCE)
    holding(store, row(1))
    store.commit([SessionStateSet(HERE, "s", b"a state", 7), SessionStateSet(HERE, "t", b"", 7)])
    store.commit([DuplicatesSeen(HERE, [("one", 10), ("two", 20)])])
    store.commit([Enqueued(HERE, [row(2, b"content")])])
    for number in range(3, 8):
        store.commit([Enqueued(HERE, [row(number)])])
    store.close()
    return tmp_path / "store"


def change(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / FILE_NAME) as connection:
        assert connection.execute(statement).rowcount == 1
    connection.close()


def test_a_folder_in_order_has_no_damage(folder: Path) -> None:
    with sqlite3.connect(folder / FILE_NAME) as connection:
        tables = ("session_states", "duplicates")
        counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]
    connection.close()
    assert counts == [2, 2]
    assert check_folder(folder, None) == []


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("UPDATE session_states SET state = x'00' WHERE state = CAST('a state' AS BLOB)", "session"),
        ("UPDATE session_states SET state = 'text' WHERE state = CAST('a state' AS BLOB)", "session"),
        ("UPDATE session_states SET updated_at = 8 WHERE state = CAST('a state' AS BLOB)", "session"),
        ("UPDATE duplicates SET until = 11 WHERE until = 10", "duplicate"),
    ],
)
def test_a_state_or_key_that_is_not_what_was_written_is_named(folder: Path, statement: str, place: str) -> None:
    change(folder, statement)
    found = check_folder(folder, None)
    assert len(found) >= 1
    assert any(place in str(damage) for damage in found)


def test_a_folder_that_no_store_was_ever_opened_in_has_no_damage(tmp_path: Path) -> None:
    assert check_folder(tmp_path, None) == []


def test_a_segment_that_a_crash_left_although_the_tables_hold_it_is_no_damage(folder: Path) -> None:
    segment_path(folder, segment_numbers(folder)[0] - 1).write_bytes(b"nobody reads it")
    assert check_folder(folder, None) == []
    FolderStore(folder).close()


@pytest.mark.parametrize("name", ["identity", "lock", "journal"])
def test_what_is_no_file_is_named(folder: Path, name: str) -> None:
    file = segment_path(folder, segment_numbers(folder)[0]) if name == "journal" else folder / name
    file.unlink()
    file.mkdir()
    (found,) = check_folder(folder, None)
    assert (found.file, found.what) == (str(file), "it cannot be read: Is a directory")


def test_tables_of_another_version_are_reported_and_not_read(folder: Path) -> None:
    with sqlite3.connect(folder / FILE_NAME) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    (found,) = check_folder(folder, None)
    assert (found.file, found.place) == (str(folder / FILE_NAME), "schema version 2")
