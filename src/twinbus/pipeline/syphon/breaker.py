"""A breaker for each destination namespace: how rounds went in, whether the next one may try out.

    closed --a round met failures and moved nothing--> open --a probe is answered--> closed
                                                       '---a probe fails: the next one later---'

While it is open nothing is taken out of the backlog for that namespace: each message that is taken and left has its
delivery count raised, and a queue with a low maximum would dead-letter good messages. A probe takes nothing.
"""

from dataclasses import dataclass

from twinbus.clock import Millis

PROBE_AFTER_MIN: Millis = 1_000
PROBE_AFTER_MAX: Millis = 30_000


@dataclass(slots=True)
class Breaker:
    path: str | None = None
    """The destination that failed and is to be probed; None while the breaker is closed."""
    probe_at: Millis = 0
    _probe_after: Millis = PROBE_AFTER_MIN

    @property
    def is_open(self) -> bool:
        return self.path is not None

    def round_ended(self, moved: int, failed_path: str | None, now: Millis) -> None:
        """`failed_path` is a destination that was down or busy; a moved message shows that the namespace is there."""
        if failed_path is None or moved:
            return
        self.path = failed_path
        self._probe_after = PROBE_AFTER_MIN
        self.probe_at = now + self._probe_after

    def is_probe_due(self, now: Millis) -> bool:
        return self.is_open and now >= self.probe_at

    def probe_failed(self, now: Millis) -> None:
        self._probe_after = min(PROBE_AFTER_MAX, 2 * self._probe_after)
        self.probe_at = now + self._probe_after

    def probe_answered(self) -> None:
        self.path = None
