"""Sequence numbers as ranges."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from twinbus.pipeline.source.ranges import (
    RangeSet,
    by_fragment,
    count,
    half_open,
    in_pieces,
    inclusive,
    joined,
    outside,
    runs,
)

BASE = 3 << 48
numbers = st.lists(st.integers(0, 40) | st.integers(BASE, BASE + 40))


@given(numbers)
def test_runs_hold_the_numbers_that_they_were_made_of_and_no_others(given: list[int]) -> None:
    ranges = runs(given)
    assert [number for first, end in ranges for number in range(first, end)] == sorted(set(given))
    assert count(ranges) == len(set(given))
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
    assert half_open(inclusive(ranges)) == ranges


@given(numbers, numbers)
def test_a_set_of_ranges_knows_its_numbers(given: list[int], asked: list[int]) -> None:
    found = RangeSet(runs(given))
    assert [number in found for number in asked] == [number in given for number in asked]


@given(numbers, numbers)
def test_what_is_outside_of_others_is_all_but_their_numbers(given: list[int], others: list[int]) -> None:
    assert outside(runs(given), runs(others)) == runs(set(given) - set(others))
    assert outside(reversed(runs(given)), []) == runs(given)


@given(numbers, st.integers(1, 9))
def test_ranges_that_follow_each_other_are_joined_however_they_were_cut(given: list[int], size: int) -> None:
    cut = [item for piece in in_pieces(runs(given), size) for item in piece]
    assert joined(reversed(cut)) == runs(given)


@given(numbers, st.integers(1, 9))
def test_pieces_are_full_but_for_the_last_and_lose_nothing(given: list[int], size: int) -> None:
    ranges = runs(given)
    pieces = list(in_pieces(ranges, size))
    assert runs(n for piece in pieces for first, end in piece for n in range(first, end)) == ranges
    assert all(count(piece) == size for piece in pieces[:-1])
    assert all(0 < count(piece) <= size for piece in pieces)


def test_ranges_are_told_apart_by_fragment() -> None:
    assert by_fragment([(1, 3), (BASE + 1, BASE + 2), (5, 6)]) == {0: [(1, 3), (5, 6)], 3: [(BASE + 1, BASE + 2)]}
