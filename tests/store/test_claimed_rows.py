"""Rows that get a state together, as those of a claim do: what a store holds then is what a memory store holds, before and after
checkpoints, and what was damaged is not healed on the way.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.contract.rows import ACTIVE, DEFERRED, EVERY_STATE, HERE, SCHEDULED, UNLIMITED, everything, numbers, row
from tests.store.postgres_places import opened, place
from twinbus.clock import NEVER
from twinbus.errors import StoreUnavailable
from twinbus.store.changes import Altered, AlteredTogether, Change, Enqueued, FragmentCreated, Removed
from twinbus.store.checksums import restated_difference, row_sum
from twinbus.store.durable import DurableStore
from twinbus.store.folder import checkpoint as folder_checkpoint
from twinbus.store.folder.journal import segment_numbers
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME, Snapshot
from twinbus.store.memory import MemoryStore
from twinbus.store.postgres import checkpoint as postgres_checkpoint
from twinbus.store.store_limits import StoreLimits

COUNT = 120
OWNER = 77


@pytest.fixture(params=["folder", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DurableStore]:
    if request.param == "folder":
        made: DurableStore = FolderStore(tmp_path / "store")
    else:
        dsn, namespace = request.getfixturevalue("postgres_dsn"), request.getfixturevalue("fresh_namespace")
        made = opened(place(dsn, namespace))
    with closing(made):
        yield made


def some_changes(dice: Random) -> Iterator[list[Change]]:
    """Claims of long runs, parts of which are removed, released, or changed one by one; some messages have sessions or end."""
    rows = [
        row(
            number,
            dice.randbytes(20),
            expires_at=dice.choice((NEVER, NEVER, 9)),
            session_id="s" if dice.random() < 0.02 else None,
        )
        for number in range(1, COUNT + 1)
    ]
    yield [FragmentCreated(HERE), Enqueued(HERE, rows)]
    for _ in range(12):
        first = dice.randrange(1, COUNT)
        run = list(range(first, min(COUNT + 1, first + dice.randrange(1, 50))))
        number = dice.choice(run)
        yield dice.choice(
            [
                [AlteredTogether(HERE, run, DEFERRED, OWNER)],
                [AlteredTogether(HERE, run, DEFERRED, OWNER + 1), AlteredTogether(HERE, run[::3], ACTIVE, 0)],
                [AlteredTogether(HERE, run, SCHEDULED, 5)],
                [Removed(HERE, run[: len(run) // 2])],
                [Altered(HERE, number, DEFERRED, 3, 0, NEVER, dice.choice((None, b"other")))],
            ]
        )


@pytest.mark.parametrize("seed", range(10))
def test_runs_that_get_a_state_together_are_in_the_tables_what_they_are_in_memory(
    store: DurableStore, seed: int
) -> None:
    dice = Random(seed)
    memory = MemoryStore()
    for changes in some_changes(dice):
        for each in (memory, store):
            each.commit(changes)
        if dice.random() < 0.5:
            store.checkpoint()
        assert everything(store) == everything(memory)
        after, last = dice.randrange(COUNT), dice.randrange(COUNT)
        for states in (EVERY_STATE, (DEFERRED,), (ACTIVE,)):
            page = (HERE, after, 20, UNLIMITED, states, None, last)
            assert store.scan(*page) == memory.scan(*page)
        assert store.summaries() == memory.summaries()
        assert store.expired(HERE, 10, COUNT) == memory.expired(HERE, 10, COUNT)
        assert store.due(HERE, 10, COUNT) == memory.due(HERE, 10, COUNT)
    store.checkpoint()
    assert not store.check(-1).damaged


def test_a_claim_of_messages_that_were_just_sent_takes_no_more_room_for_them(tmp_path: Path) -> None:
    with closing(FolderStore(tmp_path / "store", StoreLimits(segment_entries_max=COUNT + 10))) as store:
        store.commit([FragmentCreated(HERE), Enqueued(HERE, [row(number) for number in range(1, COUNT + 1)])])
        store.commit([AlteredTogether(HERE, list(range(1, COUNT + 1)), DEFERRED, OWNER)])
        store.commit([Removed(HERE, list(range(1, COUNT + 1)))])
        assert everything(store) == []
        assert segment_numbers(tmp_path / "store") == [1], "nothing has to leave the journal"


def test_a_claim_of_messages_in_the_tables_takes_room_for_them(tmp_path: Path) -> None:
    with closing(FolderStore(tmp_path / "store", StoreLimits(segment_entries_max=COUNT - 10))) as store:
        store.commit([FragmentCreated(HERE), Enqueued(HERE, [row(number) for number in range(1, COUNT + 1)])])
        store.checkpoint()
        before = max(segment_numbers(tmp_path / "store"))
        store.commit([AlteredTogether(HERE, list(range(1, COUNT + 1)), DEFERRED, OWNER)])
        store.catch_up()
        assert max(segment_numbers(tmp_path / "store")) > before


def sum_of(*facts: Any) -> int:
    values: Any = (*facts, None)
    return row_sum(*values)


@pytest.mark.parametrize("seed", range(20))
def test_checksums_of_rows_that_get_the_same_state_differ_by_the_same_bits(seed: int) -> None:
    dice = Random(seed)
    state, due_at, new_state, new_due_at = (dice.randrange(-(1 << 62), 1 << 62) for _ in range(4))
    others = [dice.randrange(-(1 << 62), 1 << 62) for _ in range(7)]
    first, *rest = others
    before = sum_of(first, state, due_at, *rest)
    after = sum_of(first, new_state, new_due_at, *rest)
    assert after == before ^ restated_difference(state, due_at, new_state, new_due_at)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty messages in the tables."""
    with closing(FolderStore(tmp_path / "store")) as store:
        store.commit([FragmentCreated(HERE), Enqueued(HERE, [row(number) for number in range(1, 21)])])
    return tmp_path / "store"


@pytest.mark.parametrize("damage", ["delivery_count = 1", "content_sum = content_sum + 1", "checksum = checksum + 1"])
def test_a_damaged_row_stays_damaged_when_the_run_that_it_is_in_is_claimed(folder: Path, damage: str) -> None:
    with closing(FolderStore(folder)) as store:
        claim_and_damage(store, folder, damage)
        store.checkpoint()
        with pytest.raises(StoreUnavailable, match="damaged"):
            everything(store)
    with closing(FolderStore(folder)) as store:
        assert numbers(everything(store)) == [number for number in range(1, 21) if number != 5]


def test_a_state_that_is_none_does_not_end_the_checkpoint_of_a_claim(folder: Path) -> None:
    """What the claim made of the row is written in its place."""
    with closing(FolderStore(folder)) as store:
        claim_and_damage(store, folder, "state = 'text'")
        store.checkpoint()
        assert numbers(everything(store)) == list(range(1, 21))


def claim_and_damage(store: FolderStore, folder: Path, damage: str) -> None:
    """After message 5 was read for the claim, and before the checkpoint."""
    store.commit([AlteredTogether(HERE, list(range(1, 21)), DEFERRED, OWNER)])
    store.catch_up()
    with closing(sqlite3.connect(folder / FILE_NAME)) as tables, tables:
        tables.execute(f"UPDATE messages SET {damage} WHERE id = ?", (1 << 44 | 5,))


def test_rows_whose_states_differ_are_written_one_by_one(folder: Path) -> None:
    with closing(FolderStore(folder)) as store:
        store.commit([AlteredTogether(HERE, [7], DEFERRED, OWNER)])
        store.checkpoint()
        store.commit([AlteredTogether(HERE, list(range(1, 21)), DEFERRED, OWNER + 1)])
        store.checkpoint()
        assert {(each.state, each.due_at) for each in everything(store)} == {(DEFERRED, OWNER + 1)}
        assert not store.check(-1).damaged


@pytest.mark.parametrize("content", [None, b"other"])
def test_what_changed_otherwise_within_a_claimed_run_is_written_as_well(
    store: DurableStore, content: bytes | None
) -> None:
    store.commit([FragmentCreated(HERE), Enqueued(HERE, [row(number) for number in range(1, 21)])])
    store.checkpoint()
    store.commit([AlteredTogether(HERE, list(range(1, 21)), DEFERRED, OWNER)])
    store.commit([Altered(HERE, 9, DEFERRED, 3, OWNER, NEVER, content)])
    before = everything(store)
    store.checkpoint()
    assert everything(store) == before
    assert [each.sequence_number for each in before if each.delivery_count == 3] == [9]


def test_rows_of_a_claim_that_do_not_follow_each_other_are_written_together(
    store: DurableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a way to the database and back otherwise."""
    statements: list[str] = []
    for each in (folder_checkpoint._FragmentCheckpoint, postgres_checkpoint._FragmentCheckpoint):
        monkeypatch.setattr(each, "_run", noted(each._run, statements))
    store.commit([FragmentCreated(HERE), Enqueued(HERE, [row(number) for number in range(1, COUNT)])])
    store.checkpoint()
    store.commit([AlteredTogether(HERE, list(range(1, COUNT, 2)), DEFERRED, OWNER)])
    statements.clear()
    store.checkpoint()
    assert 0 < len(statements) < 10
    assert [each.state for each in everything(store)] == [DEFERRED, ACTIVE] * (COUNT // 2 - 1) + [DEFERRED]


def noted(run: Callable[..., Any], statements: list[str]) -> Callable[..., Any]:
    def run_noted(checkpoint: object, name: str, *parameters: object) -> Any:
        statements.append(name)
        return run(checkpoint, name, *parameters)

    return run_noted


def test_a_page_of_claimed_rows_reads_none_of_the_rows_below_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(FolderStore(folder)) as store:
        store.commit([AlteredTogether(HERE, list(range(1, 21)), DEFERRED, OWNER)])
        store.catch_up()

        def refused(*_: object) -> list[object]:
            raise AssertionError("rows of the tables were read")

        monkeypatch.setattr(Snapshot, "rows_after", refused)
        found = store.scan(HERE, 4, 10, UNLIMITED, (DEFERRED,), None, 12)
        assert numbers(found) == list(range(5, 13))
