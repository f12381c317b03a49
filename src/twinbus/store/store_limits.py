"""How much a durable store may keep in its journal and in memory before it writes to its tables."""

from dataclasses import dataclass

from twinbus.store.layers.pace import CommitTraffic

# An entry takes about 350 bytes of memory, and there may be half as many again while checkpoints are behind.
ENTRIES_TOGETHER_MAX = 220_000
BYTES_TOGETHER_MAX = 1 << 30


class JournalBudget:
    """What all stores of a process may keep in front of their tables together. Each store calls it from its own thread.

    Entries are rows in memory, sizes are bytes of journal. A message that is received before its segment is checkpointed
    never reaches the tables, so a segment should be as long as memory allows. How long that is depends on the other
    stores: one that is busy alone may use most of the budget, and stores that are all busy share it.
    """

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._used: dict[int, tuple[int, int]] = {}

    def record(self, store: int, entries: int, size: int) -> None:
        """What this store holds now, over all of its segments."""
        self._used[store] = (entries, size)

    def forget(self, store: int) -> None:
        self._used.pop(store, None)

    def left_by_others(self, store: int, room_bytes: float) -> tuple[int, float]:
        """Entries and bytes that this store may hold; not below 0. `room_bytes`: what the disk has room for, of all stores."""
        # Copied first: another store may be opened or closed meanwhile.
        others = [used for owner, used in list(self._used.items()) if owner != store]
        entries = self._entries_max - sum([used[0] for used in others])
        size = min(self._bytes_max, room_bytes) - sum([used[1] for used in others])
        return max(0, entries), max(0, size)


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How much a store may always keep in front of its tables; more if a budget allows it."""

    segment_bytes_max: int = 64 << 20
    segment_entries_max: int = 60_000
    budget: JournalBudget | None = None
    traffic: CommitTraffic | None = None  # of all stores of the process
    backlog_factor: int = 2  # a segment may grow to this many times its limits while the one before is checkpointed
    cache_bytes: int = 4 << 20  # of each of the two connections to the tables

    @classmethod
    def shared_by(cls, store_count: int) -> "StoreLimits":
        """Limits for each of several stores in a process, which together use little more than a single one."""
        assert store_count > 0
        return cls(
            segment_bytes_max=max(8 << 20, (64 << 20) // store_count),
            segment_entries_max=max(6_000, 60_000 // store_count),
            budget=JournalBudget(ENTRIES_TOGETHER_MAX, BYTES_TOGETHER_MAX),
            traffic=CommitTraffic(),
            cache_bytes=max(1 << 20, (4 << 20) // store_count),
        )
