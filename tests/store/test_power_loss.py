"""Goal: what was acknowledged is there after a power loss, also where a sync had failed before and the store was opened anew."""

import sqlite3
from pathlib import Path

import pytest

from tests.contract.rows import HERE, everything, holding, numbers, row
from tests.store.failing_disk import FailingDisk
from tests.store.held_tasks import HeldTasks
from tests.store.test_durable import EIGHT_ENTRIES, contents, crashed
from twinbus.errors import StoreUnavailable
from twinbus.store.changes import Enqueued
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME

SEVERAL_PAGES = b"x" * 20_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    return FailingDisk(monkeypatch, folder)


def crashed_with_tables(folder: Path) -> Path:
    """A store of ten messages, nine of them in its tables, as a crash leaves it."""
    store = FolderStore(folder)
    holding(store, *(row(number) for number in range(1, 10)))
    store.checkpoint()
    store.commit([Enqueued(HERE, [row(10)])])
    copy = crashed(folder)
    store.close()
    return copy


def test_commits_behind_one_whose_sync_failed_are_there_after_a_power_loss(folder: Path, disk: FailingDisk) -> None:
    store = FolderStore(folder)
    holding(store, row(1))
    disk.fail_next_sync_of_a_file()
    with pytest.raises(StoreUnavailable):
        store.commit([Enqueued(HERE, [row(2, SEVERAL_PAGES)])])
    store.close()
    store = FolderStore(folder)
    assert numbers(everything(store)) == [1, 2], "memory has it, and the disk does not"
    store.commit([Enqueued(HERE, [row(3)])])
    assert contents(disk.without_power()) == [1, 2, 3]
    store.close()


def test_a_commit_whose_sync_failed_is_absent_or_whole_after_a_power_loss(folder: Path, disk: FailingDisk) -> None:
    store = FolderStore(folder)
    holding(store, row(1))
    disk.fail_next_sync_of_a_file()
    with pytest.raises(StoreUnavailable):
        store.commit([Enqueued(HERE, [row(2, SEVERAL_PAGES)])])
    assert contents(disk.without_power()) == [1]
    store.close()


def test_a_store_whose_tail_cannot_be_made_durable_is_not_opened(folder: Path, disk: FailingDisk) -> None:
    store = FolderStore(folder)
    holding(store, row(1, SEVERAL_PAGES))
    copy = crashed(folder)
    store.close()
    disk.fail_next_sync_of_a_file()
    with pytest.raises(StoreUnavailable):
        FolderStore(copy)
    assert contents(copy) == [1]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_segment_that_could_not_be_begun_for_good_loses_nothing(folder: Path, disk: FailingDisk, what: str) -> None:
    store = FolderStore(folder, EIGHT_ENTRIES, HeldTasks())
    holding(store, *(row(number) for number in range(1, 10)))
    if what == "file":
        disk.fail_next_sync_of_a_file()
    else:
        disk.fail_next_sync_of_the_folder()
    with pytest.raises(StoreUnavailable):
        store.commit([Enqueued(HERE, [row(10)])])
    store.close()
    store = FolderStore(folder, EIGHT_ENTRIES, HeldTasks())
    store.commit([Enqueued(HERE, [row(11)])])
    assert contents(disk.without_power()) == [*range(1, 10), 11]
    store.close()


def test_what_the_tables_say_when_a_store_opens_is_not_in_their_log_alone(folder: Path) -> None:
    """The sync of the log may have failed, and then it is in memory only; the segments it speaks for go."""
    copy = crashed_with_tables(folder)
    assert (copy / f"{FILE_NAME}-wal").stat().st_size > 0
    reopened = FolderStore(copy)
    found = crashed(copy)
    (found / f"{FILE_NAME}-wal").unlink()
    assert contents(found) == list(range(1, 11))
    reopened.close()


def test_who_looks_into_the_tables_does_not_keep_a_store_from_opening(folder: Path) -> None:
    copy = crashed_with_tables(folder)
    looking = sqlite3.connect(copy / FILE_NAME, isolation_level=None)
    looking.execute("BEGIN")
    assert looking.execute("SELECT count(*) FROM messages").fetchone() == (9,)
    assert contents(copy) == list(range(1, 11))
    looking.close()
