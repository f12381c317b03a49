"""While a large checkpoint is written its files are synced, so that not all of it is left for the end."""

import os
import threading
from pathlib import Path

import pytest

from tests.contract.rows import HERE, holding, row
from twinbus.store.changes import Enqueued
from twinbus.store.folder import steady_writes
from twinbus.store.folder.steady_writes import SteadyWrites
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME
from twinbus.store.store_limits import StoreLimits

WAIT_S = 60.0


class Syncs:
    """Which files were synced, by the number of their node."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[int] = []
        self.has_seen_two = threading.Event()
        self._real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.seen.append(os.fstat(descriptor).st_ino)
        self._real(descriptor)
        if len(set(self.seen)) > 1:
            self.has_seen_two.set()


def test_files_are_synced_again_and_again_until_everything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        file.write_bytes(b"x")
    syncs, steady = Syncs(monkeypatch), SteadyWrites(files)
    with steady.during(lambda: True):
        assert syncs.has_seen_two.wait(WAIT_S)
    assert set(syncs.seen) == {file.stat().st_ino for file in files}
    assert not any(thread.name == "twinbus-steady-writes" for thread in threading.enumerate())
    steady.close()


def test_a_checkpoint_that_nobody_waits_for_is_synced_with_every_few_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, asked_count, is_synced = tmp_path / "one", 0, threading.Event()
    file.write_bytes(b"x")

    def is_hurried() -> bool:
        nonlocal asked_count
        asked_count += 1
        return False

    monkeypatch.setattr(steady_writes, "PAUSE_S", 0.001)
    monkeypatch.setattr(os, "fdatasync", lambda _: is_synced.set())
    steady = SteadyWrites([file])
    with steady.during(is_hurried):
        assert is_synced.wait(WAIT_S)
    steady.close()
    assert asked_count >= steady_writes.PACED_PAUSES - 1


def test_a_file_that_cannot_be_opened_costs_no_descriptor(tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    files[0].write_bytes(b"x")
    steady, before = SteadyWrites(files), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(FileNotFoundError), steady.during(lambda: True):
            pass
        assert len(os.listdir("/proc/self/fd")) == before + 1
    files[1].write_bytes(b"x")
    with steady.during(lambda: True):
        assert len(os.listdir("/proc/self/fd")) == before + 2
    steady.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_disk_that_fails_meanwhile_is_left_to_whoever_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, has_failed = tmp_path / "one", threading.Event()
    file.write_bytes(b"x")

    def fail(_: int) -> None:
        has_failed.set()
        raise OSError

    monkeypatch.setattr(os, "fdatasync", fail)
    steady = SteadyWrites([file])
    with steady.during(lambda: True):
        assert has_failed.wait(WAIT_S)
    steady.close()


@pytest.mark.parametrize(("size", "is_steady"), [(60_000, True), (6, False)])
def test_large_checkpoints_are_written_steadily(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, is_steady: bool
) -> None:
    store = FolderStore(tmp_path, StoreLimits())
    holding(store)
    for first in range(1, 200, 100):
        store.commit([Enqueued(HERE, [row(number, bytes(size)) for number in range(first, first + 100)])])
    syncs = Syncs(monkeypatch)
    store.checkpoint()
    names = (FILE_NAME, f"{FILE_NAME}-wal")
    assert ({(tmp_path / name).stat().st_ino for name in names} <= set(syncs.seen)) is is_steady
    assert len(store.read(HERE, range(1, 201))) == 200
    store.close()
