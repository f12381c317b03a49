"""Rows of one fragment for a change of many, some at a time: by their states, or by their numbers."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from twinbus.broker.fragment.fragment import Fragment
from twinbus.model.wire_names import MessageState
from twinbus.store import reads
from twinbus.store.reads import Read, ReadNumbers, Rows

STEP_BYTES_MAX = 1024 * 1024

Numbers: TypeAlias = list[int]


class Pages(Protocol):
    """Rows of one fragment, some at a time."""

    fragment: Fragment

    def next_read(self, count_max: int) -> Read[Rows] | None:
        """None at the end."""
        ...

    def found(self, rows: Rows) -> None: ...


@dataclass(slots=True)
class Scan:
    fragment: Fragment
    states: Collection[MessageState]
    after: int = 0
    last: int | None = None  # the highest number wanted
    is_over: bool = False

    def next_read(self, count_max: int) -> Read[Rows] | None:
        return (
            None if self.is_over else reads.Scan(self.fragment.key, self.after, count_max, STEP_BYTES_MAX, self.states)
        )

    def found(self, rows: Rows) -> None:
        if rows:
            self.after = rows[-1].sequence_number
        self.is_over = not rows or (self.last is not None and self.after >= self.last)


@dataclass(slots=True)
class ByNumber:
    fragment: Fragment
    numbers: Numbers

    def next_read(self, count_max: int) -> Read[Rows] | None:
        chosen, self.numbers = self.numbers[:count_max], self.numbers[count_max:]
        return ReadNumbers(self.fragment.key, chosen) if chosen else None

    def found(self, rows: Rows) -> None:
        """What is not there counts as done."""
