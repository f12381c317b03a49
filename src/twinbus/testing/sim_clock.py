"""A clock that stands still until a test moves it."""

from twinbus.clock import Millis

START: Millis = 1_700_000_000_000


class SimClock:
    def __init__(self, start: Millis = START) -> None:
        self._now = start

    def now(self) -> Millis:
        return self._now

    def advance(self, by: Millis) -> Millis:
        assert by >= 0
        self._now += by
        return self._now

    def set(self, by: Millis) -> None:
        """Forward or back, as the clock of a machine is set: no time passes."""
        self._now += by
