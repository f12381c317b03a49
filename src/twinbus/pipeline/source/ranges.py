"""Sequence numbers as ranges: numbers in, half-open runs out, and what can be done with them.

A sequence number carries its fragment in the upper bits, so a range never leaves its fragment, and ranges of different
fragments stand next to each other in one list. They are half-open, `(first, end)`, in here and in offsets; the
namespace's own operations include both ends.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from twinbus.model.wire_names import SEQUENCE_BITS

Range: TypeAlias = tuple[int, int]
"""The first sequence number, and the one behind the last."""


def fragment_of(number: int) -> int:
    return number >> SEQUENCE_BITS


def runs(numbers: Iterable[int]) -> list[Range]:
    """The ranges that these numbers make up, in any order and however often each of them occurs."""
    found: list[Range] = []
    for number in sorted(set(numbers)):
        append(found, number)
    return found


def append(ranges: list[Range], number: int) -> None:
    """A number above all that the ranges have."""
    if ranges and ranges[-1][1] == number:
        ranges[-1] = (ranges[-1][0], number + 1)
    else:
        ranges.append((number, number + 1))


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same numbers, rising, with those ranges as one that follow each other without a gap. None has a number twice."""
    found: list[Range] = []
    for first, end in sorted(ranges):
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return found


def count(ranges: Iterable[Range]) -> int:
    return sum(end - first for first, end in ranges)


def inclusive(ranges: Iterable[Range]) -> list[Range]:
    """As requests name them: the first and the last."""
    return [(first, end - 1) for first, end in ranges]


def half_open(ranges: Iterable[Range]) -> list[Range]:
    return [(first, last + 1) for first, last in ranges]


def by_fragment(ranges: Iterable[Range]) -> dict[int, list[Range]]:
    found: dict[int, list[Range]] = {}
    for item in ranges:
        found.setdefault(fragment_of(item[0]), []).append(item)
    return found


def in_pieces(ranges: Iterable[Range], count_max: int) -> Iterator[list[Range]]:
    """The same numbers in the same order, in lists of at most `count_max` numbers each; ranges are cut where needed."""
    assert count_max > 0
    piece: list[Range] = []
    room = count_max
    for first, end in ranges:
        while first < end:
            cut = min(end, first + room)
            piece.append((first, cut))
            room -= cut - first
            first = cut
            if room == 0:
                yield piece
                piece, room = [], count_max
    if piece:
        yield piece


def outside(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """What is left of the ranges without the numbers of the others, rising. Neither has a number twice."""
    left: list[Range] = []
    cuts = sorted(others)
    place = 0
    for first, end in sorted(ranges):
        while place < len(cuts) and cuts[place][0] < end:
            if first < cuts[place][0]:
                left.append((first, cuts[place][0]))
            first = max(first, min(cuts[place][1], end))
            if cuts[place][1] > end:
                break  # it may reach into the next one
            place += 1
        if first < end:
            left.append((first, end))
    return left


def shared_count(ranges: Sequence[Range], others: Sequence[Range]) -> int:
    """How many numbers are in both. Both rise, and neither has a number twice."""
    near = others[max(0, bisect_left(others, (ranges[0][0],)) - 1) : bisect_left(others, (ranges[-1][1],))]
    return count(ranges) - count(outside(ranges, near))


class RangeSet:
    """Is a number in one of the ranges? They rise and do not touch, as `runs` makes them."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._firsts = [first for first, _ in ranges]
        self._ends = [end for _, end in ranges]

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._firsts, number) - 1
        return place >= 0 and number < self._ends[place]
