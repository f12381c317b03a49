"""Wall time that never jumps: an interval lasts as long as it says when somebody sets the clock."""

import time

from twinbus.clock import Millis


class SteadyClock:
    """Starts at the wall clock's time and then only moves on, at the speed of the monotonic clock."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now(self) -> Millis:
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000
