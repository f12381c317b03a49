"""Shares of fragments, limits, and tasks."""

import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.pipeline.source.planning import MessageSlices, fair_shares, input_partitions, row_limit, task_count
from twinbus.pipeline.source.ranges import RangeSet, count, outside

available = st.dictionaries(st.integers(0, 15), st.integers(0, 50))


@given(available, st.integers(1, 300), st.integers(0, 20))
def test_shares_use_the_limit_up_and_no_fragment_gets_more_than_it_has(
    waiting: dict[int, int], limit: int, turn: int
) -> None:
    shares = fair_shares(waiting, limit, turn)
    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 < share <= waiting[fragment] for fragment, share in shares.items())


@given(available, st.integers(1, 300), st.integers(0, 20))
def test_who_gets_less_than_another_gets_all_it_has_or_one_less(waiting: dict[int, int], limit: int, turn: int) -> None:
    shares = fair_shares(waiting, limit, turn)
    most = max(shares.values(), default=0)
    for fragment, number in waiting.items():
        share = shares.get(fragment, 0)
        assert share == number or share >= most - 1


def test_fragments_take_turns_when_there_is_not_one_for_each() -> None:
    served: Counter[int] = Counter()
    for turn in range(16):
        served.update(fair_shares(dict.fromkeys(range(16), 100), 3, turn))
    assert set(served.values()) == {3}


def test_without_a_limit_everything_is_read() -> None:
    assert fair_shares({0: 5, 1: 0, 2: 7}, None, 0) == {0: 5, 2: 7}


@pytest.mark.parametrize(
    ("count_max", "bytes_max", "mean_size", "rows"),
    [(None, None, 10, None), (5, None, 10, 5), (None, 100, 10, 10), (5, 100, 10, 5), (50, 100, 10, 10), (9, 5, 10, 1)],
)
def test_a_limit_in_bytes_counts_by_the_mean_size_and_lets_one_message_through(
    count_max: int | None, bytes_max: int | None, mean_size: int, rows: int | None
) -> None:
    assert row_limit(count_max, bytes_max, mean_size) == rows


ranges = st.lists(st.tuples(st.integers(0, 15), st.integers(1, 60)), max_size=20).map(
    lambda sizes: [
        ((place << 48) + 1 + 100 * index, (place << 48) + 1 + 100 * index + size)
        for index, (place, size) in enumerate(sizes)
    ]
)


@given(ranges, ranges, st.integers(1, 9))
def test_tasks_must_find_what_of_their_numbers_is_surely_there(
    whole: list[tuple[int, int]], others: list[tuple[int, int]], tasks_max: int
) -> None:
    whole = sorted(whole)
    held = outside(whole, others)
    tasks = input_partitions([("a", whole)], tasks_max, is_own=True, held=held)
    for task in tasks:
        for part in task.slices:
            assert part.count_min == sum(
                number in RangeSet(held) for first, end in part.ranges for number in range(first, end)
            )
    assert sum(part.count_min for task in tasks for part in task.slices) == count(held)


@given(ranges, ranges, st.integers(1, 9))
def test_tasks_hold_every_number_once_and_are_of_equal_size(
    first: list[tuple[int, int]], second: list[tuple[int, int]], tasks_max: int
) -> None:
    tasks = input_partitions([("a", first), ("b", second)], tasks_max, is_own=True)
    held = [
        (part.path, number)
        for task in tasks
        for part in task.slices
        for start, end in part.ranges
        for number in range(start, end)
    ]
    wanted = [
        (path, number)
        for path, given in (("a", first), ("b", second))
        for start, end in given
        for number in range(start, end)
    ]
    assert sorted(held) == sorted(wanted)
    total = len(wanted)
    sizes = [sum(count(part.ranges) for part in task.slices) for task in tasks]
    assert len(tasks) == min(tasks_max, total)
    assert all(size in (total // len(tasks), -(-total // len(tasks))) for size in sizes)


@pytest.mark.parametrize(
    ("rows", "mean_size", "tasks"),
    [
        (0, 1_000, 1),
        (25_000, 1_000, 1),
        (25_001, 1_000, 2),
        (25_001, 1, 2),
        (100_000, 1_000, 4),
        (100_000, 3_200, 10),
        (1_000_000, 1_000, 16),
        (15_000, 100_000, 3),
        (15_000, 0, 3),
    ],
)
def test_a_task_has_25000_messages_or_32_mib_of_them_but_never_less_than_5000(
    rows: int, mean_size: int, tasks: int
) -> None:
    assert task_count(rows, mean_size, 1, 16) == tasks


def test_tasks_are_as_many_as_the_options_say_at_least_and_at_most() -> None:
    assert task_count(10, 1_000, 3, 16) == 3
    assert task_count(1_000_000, 1_000, 1, 2) == 2


def test_what_a_task_reads_can_be_pickled_and_shown() -> None:
    (task,) = input_partitions([("q", [(1, 4)])], 1, is_own=False)
    again = pickle.loads(pickle.dumps(task))
    assert isinstance(again, MessageSlices)
    assert (again.slices, again.is_own) == (task.slices, False)
    assert "q" in repr(again)
