"""Rows by their numbers, no more at once than memory should hold: one answer of a store is one piece on its way to us."""

from collections.abc import Sequence

from twinbus.store.changes import FragmentKey, StoredMessage
from twinbus.store.messaging_store import MessagingStore

BYTES_MAX = 4 * 1024 * 1024


def read_some(store: MessagingStore, key: FragmentKey, numbers: Sequence[int]) -> list[StoredMessage]:
    """The first of these rows, all of which exist, up to about `BYTES_MAX`. Runs where the store runs.

    Sizes are not known before, so reads begin small and grow.
    """
    rows: list[StoredMessage] = []
    size = 0
    while len(rows) < len(numbers) and size < BYTES_MAX:
        count = len(rows) + 1
        some = store.read(key, numbers[len(rows) : len(rows) + count])
        size += sum([len(row.content) for row in some])
        rows += some
    return rows
