"""Memory that a namespace and the process of its messaging stores share, for what is large: only its place goes through the socket.

A socket copies twice what it carries and holds a few hundred kilobytes, so large commits would reach the disk a few messages at a
time. Here they are laid down once, and the store appends them to its journal from where they lie. Answers come the same way.

    room of a store     | from the namespace: commits | from the store: rows |

One side lays down and the other reads, in order:

    free | runs that are laid down, oldest first | free | (the next one begins at 0 again if it does not fit behind the last)

A run is given up by whoever laid it down, when the other side says that it has read it: a commit by its answer, rows with the next
query. Pages are taken from the system when they are first used and are kept, and a room that is empty is used from its beginning
again, so what a store takes in memory is the most that it was ever asked for at a time.
"""

import logging
import mmap
import os
from collections import deque
from collections.abc import Sequence

HALF_BYTES = 4 << 20
LAID_SIZE_MIN = 32 * 1024
"""Less is sent as quickly as its place."""
PIECES_JOINED_MIN = 64
"""So many pieces are joined first: each takes as long as the copy of a few kilobytes."""

log = logging.getLogger(__name__)


class Room:
    """One half, for the side that lays down."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._runs: deque[tuple[int, int]] = deque()  # start and end, oldest first

    def lay_down(self, pieces: Sequence[bytes], size: int) -> int | None:
        """Where they begin now; None if there is no room."""
        start = self._start_for(size)
        if start is None:
            return None
        if len(pieces) < PIECES_JOINED_MIN:
            position = start
            for piece in pieces:
                end = position + len(piece)
                self._memory[position:end] = piece
                position = end
        else:
            self._memory[start : start + size] = b"".join(pieces)
        self._runs.append((start, start + size))
        return start

    def give_up(self, count: int) -> None:
        """The other side has read so many runs, the oldest."""
        for _ in range(count):
            self._runs.popleft()

    def _start_for(self, size: int) -> int | None:
        if not self._runs:
            return 0 if size <= len(self._memory) else None
        first, last = self._runs[0][0], self._runs[-1][1]
        if last <= first:  # the runs have begun at 0 again
            return last if last + size <= first else None
        if last + size <= len(self._memory):
            return last
        return 0 if size <= first else None


def new_rooms(count: int) -> list[int]:
    """Descriptors of rooms that this process may share; none if the system has no such memory, or gives none."""
    if not hasattr(os, "memfd_create"):
        return []
    descriptors: list[int] = []
    try:
        for _ in range(count):
            descriptors.append(os.memfd_create("twinbus-room"))
            os.ftruncate(descriptors[-1], 2 * HALF_BYTES)
    except OSError as fault:  # forbidden in a sandbox, or no more descriptors: everything can be sent as well
        log.warning("no_shared_memory", extra={"fields": {"reason": str(fault)}})
        for descriptor in descriptors:
            os.close(descriptor)
        return []
    return descriptors


def halves(descriptor: int) -> tuple[memoryview, memoryview]:
    """What the namespace lays down, and what the store does. The descriptor is closed; the memory goes with its views."""
    memory = memoryview(mmap.mmap(descriptor, 2 * HALF_BYTES))
    os.close(descriptor)
    return memory[:HALF_BYTES], memory[HALF_BYTES:]
