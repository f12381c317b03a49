"""By how much a broker's clock is ahead of ours: how long locks seem to last in, times by our own clock out.

A broker writes when a lock ends, and a pump has to know how much of it is left before it sends. If the two clocks differ by more
than a lock, all locks seem to have ended before they began, and no message would ever go home. Locks last between five seconds
and five minutes. So one that seems to last longer than that shows another clock. One that seems to be over does not: the message
may have waited here. But all that was handed out in advance is soon used up, and what comes then is fresh.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from twinbus.clock import Millis
from twinbus.model.descriptions import LOCK_DURATION_DEFAULT, LOCK_DURATION_MAX
from twinbus.pairing.syphon.transport import Taken

LOCK_MARGIN: Millis = 1_000
"""A send is not begun this shortly before the lock ends, which is then as good as over: the message would come again."""

FRESH_MIN: Millis = 4_000
"""Left of the shortest lock, at least, when its message has just come: five seconds, but for the way here."""

LATE_PASSES_MAX = 5
"""So many in a row with nothing but locks that are as good as over. What was handed out in advance lasts for three."""


@dataclass(slots=True)
class BrokerClock:
    ahead: Millis = 0
    late_passes: int = 0

    def by_ours(self, taken: Sequence[Taken], now: Millis) -> list[Taken]:
        """The messages of a pass, with the ends of their locks by our clock. Small differences stay as they are."""
        # What cannot be read has no such time.
        last = max(each.locked_until for each in taken)
        if last:
            self._look_at(last - now)
        if not self.ahead:
            return list(taken)
        return [replace(each, locked_until=each.locked_until - self.ahead) for each in taken]

    def _look_at(self, left: Millis) -> None:
        """Of the last lock of a pass, as it seems."""
        if FRESH_MIN <= left <= LOCK_DURATION_MAX:
            self.ahead = self.late_passes = 0
        elif left - self.ahead > LOCK_DURATION_MAX:
            self._set(left)
        elif left - self.ahead < LOCK_MARGIN:
            self.late_passes += 1
            if self.late_passes >= LATE_PASSES_MAX:
                self._set(left)
        else:
            self.late_passes = 0

    def _set(self, left: Millis) -> None:
        self.ahead, self.late_passes = left - LOCK_DURATION_DEFAULT, 0
