"""Rows of one fragment for a change of many, some at a time: by their states, or by their numbers."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import methodcaller
from typing import Protocol, TypeAlias

from twinbus.broker.fragment.fragment import Fragment
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage
from twinbus.store.messaging_store import MessagingStore

STEP_BYTES_MAX = 1024 * 1024

Numbers: TypeAlias = list[int]
Rows: TypeAlias = list[StoredMessage]
Read: TypeAlias = Callable[[MessagingStore], Rows]


class Pages(Protocol):
    """Rows of one fragment, some at a time."""

    fragment: Fragment

    def next_read(self, count_max: int) -> Read | None:
        """None at the end. What is returned runs where the store runs."""
        ...

    def found(self, rows: Rows) -> None: ...


@dataclass(slots=True)
class Scan:
    fragment: Fragment
    states: Collection[MessageState]
    after: int = 0
    last: int | None = None  # the highest number wanted
    is_over: bool = False

    def next_read(self, count_max: int) -> Read | None:
        return (
            None
            if self.is_over
            else methodcaller("scan", self.fragment.key, self.after, count_max, STEP_BYTES_MAX, self.states)
        )

    def found(self, rows: Rows) -> None:
        if rows:
            self.after = rows[-1].sequence_number
        self.is_over = not rows or (self.last is not None and self.after >= self.last)


@dataclass(slots=True)
class ByNumber:
    fragment: Fragment
    numbers: Numbers

    def next_read(self, count_max: int) -> Read | None:
        chosen, self.numbers = self.numbers[:count_max], self.numbers[count_max:]
        return methodcaller("read", self.fragment.key, chosen) if chosen else None

    def found(self, rows: Rows) -> None:
        """What is not there counts as done."""
