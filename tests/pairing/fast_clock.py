"""A clock for what is counted in seconds and minutes."""

from twinbus.clock import Millis, SteadyClock


class FastClock(SteadyClock):
    """Time that runs twenty times as fast, for graces that are counted in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._started: Millis = super().now()

    def now(self) -> Millis:
        return self._started + 20 * (super().now() - self._started)
