"""How much to read and by how many tasks: counts and ranges in, shares and input partitions out. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from twinbus.pipeline.source.ranges import Range, count, shared_count

ROWS_PER_TASK = 25_000
BYTES_PER_TASK = 32 * 1024 * 1024
ROWS_PER_TASK_MIN = 5_000
"""However large they are, or where nobody knows. A Python task costs its worker and the JVM about as much processor time as some
thousand messages of 1 KiB: tasks of five thousand spend more on themselves than on what they read."""


@dataclass(frozen=True)
class Slice:
    """Part of one entity."""

    path: str
    ranges: tuple[Range, ...]
    count_min: int = 0
    """Messages that were in these ranges when the batch was planned, and that nobody else has a right to."""


class MessageSlices(InputPartition):
    """What one task reads; everything that it needs to know besides the options."""

    def __init__(self, slices: Sequence[Slice], *, is_own: bool) -> None:
        super().__init__(None)
        self.slices = tuple(slices)
        self.is_own = is_own
        """Whether the namespace has the operations of twinbus; found out once, where the query is planned."""

    def __repr__(self) -> str:
        return f"MessageSlices({self.slices}, is_own={self.is_own})"


def fair_shares(available: Mapping[int, int], limit: int | None, turn: int) -> dict[int, int]:
    """How many messages each fragment may give: all, or equal shares of the limit.

    What a fragment does not use of its share goes to the others. Where there is not one for each, they take turns:
    `turn` counts the batches.
    """
    wanted = {fragment: number for fragment, number in sorted(available.items()) if number > 0}
    if limit is None or sum(wanted.values()) <= limit:
        return wanted
    shares = dict.fromkeys(wanted, 0)
    left = limit
    while left:
        hungry = [fragment for fragment in wanted if shares[fragment] < wanted[fragment]]
        each = left // len(hungry)
        if each == 0:
            first = turn * limit % len(hungry)
            for place in range(left):
                shares[hungry[(first + place) % len(hungry)]] += 1
            break
        for fragment in hungry:
            given = min(each, wanted[fragment] - shares[fragment])
            shares[fragment] += given
            left -= given
    return {fragment: share for fragment, share in shares.items() if share}


class BatchLimit(NamedTuple):
    """How many messages and bytes a batch may have; None for no limit."""

    count_max: int | None
    bytes_max: int | None


def row_limit(count_max: int | None, bytes_max: int | None, mean_size: int) -> int | None:
    """At least one message, or a stream whose messages are larger than its limit would stand still."""
    by_size = None if bytes_max is None else max(1, bytes_max // max(1, mean_size))
    limits = [limit for limit in (count_max, by_size) if limit is not None]
    return min(limits) if limits else None


def task_count(message_count: int, mean_size: int, partitions_min: int, partitions_max: int) -> int:
    """How many tasks so many messages are worth; `mean_size` is 0 if it is not known."""
    by_size = BYTES_PER_TASK // mean_size if mean_size else 0
    each = max(ROWS_PER_TASK_MIN, min(ROWS_PER_TASK, by_size))
    return min(max(partitions_min, -(-message_count // each)), partitions_max)


def input_partitions(
    work: Iterable[tuple[str, Sequence[Range]]], tasks_max: int, *, is_own: bool, held: Sequence[Range] = ()
) -> list[MessageSlices]:
    """Tasks of about equal size over all that there is to read: `tasks_max`, if there are that many messages.

    Small fragments share a task, and a large one is cut; numbers that are gone count as if they were there. Of `held`, which
    rises, no message may be missing when it is read.
    """
    parts = [(path, item) for path, ranges in work for item in ranges]
    total = count(item for _, item in parts)
    if total == 0:
        return []
    wanted = min(tasks_max, total)
    ends = [total * (place + 1) // wanted for place in range(wanted)]
    tasks: list[list[tuple[str, Range]]] = [[] for _ in ends]
    place = passed = 0
    for path, (first, end) in parts:
        while first < end:
            cut = min(end, first + ends[place] - passed)
            tasks[place].append((path, (first, cut)))
            passed += cut - first
            first = cut
            if passed == ends[place]:
                place += 1
    return [MessageSlices(_slices(task, held), is_own=is_own) for task in tasks]


def _slices(task: Iterable[tuple[str, Range]], held: Sequence[Range]) -> list[Slice]:
    found: dict[str, list[Range]] = {}
    for path, item in task:
        found.setdefault(path, []).append(item)
    return [Slice(path, tuple(ranges), shared_count(ranges, held)) for path, ranges in found.items()]
