"""Goal: at every moment a durable store holds what a memory store holds that was told the same.

Method: commits drawn from a seed go to both. In between checkpoints start because segments are tiny,
and finish, the store is closed and opened, or the machine dies: the folder is copied as it is and
the copy is opened. All reads are compared.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from tests.store.held_tasks import HeldTasks
from tests.store.random_changes import FRAGMENTS, SESSIONS, RandomChanges
from twinbus.model.wire_names import MessageState
from twinbus.store import durable
from twinbus.store.changes import FragmentKey
from twinbus.store.durable import DurableStore
from twinbus.store.folder.store import FolderStore
from twinbus.store.memory import MemoryStore
from twinbus.store.messaging_store import MessagingStore
from twinbus.store.store_limits import StoreLimits

TINY = StoreLimits(segment_bytes_max=3_000, segment_entries_max=25)
STEPS = 120
STATE_SETS = (tuple(MessageState), (MessageState.ACTIVE,), (MessageState.DEFERRED, MessageState.SCHEDULED))


def readings(store: MessagingStore, random: Random) -> Iterator[object]:
    """Everything that can be asked, with the same random arguments for the same random state."""
    yield sorted(store.summaries(), key=lambda summary: summary.fragment)
    for fragment in FRAGMENTS:
        yield from fragment_readings(store, fragment, random)


def fragment_readings(store: MessagingStore, fragment: FragmentKey, random: Random) -> Iterator[object]:
    base = (fragment >> 2 & 63) << 48
    whole = store.scan(fragment, 0, 10_000, 1 << 40, STATE_SETS[0])
    yield whole
    yield store.read(fragment, [base + random.randrange(60) for _ in range(8)])
    for states in STATE_SETS:
        after, count_max = random.choice((0, base + random.randrange(60))), random.choice((1, 3, 50))
        session_id = random.choice(SESSIONS)
        yield store.scan(fragment, after, count_max, random.choice((1, 400, 1 << 40)), states, session_id)
    now, count_max = random.randrange(99, 121), random.choice((0, 1, 4, 100))
    yield store.due(fragment, now, count_max)
    yield store.expired(fragment, now, count_max)
    yield store.sessions(fragment)
    yield [store.session_state(fragment, name) for name in ("a", "b\x00", "c", "C")]
    yield store.duplicates(fragment)


class DurableWorld:
    """A durable store that is opened, broken and opened again in folders of its own."""

    def __init__(self, folder: Path) -> None:
        self._root = folder
        self._folder = folder / "0"
        self.tasks = HeldTasks()
        self.store = self._open()

    def _open(self) -> FolderStore:
        return FolderStore(self._folder, TINY, self.tasks)

    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()

    def crash(self) -> None:
        copy = self._root / str(int(self._folder.name) + 1)
        shutil.copytree(self._folder, copy)
        if self.tasks.newest is not None:
            self.tasks.newest.forget()
        self.abandon()
        self._folder = copy
        self.store = self._open()

    def abandon(self) -> None:
        self.store.close()


class World(Protocol):
    """A durable store that can end badly, with its tasks held back."""

    tasks: HeldTasks

    @property
    def store(self) -> DurableStore: ...

    def reopen(self) -> None: ...

    def crash(self) -> None: ...

    def abandon(self) -> None: ...


def check_against_memory(world: World, seed: int, steps: int, read_every: int) -> None:
    """Random commits, checkpoints, restarts and crashes; every so often all that can be read."""
    random = Random(seed)
    changes = RandomChanges(random)
    model = MemoryStore()
    for step in range(steps):
        commit = changes.commit()
        model.commit(commit)
        world.store.commit(commit)
        what = random.random()
        if what < 0.10:
            world.tasks.run()
        elif what < 0.13:
            world.store.checkpoint()
        elif what < 0.16:
            world.reopen()
        elif what < 0.20:
            world.crash()
        elif what < 0.60:
            world.store.catch_up()
        if step % read_every == 0 or what < 0.20:
            asked = random.random()
            for expected, got in zip(readings(model, Random(asked)), readings(world.store, Random(asked)), strict=True):
                assert got == expected, f"step {step}"
    world.abandon()


@pytest.mark.parametrize("seed", range(12))
def test_a_durable_store_holds_what_a_memory_store_holds(seed: int, tmp_path: Path) -> None:
    check_against_memory(DurableWorld(tmp_path), seed, STEPS, read_every=5)


@pytest.mark.parametrize("seed", range(12, 18))
def test_a_durable_store_that_applies_commits_in_small_steps_holds_the_same(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that most commits come while others are applied in part."""
    for limit, value in (("CHANGES_AT_ONCE", 0), ("ROWS_PER_STEP", 1)):
        monkeypatch.setattr(durable, limit, value)
    check_against_memory(DurableWorld(tmp_path), seed, STEPS, read_every=9)
