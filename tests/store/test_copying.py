"""A store is copied while it commits and checkpoints: every copy is the store as it was after one commit."""

import resource
import shutil
import threading
from pathlib import Path

import pytest

from tests.contract.rows import HERE, everything, holding, numbers, row
from tests.store.held_tasks import HeldTasks
from twinbus.errors import StoreGone, StoreUnavailable
from twinbus.store.changes import Enqueued, Removed
from twinbus.store.folder import copying
from twinbus.store.folder.copying import copy_database, copy_store
from twinbus.store.folder.folder_check import check_folder
from twinbus.store.folder.identity import IDENTITY_NAME, announce_new
from twinbus.store.folder.journal import NAME_PREFIX, segment_path
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME
from twinbus.store.store_limits import StoreLimits

OFTEN = StoreLimits(segment_entries_max=8)
"""A checkpoint every few commits, so that many happen while a copy is made."""
COPIES = 12
WAITING = 6
"""How many messages there are: some of them in a sealed segment, removed in the one after it."""
COMMITS_MAX = 5_000


class Committing:
    """Adds messages 1, 2, 3, … until it is told to stop, and with each one removes the one WAITING before it. `done` is the
    last one that is durable."""

    def __init__(self, folder: Path) -> None:
        self.done = 0
        self._folder = folder
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Committing":
        self._thread.start()
        assert self._begun.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        store = FolderStore(self._folder, OFTEN)
        holding(store)
        for number in range(1, COMMITS_MAX):
            if self._stop.is_set():
                break
            store.commit([Enqueued(HERE, [row(number)]), Removed(HERE, [number - WAITING])])
            self.done = number
            self._begun.set()
        store.close()


def test_copies_under_load_end_with_one_of_the_commits(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Committing(folder) as committing:
        seen: list[tuple[int, Path, int]] = []
        for index in range(COPIES):
            before = committing.done
            copy_store(folder, tmp_path / f"copy-{index}")
            seen.append((before, tmp_path / f"copy-{index}", committing.done))
    assert committing.done > COPIES
    for before, copy, after in seen:
        assert check_folder(copy, None) == []
        store = FolderStore(copy)
        found = numbers(everything(store))
        last = found[-1]
        assert found == list(range(max(1, last - WAITING + 1), last + 1)), "what came with each removal is there"
        assert before <= last <= after + 1
        # It takes commits where the original was.
        store.commit([Enqueued(HERE, [row(last + 1)])])
        store.close()


def test_a_store_that_was_never_opened_is_copied_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    copy_store(tmp_path / "empty", tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


def test_a_store_that_is_not_where_it_was_is_not_copied_as_nothing(tmp_path: Path) -> None:
    store, witness = tmp_path / "stores" / "00", tmp_path / "known-stores" / "00"
    announce_new(witness)
    FolderStore(store, witness=witness).close()
    shutil.rmtree(store)
    store.mkdir()
    with pytest.raises(StoreGone, match="missing or empty"):
        copy_store(store, tmp_path / "copy", witness)


def test_a_store_without_its_tables_is_not_copied_and_gets_none(tmp_path: Path) -> None:
    FolderStore(tmp_path / "store").close()
    (tmp_path / "store" / FILE_NAME).unlink()
    with pytest.raises(StoreGone, match=f"{FILE_NAME} is missing"):
        copy_store(tmp_path / "store", tmp_path / "copy")
    assert not (tmp_path / "store" / FILE_NAME).exists()


def test_a_store_of_a_version_that_kept_no_identity_is_copied(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    holding(store, row(1))
    store.close()
    (tmp_path / "store" / IDENTITY_NAME).unlink()
    copy_store(tmp_path / "store", tmp_path / "copy", tmp_path / "known-stores" / "00")
    copied = FolderStore(tmp_path / "copy")
    assert numbers(everything(copied)) == [1]
    copied.close()


def test_a_store_that_is_being_created_is_copied_as_nothing(tmp_path: Path) -> None:
    """It gets its identity before its first commit, and its tables before that."""
    witness = tmp_path / "known-stores" / "00"
    announce_new(witness)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / FILE_NAME).touch()
    copy_store(tmp_path / "store", tmp_path / "copy", witness)
    assert list((tmp_path / "copy").iterdir()) == []


def test_a_disk_that_is_full_is_filled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path / "store", OFTEN)
    holding(store, *(row(number, b"x" * 10_000) for number in range(1, 20)))
    store.close()
    store = FolderStore(tmp_path / "store", OFTEN)
    store.close()
    tries, copied = list[Path](), copying._copied

    def count_and_copy(source: Path, target: Path) -> bool:
        tries.append(source)
        return copied(source, target)

    monkeypatch.setattr(copying, "_copied", count_and_copy)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, hard))  # room for the journal, and not for the tables
    try:
        with pytest.raises(StoreUnavailable, match="cannot be copied: disk I/O error"):
            copy_store(tmp_path / "store", tmp_path / "copy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(tries) == 1


def test_a_database_that_is_missing_is_not_copied_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be copied: unable to open database file"):
        copy_database(tmp_path / "catalog #1?.db", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_a_copy_of_a_closed_store_is_whole(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    holding(store, row(1), row(2))
    store.close()
    copy_store(tmp_path / "store", tmp_path / "copy")
    copied = FolderStore(tmp_path / "copy")
    assert numbers(everything(copied)) == [1, 2]
    copied.close()


def test_a_copy_during_which_a_checkpoint_ends_is_one_commit_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint leaves out what was removed in a later segment, so that segment has to be in the copy as far as that."""
    tasks = HeldTasks()
    store = FolderStore(tmp_path / "store", OFTEN, tasks)
    holding(store, *(row(number) for number in range(1, 10)))
    store.commit([Enqueued(HERE, [row(10)])])
    copy_file, is_first = shutil.copyfile, [True]

    def copy_and_go_on(source: Path, target: Path) -> None:
        copy_file(source, target)
        if is_first and source == segment_path(tmp_path / "store", 2):
            is_first.clear()
            (target.parent / "left by the first try").touch()
            store.commit([Removed(HERE, [1]), Enqueued(HERE, [row(11), row(12), row(13)])])
            store.commit([Enqueued(HERE, [row(14)])])
            tasks.run()

    monkeypatch.setattr(shutil, "copyfile", copy_and_go_on)
    copy_store(tmp_path / "store", tmp_path / "copy")
    assert not (tmp_path / "copy" / "left by the first try").exists()
    copied = FolderStore(tmp_path / "copy")
    assert not is_first
    assert numbers(everything(copied)) == list(range(2, 15))
    copied.close()
    store.close()


def test_a_file_that_is_no_database_cannot_be_copied(tmp_path: Path) -> None:
    source = tmp_path / "file"
    source.write_bytes(b"no database" * 100)
    with pytest.raises(StoreUnavailable, match=f"{source} cannot be copied: "):
        copy_database(source, tmp_path / "copy")


def test_a_store_that_cannot_be_copied_is_said_to_be_so_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "TRIES_MAX", 2)
    source = tmp_path / "store"
    FolderStore(source).close()
    (source / FILE_NAME).write_bytes(b"no database" * 100)
    with pytest.raises(StoreUnavailable, match="cannot be copied: file is not a database"):
        copy_store(source, tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


def test_a_copy_has_no_room_for_more_commits(tmp_path: Path) -> None:
    """A journal has its room ahead of them, which may be much larger than what is in it."""
    store = FolderStore(tmp_path / "store")
    holding(store, row(1))
    copy_store(tmp_path / "store", tmp_path / "copy")
    (here,) = (tmp_path / "store").glob(f"{NAME_PREFIX}*")
    size = (tmp_path / "copy" / here.name).stat().st_size
    assert size < here.stat().st_size
    store.commit([Enqueued(HERE, [row(2)])])
    copy_store(tmp_path / "store", tmp_path / "later")
    assert size < (tmp_path / "later" / here.name).stat().st_size
    store.close()
