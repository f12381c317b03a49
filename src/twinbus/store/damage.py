"""What the disk changed, as values that say where."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from twinbus.errors import StoreDamaged


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that was set aside: it is kept in the table `damaged`, and the store serves without it."""

    file: str
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}, {self.place}: {self.what}"


Where: TypeAlias = tuple[str, tuple[Any, ...]]
"""Table, and key of a row."""


class CheckedPage(NamedTuple):
    """Some rows that were checked."""

    checked: int
    next_id: int | None  # where to go on; None at the end
    damaged: Sequence[Where] = ()


class RowsDamaged(StoreDamaged):
    """Rows that were read are not what was written. They can be set aside: `where` is (table, key of the row)."""

    def __init__(self, text: str, where: Sequence[Where]) -> None:
        super().__init__(text)
        self.where = where
