"""When leases are renewed: times in, times out. A round renews the leases in one database one after the other.

A round begins each second, however long the one before has taken. While whoever serves is silent there is nothing to renew for, and it
is looked for more often: a process that stood still for 3 s has less than a second of trust left, and needs a renewal as soon as it is
heard of again. Until then no lease is renewed for what was heard before. If the store process stood still too, leases have ended by
then, and such a renewal would give one of them back for a moment only: its store would be loaded to be lost a second time.
"""

RENEW_EVERY_S = 1.0
LOOK_EVERY_S = 0.1
SILENT_MAX_S = 2.0
"""Later than a round that has renewed all leases for the last sign of life: who is silent for longer gains nothing by another one."""


def is_silent(alive_at: float, now: float) -> bool:
    return now - alive_at >= SILENT_MAX_S


class RenewalRounds:
    """Of the leases in one database. All times are boot times."""

    def __init__(self) -> None:
        self._began_at = 0.0
        self._was_silent = False

    def begin(self, now: float) -> None:
        self._began_at, self._was_silent = now, False

    def prolongs(self, counts_from: float, alive_at: float, now: float) -> bool:
        """Whether to renew a lease that lasts from `counts_from`, for whoever was last heard of at `alive_at`."""
        if is_silent(alive_at, now):
            self._was_silent = True
            return False
        return alive_at > counts_from

    def pause_s(self, now: float) -> float:
        """How long to wait at the end of a round before the next one."""
        return LOOK_EVERY_S if self._was_silent else max(self._began_at + RENEW_EVERY_S - now, 0.0)
