"""What all stores of a process may keep in front of their tables together.

A message that is received before its segment is checkpointed never reaches the tables, so a segment should be as long as
memory allows. How long that is depends on the others: a store that is busy alone may use most of the budget, stores that
are all busy share it, and each may always have the little that is its own.
"""


class JournalBudget:
    """Entries are rows in memory, sizes are bytes of journal. Called by the stores, each from its own thread."""

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._used: dict[int, tuple[int, int]] = {}

    def record(self, store: int, entries: int, size: int) -> None:
        """What this store holds now, over all of its segments."""
        self._used[store] = (entries, size)

    def forget(self, store: int) -> None:
        self._used.pop(store, None)

    def left_by_others(self, store: int) -> tuple[int, int]:
        """Entries and bytes that this store may hold; not below 0."""
        # Copied first: another store may come or go meanwhile.
        others = [used for owner, used in list(self._used.items()) if owner != store]
        entries = self._entries_max - sum([used[0] for used in others])
        size = self._bytes_max - sum([used[1] for used in others])
        return max(0, entries), max(0, size)
