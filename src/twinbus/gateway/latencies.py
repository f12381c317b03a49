"""How long things took: durations of bursts in, a histogram for the metrics out."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from twinbus.clock import Millis
from twinbus.gateway.spans import Spans

BOUNDS_S: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
    60.0,
    600.0,
    3_600.0,
    86_400.0,
)


class Latencies:
    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float, count: int) -> None:
        """So many messages took this long: those of a burst, which are counted together."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += count
        self.total_s += seconds * count

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bounds with how many took no longer, as Prometheus has them."""
        found, together = list[tuple[str, float]](), 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True):
            together += count
            found.append((bound, float(together)))
        return found


class Stopwatch:
    """The latencies of a namespace, and the clocks that they are measured with."""

    __slots__ = ("acknowledged", "spans", "steady", "waited", "wall")

    def __init__(self, steady: Callable[[], float] = lambda: 0.0, wall: Callable[[], Millis] = lambda: 0) -> None:
        self.steady = steady
        self.wall = wall
        self.acknowledged = Latencies()  # from the arrival of a message to its acknowledgement
        self.waited = Latencies()  # from its enqueued time to a delivery
        self.spans: Spans | None = None  # None: nobody traces
