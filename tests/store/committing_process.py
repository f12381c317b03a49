"""Run as a process: commits to the store in a folder until killed, and prints every number once it is committed.

Of each ten messages nine are removed again, so that segments, checkpoints and removals mix.
"""

import sys
from pathlib import Path

from twinbus.clock import NEVER
from twinbus.store.changes import Enqueued, FragmentCreated, Removed, StoredMessage, fragment_key
from twinbus.store.folder.store import FolderStore
from twinbus.store.store_limits import StoreLimits

FRAGMENT = fragment_key(1, 0)
LIMITS = StoreLimits(segment_bytes_max=200_000, segment_entries_max=150)


def content(number: int) -> bytes:
    return b"%d " % number * 100


def main(folder: Path) -> None:
    store = FolderStore(folder, LIMITS)
    store.commit([FragmentCreated(FRAGMENT)])
    (summary,) = store.summaries()
    number = summary.last_sequence_number
    while True:
        first = number + 1
        number += 10
        rows = [StoredMessage(each, content(each), 0, NEVER) for each in range(first, number + 1)]
        store.commit([Enqueued(FRAGMENT, rows)])
        print("enqueued", number, flush=True)
        store.commit([Removed(FRAGMENT, list(range(first, number)))])
        print("removed", number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
