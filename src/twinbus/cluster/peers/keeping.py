"""How much of its own a node may keep: a message that comes in and goes out where its part is needs no line.

Messages without a key go round the parts, and receivers are served by all of them. Where every node has senders or receivers of its
own, the parts get and give as much if each node keeps its own, and nothing crosses a line. So a node tells the others how
much its own clients brought to its part or took from it (`done_here`), and each may keep as much as *every* other one
has done, beyond what its turns bring:

    busy alike          each keeps nearly everything
    A busier than B     A keeps as much as B does, and shares the rest of its own out as ever: the parts stay even
    A alone, or slow    nothing is kept: messages go round one by one

Nodes that are busy alike are not so at every moment: they work in bursts, and one hears of another's after a while. Whoever could keep
only what all others have done already would share out whenever it is the first, and with more nodes one of them nearly always is. So
each may be ahead of the others by LEAD; it gets that once, and again only as far as they catch up.

A node that is not heard of keeps the others from keeping anything, and so does one of an earlier release.
"""

from collections.abc import Callable

from twinbus.clock import Millis
from twinbus.cluster.ownership import Ownership

TOLD_EVERY = 256
"""Messages. Who does less than that in `FRESH_FOR` is not busy enough to save anything."""
LEAD = 1_024
"""What busy nodes do in a few hundredths of a second, so that a pause of that length makes nobody share out."""
ROOM_MAX = 4_096
"""How far a part may be behind another one because both kept their own."""
FRESH_FOR: Millis = 1_000


class Keeping:
    """Of one queue or topic at one node, in one direction. `tell` tells a node how much was done here since the last time."""

    def __init__(self, ownership: Ownership, tell: Callable[[int, int], None]) -> None:
        self._ownership = ownership
        self._tell = tell
        self._untold = 0
        self._behind: dict[
            int, int
        ] = {}  # by node: what it has done, less what was kept here; negative if this node is ahead
        self._told_at: dict[int, Millis] = {}

    def done_here(self, count: int) -> None:
        self._untold += count
        if self._untold >= TOLD_EVERY:
            done, self._untold = self._untold, 0
            for node in self._ownership.nodes:
                if node != self._ownership.node:
                    self._tell(node, done)

    def told(self, node: int, count: int, now: Millis) -> None:
        behind = self._behind.get(node, 0)
        if not self._is_fresh(node, now):
            behind = min(behind, 0)  # or a node could come back to the lead by being slow
        self._behind[node] = min(ROOM_MAX - LEAD, behind + count)
        self._told_at[node] = now

    def room(self, now: Millis) -> int:
        nodes, here = self._ownership.nodes, self._ownership.node
        if here not in nodes or len(nodes) == 1:
            return 0
        return min(self._behind[node] + LEAD if self._is_fresh(node, now) else 0 for node in nodes if node != here)

    def keep(self, count: int) -> None:
        for node in self._behind:
            # This node is never further ahead than LEAD, except of nodes without a part of this: they have nothing to catch up with.
            self._behind[node] = max(-LEAD, self._behind[node] - count)

    def unkeep(self, count: int) -> None:
        """It was not used."""
        for node in self._behind:
            self._behind[node] = min(ROOM_MAX - LEAD, self._behind[node] + count)

    def _is_fresh(self, node: int, now: Millis) -> bool:
        return node in self._told_at and now - self._told_at[node] <= FRESH_FOR

    def clock_stepped(self, by: Millis) -> None:
        self._told_at = {node: at + by for node, at in self._told_at.items()}
