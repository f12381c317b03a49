"""An account that somebody else made of a bill: single steps in, lines with bounds out; and where a bill contradicts them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from twinbus.rehearsal.bill import EntityLine


class LineKey(NamedTuple):
    namespace: str
    entity: str
    cause: str
    path: str


class Step(NamedTuple):
    """One operation. `is_sure`: whoever counts knows that it was done. `size` is None where no size is known."""

    at_s: float
    key: LineKey
    units: int
    size: "Bounds | None"
    is_sure: bool


@dataclass(slots=True)
class Bounds:
    low: int = 0
    high: int = 0

    def __contains__(self, number: int) -> bool:
        return self.low <= number <= self.high

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"

    def add(self, low: int, high: int, *, is_sure: bool) -> None:
        self.low += low if is_sure else 0
        self.high += high


@dataclass(slots=True)
class CountedLine:
    operations: Bounds = field(default_factory=Bounds)
    units: Bounds = field(default_factory=Bounds)
    bytes: Bounds | None = field(default_factory=Bounds)

    @property
    def is_exact(self) -> bool:
        return self.operations.low == self.operations.high

    def add(self, step: Step) -> None:
        self.operations.add(1, 1, is_sure=step.is_sure)
        self.units.add(step.units, step.units, is_sure=step.is_sure)
        if step.size is None:
            self.bytes = None
        elif self.bytes is not None:
            self.bytes.add(step.size.low, step.size.high, is_sure=step.is_sure)


def add_up(steps: Iterable[Step]) -> Mapping[LineKey, CountedLine]:
    lines: dict[LineKey, CountedLine] = defaultdict(CountedLine)
    for step in steps:
        lines[step.key].add(step)
    return lines


def by_key(billed: Iterable[EntityLine]) -> dict[LineKey, EntityLine]:
    return {LineKey(line.namespace, line.entity, line.cause, line.path): line for line in billed}


def differences(counted: Mapping[LineKey, CountedLine], billed: Iterable[EntityLine]) -> Iterator[str]:
    """Every line, on either side, that the other contradicts."""
    bill = by_key(billed)
    for key in sorted({*counted, *bill}):
        count, line = counted.get(key, CountedLine()), bill.get(key)
        operations, units, size = (line.operations, line.units, line.bytes) if line is not None else (0, 0, 0)
        pairs = (
            ("operations", operations, count.operations),
            ("units", units, count.units),
            ("bytes", size, count.bytes),
        )
        for name, number, bounds in pairs:
            if bounds is not None and number not in bounds:
                yield f"{' '.join(key)}: {number} {name} billed, {bounds} counted"
