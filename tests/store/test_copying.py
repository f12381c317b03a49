"""A store is copied while it commits and checkpoints: every copy is the store as it was after one commit."""

import threading
from pathlib import Path

from tests.contract.rows import HERE, everything, holding, numbers, row
from twinbus.store.changes import Enqueued
from twinbus.store.folder.copying import copy_store
from twinbus.store.folder.folder_check import check_folder
from twinbus.store.folder.store import FolderStore
from twinbus.store.store_limits import StoreLimits

OFTEN = StoreLimits(segment_entries_max=8)
"""A checkpoint every few commits, so that many happen while a copy is made."""
COPIES = 12
COMMITS_MAX = 5_000


class Committing:
    """Adds messages 1, 2, 3, … until it is told to stop. `done` is the last one that is durable."""

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
            store.commit([Enqueued(HERE, [row(number)])])
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
        assert found == list(range(1, len(found) + 1))
        assert before <= len(found) <= after + 1
        # It takes commits where the original was.
        store.commit([Enqueued(HERE, [row(len(found) + 1)])])
        store.close()


def test_a_store_that_was_never_opened_is_copied_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    copy_store(tmp_path / "empty", tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


def test_a_copy_of_a_closed_store_is_whole(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    holding(store, row(1), row(2))
    store.close()
    copy_store(tmp_path / "store", tmp_path / "copy")
    copied = FolderStore(tmp_path / "copy")
    assert numbers(everything(copied)) == [1, 2]
    copied.close()
