"""The backlog queues in use by all senders of a pair: which may be chosen, which are taken out.

The rotation is never empty: while all are out, the one that failed longest ago is the least bad one, and the first success
brings all of them back.
"""

from dataclasses import dataclass, field

from twinbus.clock import Millis


@dataclass(slots=True)
class Rotation:
    """Indexes of backlog queues. A queue that failed is out until its readmission time, and last in the line until then."""

    indexes: tuple[int, ...]
    readmission_interval: Millis
    out_until: dict[int, Millis] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)
    """Those that are out, by their last failure."""

    @property
    def is_all_out(self) -> bool:
        return len(self.out_until) == len(self.indexes)

    def choose(self, draw: float) -> int | None:
        """The queue that `draw` from [0, 1) falls on among those in the rotation; if all are out, the one that failed longest
        ago. None if there is no queue at all."""
        usable = [index for index in self.indexes if index not in self.out_until] or self.failed[:1]
        return usable[int(draw * len(usable))] if usable else None

    def contains(self, index: int) -> bool:
        return index not in self.out_until

    def has_other(self, index: int) -> bool:
        """Whether another queue would be tried if this one fails."""
        if self.is_all_out:
            return len(self.indexes) > 1
        return any(each != index and each not in self.out_until for each in self.indexes)

    def take_out(self, index: int, now: Millis) -> bool:
        """True if the queue was in. Its time starts at the first failure, not at each one."""
        is_new = index not in self.out_until
        if is_new:
            self.out_until[index] = now + self.readmission_interval
        else:
            self.failed.remove(index)
        self.failed.append(index)
        return is_new

    def accepted(self) -> list[int]:
        """A queue took a message. Returns what is let back in by that: all, if all were out."""
        if not self.out_until or not self.is_all_out:
            return []
        back, self.failed = self.failed, []
        self.out_until.clear()
        return back

    def readmit(self, now: Millis) -> list[int]:
        """Let back in what has been out for its time; returns those."""
        if not self.out_until:
            return []
        due = [index for index, until in self.out_until.items() if until <= now]
        for index in due:
            del self.out_until[index]
            self.failed.remove(index)
        return due
