"""How long segments may get if several stores share a budget."""

from math import inf
from pathlib import Path

from tests.contract.rows import HERE, row
from twinbus.store.changes import Enqueued, FragmentCreated
from twinbus.store.folder.journal import segment_numbers
from twinbus.store.folder.store import FolderStore
from twinbus.store.store_limits import JournalBudget, StoreLimits

PLENTY = 1 << 30


def limits(budget: JournalBudget) -> StoreLimits:
    return StoreLimits(segment_entries_max=10, budget=budget)


def filled(folder: Path, budget: JournalBudget, commit_count: int) -> FolderStore:
    """A store with so many commits of nine rows, ten entries each."""
    store = FolderStore(folder, limits(budget))
    store.commit([FragmentCreated(HERE)])
    for first in range(1, 9 * commit_count, 9):
        store.commit([Enqueued(HERE, [row(number) for number in range(first, first + 9)])])
        store.wait_for_checkpoint()
    return store


def test_a_store_that_is_busy_alone_uses_half_of_the_budget_for_a_segment(tmp_path: Path) -> None:
    budget = JournalBudget(200, PLENTY)
    filled(tmp_path, budget, 10)
    assert segment_numbers(tmp_path) == [1]


def test_a_segment_is_sealed_when_its_share_is_used(tmp_path: Path) -> None:
    budget = JournalBudget(200, PLENTY)
    filled(tmp_path, budget, 11)
    assert segment_numbers(tmp_path) == [1, 2]


def test_a_store_always_has_its_own_share_whatever_the_others_hold(tmp_path: Path) -> None:
    budget = JournalBudget(20, PLENTY)
    budget.record(1, 1_000, 0)
    filled(tmp_path, budget, 1)
    assert segment_numbers(tmp_path) == [1]


def test_what_others_hold_shortens_a_segment(tmp_path: Path) -> None:
    budget = JournalBudget(200, PLENTY)
    budget.record(1, 150, 0)
    filled(tmp_path, budget, 6)
    assert segment_numbers(tmp_path)[0] > 1


def test_a_store_has_what_the_others_leave_of_the_budget_and_of_the_disk() -> None:
    budget = JournalBudget(100, 1_000)
    budget.record(1, 30, 300)
    budget.record(2, 20, 100)
    assert budget.left_by_others(1, inf) == (80, 900)
    assert budget.left_by_others(3, inf) == (50, 600)
    assert budget.left_by_others(3, 500) == (50, 100)
    assert budget.left_by_others(3, 399) == (50, 0)
    budget.record(2, 200, 100)
    assert budget.left_by_others(1, inf) == (0, 900)


def test_a_closed_store_leaves_its_share_to_the_others(tmp_path: Path) -> None:
    budget = JournalBudget(200, PLENTY)
    filled(tmp_path, budget, 3).close()
    assert budget.left_by_others(0, inf) == (200, PLENTY)


def test_limits_shared_by_many_stores_are_smaller_each_and_never_tiny() -> None:
    alone, four, very_many = (StoreLimits.shared_by(count) for count in (1, 4, 1_000))
    for name, least in (("segment_bytes_max", 8 << 20), ("segment_entries_max", 6_000), ("cache_bytes", 1 << 20)):
        assert getattr(alone, name) == getattr(StoreLimits(), name)
        assert getattr(four, name) == getattr(alone, name) // 4
        assert getattr(very_many, name) == least
