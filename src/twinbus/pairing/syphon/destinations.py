"""What a pump knows of each destination: is it paused, how must batches be cut, what was left behind.

Order is kept by not overtaking: a message that was left stays locked for a while, and until it
comes again nothing with a higher number may go to the same destination. A broker hands out the
lowest number that is free, so once the lock of a left message has ended it comes before all
others, unless another syphon took it or it is gone.
"""

from dataclasses import dataclass, field

from twinbus.clock import Millis
from twinbus.pairing.syphon.cut import Cut

RETRY_MIN: Millis = 1_000
RETRY_MAX: Millis = 120_000
CLOCK_SKEW_MAX: Millis = 1_000
NO_BARRIER = 2**63


@dataclass(slots=True)
class Destination:
    cut: Cut = Cut.WHOLE
    paused_until: Millis = 0
    retry_after: Millis = RETRY_MIN
    left: dict[int, Millis] = field(default_factory=dict)
    """Sequence number to end of lock."""
    had_poison: bool = False
    """In this pass. The fine cut may have been for the sake of one message, which is gone."""

    @property
    def next_cut(self) -> Cut:
        """To begin the next pass with."""
        return Cut.WHOLE if self.had_poison else self.cut

    def begin_pass(self) -> None:
        self.cut, self.had_poison = self.next_cut, False

    def barrier(self, received_at: Millis, now: Millis) -> int:
        """Messages with numbers below it may go now.

        Purges what would have come again by `received_at`: it has been moved by somebody else.
        """
        if now < self.paused_until:
            return 0
        for number in [number for number, until in self.left.items() if until + CLOCK_SKEW_MAX <= received_at]:
            del self.left[number]
        return min(self.left, default=NO_BARRIER)

    def leave(self, sequence_number: int, locked_until: Millis) -> None:
        self.left[sequence_number] = locked_until

    def failed(self, now: Millis) -> None:
        self.paused_until = now + self.retry_after
        self.retry_after = min(RETRY_MAX, 2 * self.retry_after)

    def accepted(self) -> None:
        self.retry_after = RETRY_MIN

    def came_again(self, sequence_number: int) -> bool:
        """True for a message that was left before."""
        return self.left.pop(sequence_number, None) is not None


@dataclass(slots=True)
class PumpMemory:
    """What a pump has learned. The next pump of the same queue that is given it goes on as if it were the same one."""

    destinations: dict[str, Destination] = field(default_factory=dict)
    lock_duration: Millis = 0
    """The longest lock seen at an arrival, which is the queue's."""

    def destination(self, path: str) -> Destination:
        return self.destinations.setdefault(path, Destination())

    def left_count(self) -> int:
        return sum(len(each.left) for each in self.destinations.values())
