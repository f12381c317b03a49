"""How fast a receiver gets messages that it only fails with: its failures in, a rest out (contract A5).

An abandoned message may come again at once, so a client that abandons whatever it gets, or whose transactions are refused,
would turn in a circle as fast as the machine can. The first failures in a row cost nothing; from then on the link rests before
it is served again, longer each time. One settlement that gets somewhere ends it, and so does a while without failures.

Failures of messages that were delivered together count once: who gives back a whole batch has failed once.

A link that ends leaves its row to the next one of the same connection to the same entity: attaching again does not end it.
"""

from twinbus.clock import Millis

FREE_COUNT = 10
"""Failures in a row without a rest: as many as the default of the maximum delivery count."""
REST_FIRST: Millis = 100
REST_MAX: Millis = 1_000
CALM_AFTER: Millis = 5_000
"""Without a failure for this long, the count begins anew."""
LEFT_MAX = 1_000
"""Entities of one connection that are remembered."""


class FailurePace:
    """Of one link, from its first failure on."""

    __slots__ = ("_count", "_delivered", "_failed_at", "_rest")

    def __init__(self) -> None:
        self._rest: Millis = 0
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
        self._rest = 0 if excess <= 0 else min(REST_FIRST << min(excess - 1, 16), REST_MAX)
        return self._rest

    def clock_stepped(self, by: Millis) -> None:
        self._failed_at += by

    @property
    def rests_until(self) -> Millis:
        return self._failed_at + self._rest

    def is_worse_than(self, other: "FailurePace") -> bool:
        return self._count > other._count

    def change_link(self) -> None:
        """The next link counts its deliveries from the beginning."""
        self._delivered = -1


class LeftPaces:
    """Of the links of one connection that have ended in a row of failures: the worst for each entity."""

    def __init__(self) -> None:
        self._by_path: dict[str, FailurePace] = {}

    def leave(self, path: str, pace: FailurePace) -> None:
        before = self._by_path.pop(path, None)
        self._by_path[path] = pace if before is None or pace.is_worse_than(before) else before
        if len(self._by_path) > LEFT_MAX:
            del self._by_path[next(iter(self._by_path))]

    def take(self, path: str) -> FailurePace | None:
        """For a new link to the entity."""
        pace = self._by_path.pop(path, None)
        if pace is not None:
            pace.change_link()
        return pace

    def clock_stepped(self, by: Millis) -> None:
        for pace in self._by_path.values():
            pace.clock_stepped(by)
