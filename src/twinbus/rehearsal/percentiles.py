"""Percentiles by nearest rank: the smallest value that is not below so many percent of all. Never a value that was not seen."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Percentiles:
    """In milliseconds."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


def percentiles(seconds: Iterable[float]) -> Percentiles | None:
    """None where nothing was measured."""
    ordered = sorted(1000 * each for each in seconds)
    if not ordered:
        return None
    return Percentiles(len(ordered), _rank(ordered, 50), _rank(ordered, 90), _rank(ordered, 99), ordered[-1])


def _rank(ordered: list[float], percent: int) -> float:
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]
