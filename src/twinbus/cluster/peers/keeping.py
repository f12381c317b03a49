"""How much of its own a node may keep: a message that comes in and goes out where its part is needs no line.

Messages without a key go round the parts, and receivers are served by all of them. Where every node has senders or receivers of its
own, the parts get and give as much if each node keeps its own, and nothing crosses a line. So a node tells the others how
much its own clients brought to its part or took from it (`done_here`), and each may keep as much as *every* other one
has done in the last moment, beyond what its turns bring:

    busy alike          each keeps nearly everything
    A busier than B     A keeps as much as B does, and shares the rest of its own out as ever: the parts stay even
    A alone, or slow    nothing is kept: messages go round one by one

A node that is not heard of keeps the others from keeping anything, and so does one of an earlier release.
"""

from collections.abc import Callable

from twinbus.clock import Millis
from twinbus.cluster.ownership import Ownership

TOLD_EVERY = 256
"""Messages. Who does less than that in `FRESH_FOR` is not busy enough to save anything."""
ROOM_MAX = 4_096
"""How far a part may be behind another one because both kept their own."""
FRESH_FOR: Millis = 1_000


class Keeping:
    """Of one queue or topic at one node, in one direction. `tell` tells a node how much was done here since the last time."""

    def __init__(self, ownership: Ownership, tell: Callable[[int, int], None]) -> None:
        self._ownership = ownership
        self._tell = tell
        self._untold = 0
        self._room: dict[int, int] = {}
        self._told_at: dict[int, Millis] = {}

    def done_here(self, count: int) -> None:
        self._untold += count
        if self._untold >= TOLD_EVERY:
            done, self._untold = self._untold, 0
            for node in self._ownership.nodes:
                if node != self._ownership.node:
                    self._tell(node, done)

    def told(self, node: int, count: int, now: Millis) -> None:
        is_fresh = now - self._told_at.get(node, 0) <= FRESH_FOR
        self._room[node] = min(ROOM_MAX, (self._room.get(node, 0) if is_fresh else 0) + count)
        self._told_at[node] = now

    def room(self, now: Millis) -> int:
        nodes, here = self._ownership.nodes, self._ownership.node
        if here not in nodes or len(nodes) == 1:
            return 0
        return min(
            self._room.get(node, 0) if now - self._told_at.get(node, 0) <= FRESH_FOR else 0
            for node in nodes
            if node != here
        )

    def keep(self, count: int) -> None:
        for node in self._room:
            self._room[node] -= count

    def unkeep(self, count: int) -> None:
        """It was not used."""
        for node in self._room:
            self._room[node] = min(ROOM_MAX, self._room[node] + count)
