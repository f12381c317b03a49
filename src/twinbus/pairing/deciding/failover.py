"""One entity of the primary, or one fragment of it: results of sends and pings in, where the next send goes out.

    healthy --outage--> failing --failover_interval without a success--> failed over
       ^ <--any success--'                                                    |  ^
       |                                                  lasting ping error  v  | outage again
       |                                                                  refusing
       '---- ping answered (or marked healthy): at once, or by the ramp ------'

Refusing is failed over with the knowledge that the entity is gone, disabled or closed to us:
a send then raises that error, since the syphon could never bring the message home.
"""

from dataclasses import dataclass
from enum import Enum

from twinbus.clock import NEVER, Millis
from twinbus.pairing.events import Availability


class Route(Enum):
    PRIMARY = "primary"
    BACKLOG = "backlog"
    REFUSED = "refused"
    HOLD = "hold"
    """Ask again in a moment."""


@dataclass(slots=True)
class FailoverDetector:
    """The state machine above. Times are the caller's; nothing happens by itself."""

    failover_interval: Millis
    ping_interval: Millis
    recovery_ramp: Millis = 0
    failing_since: Millis | None = None
    failed_over_at: Millis | None = None
    recovered_at: Millis | None = None
    next_ping_at: Millis = NEVER
    is_pinging: bool = False
    is_catching_up: bool = False
    refusal: BaseException | None = None
    last_error: BaseException | None = None

    @property
    def is_untroubled(self) -> bool:
        """Nothing to decide: the send goes to the primary. Three reads, for the healthy path."""
        return self.failing_since is None and self.recovered_at is None and not self.is_catching_up

    def fails_over_by(self, at: Millis) -> bool:
        """Whether a send that fails at `at` may continue at the backlog. The timer of a healthy entity starts with its failure."""
        if self.failing_since is None:
            return self.failover_interval == 0
        return self.failing_since + self.failover_interval <= at

    def primary_failed(self, error: BaseException, now: Millis) -> bool:
        """Only for outages. True if this failure started the timer."""
        self.last_error = error
        if self.failing_since is not None:
            return False
        self.failing_since = now
        return True

    def forgive(self, lost: Millis, now: Millis) -> None:
        """The process did not run for so long, so that it says nothing about the primary that nothing got through."""
        if self.failing_since is not None and self.failed_over_at is None:
            self.failing_since = min(self.failing_since + lost, now)

    def primary_answered(self) -> None:
        """A send got through. Once failed over only a ping ends it: a late answer proves nothing."""
        if self.failed_over_at is None:
            self.failing_since = None
            self.last_error = None

    def advance(self, now: Millis) -> bool:
        """End a ramp that is over; fail over if the interval has passed, and True if that happened in this call."""
        if self.recovered_at is not None and now - self.recovered_at >= self.recovery_ramp:
            self.recovered_at = None
        if self.failing_since is None or self.failed_over_at is not None:
            return False
        due = self.failing_since + self.failover_interval
        if now < due:
            return False
        self.failed_over_at = due
        self.recovered_at = None
        self.next_ping_at = due + self.ping_interval
        return True

    def route(self, now: Millis, draw: float = 0.0) -> Route:
        """Where a send at `now` goes. `draw` from [0, 1) is its lot in a recovery ramp."""
        self.advance(now)
        if self.failed_over_at is not None:
            return Route.BACKLOG if self.refusal is None else Route.REFUSED
        if self.recovered_at is not None and now - self.recovered_at < self.recovery_ramp * draw:
            return Route.BACKLOG
        return Route.PRIMARY

    def next_action_at(self) -> Millis:
        """When to call `advance` or to ping next; NEVER if there is nothing to wait for."""
        if self.failing_since is None:
            return NEVER
        if self.failed_over_at is None:
            return self.failing_since + self.failover_interval
        return NEVER if self.is_pinging else self.next_ping_at

    def start_ping(self, now: Millis) -> bool:
        """True if a ping is due: the caller sends it and reports how it went."""
        if self.failed_over_at is None or self.is_pinging or now < self.next_ping_at:
            return False
        self.is_pinging = True
        self.next_ping_at = now + self.ping_interval
        return True

    def ping_sooner(self, by: Millis) -> None:
        """Shorten the way to the next ping."""
        self.next_ping_at -= by

    def ping_failed(self, error: BaseException, is_lasting: bool) -> None:
        self.is_pinging = False
        if self.failed_over_at is not None:
            self.last_error = error
            self.refusal = error if is_lasting else None

    def recover(self, now: Millis) -> bool:
        """A ping got through, or the user says so. True if the entity was failed over."""
        self.is_pinging = False
        was_failed_over = self.failed_over_at is not None
        self.failing_since = self.failed_over_at = self.refusal = self.last_error = None
        self.next_ping_at = NEVER
        self.recovered_at = now if was_failed_over and self.recovery_ramp else None
        return was_failed_over

    @property
    def shown_ping_at(self) -> Millis | None:
        return None if self.next_ping_at == NEVER else self.next_ping_at

    def availability(self) -> Availability:
        if self.refusal is not None:
            return Availability.REFUSING
        if self.failed_over_at is not None:
            return Availability.FAILED_OVER
        if self.failing_since is not None:
            return Availability.FAILING
        if self.recovered_at is not None:
            return Availability.RECOVERING
        return Availability.CATCHING_UP if self.is_catching_up else Availability.HEALTHY
