"""Deliveries that wait for the application, counted so that reading can pause (no enforcement on the wire).

Credit cannot bound what a sender sends, since one SDK ignores it. The socket can: the shell stops
reading while `is_flooded` holds, and TCP holds the sender back.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Inflow:
    count_max: int
    size_max: int
    count: int = 0
    size: int = 0
    is_flooded: bool = False

    def received(self, count: int, size: int) -> None:
        self.count += count
        self.size += size
        if self.count > self.count_max or self.size > self.size_max:
            self.is_flooded = True

    def settled(self, count: int) -> None:
        """Sizes are not kept per delivery: those that leave are taken to be of average size."""
        count = min(count, self.count)
        if count:
            self.size -= self.size * count // self.count
            self.count -= count
        # Half of the limit, so that reading does not stop and go for every message.
        if self.is_flooded and self.count <= self.count_max // 2 and self.size <= self.size_max // 2:
            self.is_flooded = False
