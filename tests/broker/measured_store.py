"""A store in memory that knows how large its commits would be in a journal."""

from collections.abc import Sequence

from twinbus.store.changes import Change
from twinbus.store.journal_record import encode_changes
from twinbus.store.memory import MemoryStore


class MeasuredStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def commit(self, changes: Sequence[Change]) -> None:
        self.sizes.append(sum(map(len, encode_changes(changes))))
        super().commit(changes)
