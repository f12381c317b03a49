"""The backlog queues in use by all senders of a pair: which may be chosen, which are taken out."""

from dataclasses import dataclass, field

from twinbus.clock import Millis


@dataclass(slots=True)
class Rotation:
    """Indexes of backlog queues. A queue that failed is out until its readmission time."""

    indexes: tuple[int, ...]
    readmission_interval: Millis
    out_until: dict[int, Millis] = field(default_factory=dict)

    def choose(self, draw: float) -> int | None:
        """The queue that `draw` from [0, 1) falls on among those in the rotation; None if all are out."""
        usable = [index for index in self.indexes if index not in self.out_until]
        return usable[int(draw * len(usable))] if usable else None

    def contains(self, index: int) -> bool:
        return index not in self.out_until

    def has_other(self, index: int) -> bool:
        return any(each != index and each not in self.out_until for each in self.indexes)

    def take_out(self, index: int, now: Millis) -> bool:
        """True if the queue was in. Its time starts at the first failure, not at each one."""
        if index in self.out_until:
            return False
        self.out_until[index] = now + self.readmission_interval
        return True

    def readmit(self, now: Millis) -> list[int]:
        """Let back in what has been out for its time; returns those."""
        if not self.out_until:
            return []
        due = [index for index, until in self.out_until.items() if until <= now]
        for index in due:
            del self.out_until[index]
        return due
