"""What the disk changed, as values that say where."""

from collections.abc import Sequence
from dataclasses import dataclass

from twinbus.errors import StoreDamaged


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that was set aside: it is kept in the table `damaged`, and the store serves without it."""

    file: str
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}, {self.place}: {self.what}"


class RowsDamaged(StoreDamaged):
    """Rows that were read are not what was written. They can be set aside: `where` is (table, key of the row)."""

    def __init__(self, text: str, where: Sequence[tuple[str, tuple[object, ...]]]) -> None:
        super().__init__(text)
        self.where = where
