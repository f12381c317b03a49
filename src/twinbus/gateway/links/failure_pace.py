"""How fast a receiver gets messages that it only fails with: its failures in, a rest out (contract A5).

An abandoned message may come again at once, so a client that abandons whatever it gets, or whose transactions are refused,
would turn in a circle as fast as the machine can. The first failures in a row cost nothing; from then on the link rests before
it is served again, longer each time. One settlement that gets somewhere ends it, and so does a while without failures.

Failures of messages that were delivered together count once: who gives back a whole batch has failed once.
"""

from twinbus.clock import Millis

FREE_COUNT = 10
"""Failures in a row without a rest: as many as the default of the maximum delivery count."""
REST_FIRST: Millis = 100
REST_MAX: Millis = 1_000
CALM_AFTER: Millis = 5_000
"""Without a failure for this long, the count begins anew."""


class FailurePace:
    """Of one link, from its first failure on."""

    __slots__ = ("_count", "_delivered", "_failed_at")

    def __init__(self) -> None:
        self._count = 0
        self._delivered = -1  # how many messages had been delivered at the last failure
        self._failed_at: Millis = 0

    def failed(self, delivered: int, now: Millis) -> Millis:
        """How long to rest. `delivered`: messages that the link has delivered so far."""
        if now - self._failed_at >= CALM_AFTER:
            self._count = 0
        self._failed_at = now
        if delivered != self._delivered:
            self._delivered = delivered
            self._count += 1
        excess = self._count - FREE_COUNT
        # The exponent is bounded, or a client that fails for days would make a number of a million digits.
        return 0 if excess <= 0 else min(REST_FIRST << min(excess - 1, 16), REST_MAX)
