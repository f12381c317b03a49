"""Disk space comes back when messages are gone, in steps that keep nobody waiting."""

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.rows import HERE, everything, holding, row
from tests.store.held_tasks import HeldTasks
from twinbus.errors import StoreUnavailable
from twinbus.store.changes import Enqueued, FragmentCreated, Removed
from twinbus.store.folder.checkpoint import FREE_PAGES_KEPT, PAGES_PER_STEP, give_back_space
from twinbus.store.folder.journal import segment_path
from twinbus.store.folder.medium import FolderMedium
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME, INCREMENTAL, PAGE_BYTES, connect
from twinbus.store.layers.pace import CommitTraffic, Pace

LARGE = b"x" * 200_000
COUNT = 100
STEPS = 5


class CountedSteps(Pace):
    def __init__(self) -> None:
        super().__init__(CommitTraffic(), lambda: False)
        self.count = 0

    def give_way(self) -> None:
        self.count += 1


def size_of(folder: Path) -> int:
    return (folder / FILE_NAME).stat().st_size


def with_backlog(folder: Path, tasks: HeldTasks) -> FolderStore:
    store = FolderStore(folder, start_task=tasks)
    holding(store, *(row(number, LARGE) for number in range(1, COUNT + 1)))
    store.checkpoint()
    assert size_of(folder) > COUNT * len(LARGE)
    return store


def test_a_file_of_a_release_that_could_give_no_space_back_is_written_anew(tmp_path: Path) -> None:
    with closing(FolderStore(tmp_path)) as store:
        holding(store, row(1))
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as former:
        for statement in ("PRAGMA journal_mode = DELETE", "PRAGMA auto_vacuum = NONE", "VACUUM"):
            former.execute(statement)
        assert former.execute("PRAGMA auto_vacuum").fetchone() == (0,)
    with closing(FolderStore(tmp_path)) as store:
        assert everything(store) == [row(1)]
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as now:
        assert now.execute("PRAGMA auto_vacuum").fetchone() == (INCREMENTAL,)


def test_the_space_of_removed_messages_comes_back(tmp_path: Path) -> None:
    tasks = HeldTasks()
    store = with_backlog(tmp_path, tasks)
    store.commit([Removed(HERE, list(range(1, COUNT)))])
    store.rest()
    tasks.run()
    store.rest()
    assert size_of(tmp_path) <= (FREE_PAGES_KEPT + 40) * PAGE_BYTES
    assert everything(store) == [row(COUNT, LARGE)]
    store.close()
    store = FolderStore(tmp_path)
    assert everything(store) == [row(COUNT, LARGE)]
    store.close()


def test_a_step_gives_back_many_pages(tmp_path: Path) -> None:
    with closing(connect(tmp_path, PAGE_BYTES)) as connection:
        connection.execute("CREATE TABLE filled (content BLOB)")
        size = (FREE_PAGES_KEPT + STEPS * PAGES_PER_STEP) * PAGE_BYTES
        connection.execute("INSERT INTO filled VALUES (zeroblob(?))", (size,))
        connection.execute("DROP TABLE filled")
        pace = CountedSteps()
        give_back_space(connection, pace, is_short=True)
    assert STEPS <= pace.count <= STEPS + 1


def test_what_is_removed_is_not_overwritten_first(tmp_path: Path) -> None:
    with closing(connect(tmp_path, PAGE_BYTES)) as connection:
        assert connection.execute("PRAGMA secure_delete").fetchone() == (0,)


def test_a_checkpoint_that_is_wanted_does_not_wait_until_space_is_given_back(tmp_path: Path) -> None:
    tasks = HeldTasks()
    store = with_backlog(tmp_path, tasks)
    store.commit([Removed(HERE, list(range(1, COUNT)))])
    store.checkpoint()
    assert size_of(tmp_path) > COUNT * len(LARGE) // 2, "who waits for a checkpoint does not wait for space"
    store.commit([Enqueued(HERE, [row(COUNT + 1)])])
    store.rest()
    tasks.run()
    assert size_of(tmp_path) <= (FREE_PAGES_KEPT + 40) * PAGE_BYTES
    assert everything(store) == [row(COUNT, LARGE), row(COUNT + 1)]
    store.close()


def test_space_that_was_not_given_back_before_a_store_closed_comes_back_when_it_rests(tmp_path: Path) -> None:
    store = with_backlog(tmp_path, HeldTasks())
    store.commit([Removed(HERE, list(range(1, COUNT)))])
    store.close()
    assert size_of(tmp_path) > COUNT * len(LARGE) // 2
    tasks = HeldTasks()
    store = FolderStore(tmp_path, start_task=tasks)
    store.rest()
    tasks.run()
    assert size_of(tmp_path) <= (FREE_PAGES_KEPT + 40) * PAGE_BYTES
    store.close()


def test_space_that_will_be_used_again_is_kept(tmp_path: Path) -> None:
    tasks = HeldTasks()
    store = with_backlog(tmp_path, tasks)
    before = size_of(tmp_path)
    store.commit([Removed(HERE, list(range(1, COUNT // 10)))])
    store.rest()
    tasks.run()
    assert size_of(tmp_path) == before
    store.close()


def test_a_full_disk_is_said_with_the_folder_and_that_the_store_opens_by_itself(tmp_path: Path) -> None:
    """Of the journal and of SQLite, which has a text and a number of its own for it."""
    tables = sqlite3.connect(tmp_path / "small")
    tables.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError) as no_page:
        tables.execute("CREATE TABLE t (x)")
    tables.close()
    medium = FolderMedium(tmp_path)
    for fault in (OSError(errno.ENOSPC, "No space left on device"), no_page.value):
        said = f"The disk of {tmp_path} is full. Free some space; the store opens by itself then."
        assert str(medium.failure(fault)) == said


def test_a_disk_that_takes_a_part_of_a_commit_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path)
    store.commit([FragmentCreated(HERE)])
    write = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda file, pieces, place: write(file, [b"".join(pieces)[:-1]], place))
    with pytest.raises(StoreUnavailable, match=r"is full\. Free some space; the store opens by itself then"):
        store.commit([Enqueued(HERE, [row(1)])])
    monkeypatch.undo()
    store.close()
    store = FolderStore(tmp_path)
    assert not everything(store)
    store.close()


def test_what_was_written_of_a_commit_that_does_not_fit_gives_its_space_back_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open the store again takes some: with what a large commit has left behind there would be none."""
    store = FolderStore(tmp_path)
    store.commit([FragmentCreated(HERE)])
    journal = segment_path(tmp_path, 1)
    before = journal.stat().st_size
    write = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda file, pieces, place: write(file, [b"".join(pieces)[:-1]], place))
    with pytest.raises(StoreUnavailable):
        store.commit([Enqueued(HERE, [row(1, content=bytes(2 * before))])])
    assert journal.stat().st_size < before
    store.close()
