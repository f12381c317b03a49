"""Goal: whenever the power goes, what was acknowledged is there, nothing else is, and the store opens by itself.

Method: commits drawn from a seed, checkpoints and reopenings on a disk that loses what was not synced (`losing_disk`). At some of its
writes and syncs the power goes: the folder that would be found is opened and compared with a memory store of the commits that were
acknowledged, or of one more, which was under way. While it opens, the power goes once more.
"""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.measured import Measured
from tests.store.held_tasks import HeldTasks
from tests.store.losing_disk import FATES, LosingDisk, watched
from tests.store.random_changes import RandomChanges
from tests.store.test_durable_against_memory import TINY, readings
from twinbus.store.changes import Change
from twinbus.store.folder import journal
from twinbus.store.folder.identity import announce_new
from twinbus.store.folder.store import FolderStore
from twinbus.store.memory import MemoryStore

STEPS = 60
MODES: tuple[Sequence[str], ...] = (("kept",), ("dropped",), ("torn",), ("garbled",), FATES)
ALLOCATION = 16 << 10


class Cut(NamedTuple):
    found: Path
    acknowledged: int
    mode: str


class PowerCuts:
    """One history of a store, during which the power goes several times."""

    def __init__(self, folder: Path, seed: int, chance: float) -> None:
        self._folder = folder
        self._random = Random(seed)
        self._chance = chance
        self._commits: list[list[Change]] = []
        self._acknowledged = 0
        self.cuts: list[Cut] = []
        announce_new(folder / "namespace" / "known-stores" / "00")
        self._disk = LosingDisk(folder / "namespace")

    def run(self, counts: Counter[str]) -> None:
        changes = RandomChanges(self._random)
        with watched(self._disk):
            self._disk.on_event = self._event
            tasks = HeldTasks()
            store = self._open(self._disk.root, tasks)
            for _ in range(STEPS):
                self._commits.append(changes.commit())
                store.commit(self._commits[-1])
                self._acknowledged += 1
                what = self._random.random()
                if what < 0.15:
                    tasks.run()
                elif what < 0.2:
                    store.checkpoint()
                elif what < 0.25:
                    store.close()
                    tasks = HeldTasks()
                    store = self._open(self._disk.root, tasks)
                elif what < 0.5:
                    store.catch_up()
            store.close()
        for cut in self.cuts:
            self._check(cut, counts)

    def _open(self, root: Path, tasks: HeldTasks | None = None) -> FolderStore:
        return FolderStore(root / "stores" / "00", TINY, tasks or HeldTasks(), root / "known-stores" / "00")

    def _event(self) -> None:
        if self._random.random() < self._chance:
            mode = self._random.choice(MODES)
            found = self._folder / f"found-{len(self.cuts)}"
            self._disk.without_power(found, self._random, mode)
            self.cuts.append(Cut(found, self._acknowledged, mode[0] if len(mode) == 1 else "mixed"))

    def _check(self, cut: Cut, counts: Counter[str]) -> None:
        try:
            again = self._cut_while_it_opens(cut)
            for found in (again, cut.found):
                counts[cut.mode] += 1
                self._compare(found, cut.acknowledged)
        except BaseException as error:
            error.add_note(f"{cut}")
            raise

    def _cut_while_it_opens(self, cut: Cut) -> Path:
        """The power comes back, and goes again while the store opens."""
        copy, again = self._folder / "copy", self._folder / "again"
        for folder in (copy, again):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(cut.found, copy)
        disk = LosingDisk(copy)
        left = self._random.randrange(1, 40)

        def event() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                disk.without_power(again, self._random, self._random.choice(MODES))

        with watched(disk):
            disk.on_event = event
            self._open(copy).close()
            if left > 0:
                disk.without_power(again, self._random, self._random.choice(MODES))
        return again

    def _compare(self, found: Path, acknowledged: int) -> None:
        store = self._open(found)
        try:
            assert store.damage() == []
            asked = self._random.random()
            got = list(readings(store, Random(asked)))
        finally:
            store.close()
        expected = [
            list(readings(self._model(count), Random(asked)))
            for count in (acknowledged, acknowledged + 1)
            if count <= len(self._commits)
        ]
        assert got in expected, f"neither {acknowledged} commits nor one more"

    def _model(self, count: int) -> MemoryStore:
        model = MemoryStore()
        for commit in self._commits[:count]:
            model.commit(commit)
        return model


def cut_power(folder: Path, histories: int, seed: int, chance: float, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    # Only speed depends on it, and that of this test: what is found is written anew each time.
    monkeypatch.setattr(journal, "ALLOCATION_MIN", ALLOCATION)
    counts: Counter[str] = Counter()
    for number in range(histories):
        history = PowerCuts(folder / str(number), 1_000 * seed + number, chance)
        try:
            history.run(counts)
        except BaseException as error:
            error.add_note(f"seed {seed}, history {number}")
            raise
        shutil.rmtree(folder / str(number))
    return counts


def test_what_was_acknowledged_is_there_after_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = cut_power(tmp_path, histories=1, seed=1, chance=0.01, monkeypatch=monkeypatch)
    assert counts.total() >= 4


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_power_cuts_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, measured: Measured
) -> None:
    counts = cut_power(tmp_path, histories=10, seed=seed, chance=0.04, monkeypatch=monkeypatch)
    measured("power cuts", counts)
    assert counts.total() >= 200
    assert set(counts) == {*FATES, "mixed"}
