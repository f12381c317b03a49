"""What somebody means to run, as far as it decides the bill: numbers in, checked numbers out."""

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from math import ceil

from twinbus.errors import ArgumentError
from twinbus.model.pairing_limits import (
    BACKLOG_QUEUE_COUNT_DEFAULT,
    FAILOVER_INTERVAL_DEFAULT,
    PING_INTERVAL_DEFAULT,
    PING_INTERVAL_MIN,
    SYPHON_POLL,
)

SYPHON_POLL_MIN = timedelta(seconds=1)
HOUR_S = 3_600


def seconds(duration: timedelta) -> Fraction:
    return Fraction(duration // timedelta(milliseconds=1), 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A pair of namespaces and its load. `rate` is messages a second over all entities.

    `entities` are those that are unavailable in an outage, `processes` those that send to them: each process pings each
    entity. `outage` is how long the primary is away; for the first `failover_interval` of it sends fail, and then they go
    to the backlog until a ping finds that it is back.
    """

    backlog_queues: int = BACKLOG_QUEUE_COUNT_DEFAULT
    poll: timedelta = SYPHON_POLL
    syphons: int = 1
    processes: int = 1
    entities: int = 1
    ping_interval: timedelta = PING_INTERVAL_DEFAULT
    failover_interval: timedelta = FAILOVER_INTERVAL_DEFAULT
    rate: Fraction = Fraction(0)
    size: int = 1024
    outage: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        _require(self.backlog_queues >= 1, "A pair needs at least one backlog queue.")
        _require(self.syphons >= 0, "The number of syphons cannot be negative.")
        _require(self.processes >= 0, "The number of processes cannot be negative.")
        _require(self.entities >= 0, "The number of entities cannot be negative.")
        _require(self.poll >= SYPHON_POLL_MIN, "A poll of the syphon lasts at least a second.")
        _require(self.ping_interval >= PING_INTERVAL_MIN, "Pings are at least a second apart.")
        _require(self.failover_interval >= timedelta(0), "The failover interval cannot be negative.")
        _require(self.rate >= 0, "The rate of messages cannot be negative.")
        _require(self.size >= 0, "The size of a message cannot be negative.")
        _require(self.outage >= timedelta(0), "An outage cannot have a negative length.")

    @property
    def pings_in_outage(self) -> int:
        """Of one entity by one process: the first an interval after failover, the last the first that gets through."""
        missed = seconds(self.outage) - seconds(self.failover_interval)
        return max(0, ceil(missed / seconds(self.ping_interval)))

    @property
    def failed_over_s(self) -> Fraction:
        """How long sends go to the backlog: for longer than the primary is away, up to the next ping."""
        return self.pings_in_outage * seconds(self.ping_interval)

    @property
    def failed_over_messages(self) -> int:
        return int(self.rate * self.failed_over_s)

    @property
    def unhealthy_s(self) -> Fraction:
        """How long sends do not get to the primary."""
        refused = min(seconds(self.outage), seconds(self.failover_interval))
        return refused + self.failed_over_s


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ArgumentError(otherwise)
