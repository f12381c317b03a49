"""Goal: a bit that the disk changed is harmless or reported, wherever it is; it is never served as if it had been written.

Method: a small folder as a crash leaves it, with everything that a store can hold in its tables, in their log and in two
journal segments. One bit of it is flipped, the store is opened and asked for everything. Either nothing that can be observed
differs, or the store says so: it does not open, fails, or lists what it set aside. Then the rest is served as it was.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.contract.rows import DEFERRED, HERE, NOON, SCHEDULED, UNLIMITED, row
from tests.measured import Measured
from tests.store.held_tasks import HeldTasks
from tests.store.test_durable import crashed
from twinbus.clock import NEVER
from twinbus.errors import StoreUnavailable
from twinbus.store.changes import (
    Altered,
    DuplicatesSeen,
    Enqueued,
    FragmentCreated,
    Removed,
    SessionStateSet,
    fragment_key,
)
from twinbus.store.folder.store import FolderStore
from twinbus.store.reads import ANY_STATE
from twinbus.store.store_limits import StoreLimits

OTHER = fragment_key(9, 3)
SOME_ENTRIES = StoreLimits(segment_entries_max=20, cache_bytes=1 << 20)
SESSIONS = ("a", "B", "ünï", "alone")


@dataclass(frozen=True)
class Observed:
    rows: dict[tuple[int, int], Any]
    rest: Any


def make_folder(folder: Path, *, is_closed: bool) -> Path:
    """A folder with everything in it; a store that was closed has all of it in its tables."""
    tasks = HeldTasks()
    store = FolderStore(folder, SOME_ENTRIES, tasks)
    store.commit([FragmentCreated(HERE), FragmentCreated(OTHER)])
    contents = Random(1)
    for first in range(1, 31, 10):
        rows = [
            row(number, contents.randbytes(contents.choice((0, 5, 300, 40_000)))) for number in range(first, first + 10)
        ]
        rows[1].session_id, rows[2].session_id, rows[3].session_id = SESSIONS[:3]
        rows[4].state, rows[5].state, rows[5].due_at = DEFERRED, SCHEDULED, NOON + first
        rows[6].expires_at = NOON + 1_000 + first
        states = [SessionStateSet(HERE, name, f"state {first} of {name}".encode(), NOON + first) for name in SESSIONS]
        seen = DuplicatesSeen(HERE, [(f"key {number}", NOON + number) for number in range(first, first + 10)])
        store.commit([Enqueued(HERE, rows), *states, seen, Enqueued(OTHER, [row(OTHER_BASE + first, b"elsewhere")])])
        store.commit([Removed(HERE, [first]), Altered(HERE, first + 7, DEFERRED, 2, 0, NEVER)])
        tasks.run()
    store.commit([Altered(HERE, 8, DEFERRED, 5, 0, NEVER), Enqueued(HERE, [row(31, b"the last one")])])
    if is_closed:
        store.close()
        return folder
    copy = crashed(folder)
    store.close()
    shutil.rmtree(folder)
    return copy


OTHER_BASE = 3 << 48


def observe(store: FolderStore) -> Observed:
    rows = {
        (fragment, each.sequence_number): each for fragment in (HERE, OTHER) for each in everything_of(store, fragment)
    }
    rest = (
        store.summaries(),
        [[(each.sequence_number) for each in store.scan(HERE, 0, 99, UNLIMITED, ANY_STATE, name)] for name in SESSIONS],
        store.due(HERE, NOON + 5_000, 99),
        store.expired(HERE, NOON + 5_000, 99),
        store.sessions(HERE),
        [store.session_state(HERE, name) for name in SESSIONS],
        store.duplicates(HERE),
    )
    return Observed(rows, rest)


def everything_of(store: FolderStore, fragment: int) -> list[Any]:
    return store.scan(fragment, 0, 1_000, UNLIMITED, ANY_STATE)


def outcome_of_flip(whole: Path, work: Path, expected: Observed, file: str, bit: int) -> str:
    """What became of it: harmless, refused, failed or set aside. Fails if something wrong is served."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(whole, work)
    data = bytearray((work / file).read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    (work / file).write_bytes(data)
    outcome = "harmless"
    for _ in range(12):
        store = None
        try:
            store = FolderStore(work, SOME_ENTRIES, HeldTasks())
            observed = observe(store)
            damage = store.damage()
        except StoreUnavailable:
            if store is None:
                return "refused"
            outcome = "failed"
            continue
        finally:
            if store is not None:
                store.close()
        assert all(expected.rows[key] == found for key, found in observed.rows.items()), "a wrong message is served"
        if damage:
            return "set aside"
        assert observed == expected, "something differs, and nobody says so"
        return outcome
    return outcome


def flips(folder: Path, count: int, seed: int) -> list[tuple[str, int]]:
    """Bits of all files; small files as often as large ones, and space that was never written to left out."""
    random = Random(seed)
    used = {path.name: len(path.read_bytes().rstrip(b"\0")) for path in sorted(folder.iterdir())}
    files = [name for name, size in used.items() if size and not name.endswith("-shm")]
    chosen = [random.choice(files) for _ in range(count)]
    return [(name, random.randrange(8 * used[name])) for name in chosen]


@pytest.fixture(scope="module", params=["closed", "crashed"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("whole") / "store", is_closed=request.param == "closed")


def check_flips(whole: Path, work: Path, count: int, seed: int) -> dict[str, int]:
    copy = work.with_name("copy")
    shutil.copytree(whole, copy)
    store = FolderStore(copy, SOME_ENTRIES, HeldTasks())
    expected = observe(store)
    store.close()
    assert len(expected.rows) > 25
    outcomes: dict[str, int] = {}
    for file, bit in flips(whole, count, seed):
        try:
            outcome = outcome_of_flip(whole, work, expected, file, bit)
        except BaseException as error:
            error.add_note(f"bit {bit % 8} of byte {bit // 8} of {file}")
            raise
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def test_a_flipped_bit_is_harmless_or_reported(whole: Path, tmp_path: Path) -> None:
    outcomes = check_flips(whole, tmp_path / "work", 60, seed=1)
    assert outcomes.get("set aside", 0) + outcomes.get("refused", 0) > 5, outcomes


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(10))
def test_many_flipped_bits_are_harmless_or_reported(whole: Path, tmp_path: Path, seed: int, measured: Measured) -> None:
    measured("flipped bits, store", check_flips(whole, tmp_path / "work", 500, seed + 100))
