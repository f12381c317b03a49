"""What a user chooses when pairing two namespaces: options in, checked options out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from twinbus.errors import ArgumentError
from twinbus.meter.operation import NO_METER, Meter
from twinbus.model.message_limits import MESSAGE_SIZE_MAX
from twinbus.model.pairing_limits import (
    BACKLOG_QUEUE_COUNT_DEFAULT,
    FAILOVER_INTERVAL_DEFAULT,
    FAILOVER_INTERVAL_MAX,
    PING_INTERVAL_DEFAULT,
    PING_INTERVAL_MAX,
    PING_INTERVAL_MIN,
)
from twinbus.pairing.events import PairingEvent
from twinbus.pairing.stock.failures import Classifier, classify


def _ignore(_: PairingEvent) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAvailabilityPairedNamespaceOptions:
    """How a pair behaves. Every duration is a `timedelta`.

    `classifier` names the kind of a failure, and so decides what counts as an outage.
    `on_event` gets every step; it is called on the thread that took the step and must
    return quickly. `primary_name` replaces the name that is taken from the primary's host.
    `ping_jitter` lets each ping start early by a random share of the interval, so that many
    processes do not meet a recovering primary at the same moment.
    `recovery_ramp` spreads the return: over that time a rising share of the sends goes to the
    recovered primary and the rest still to the backlog. With `ordered_recovery`, message sessions are not spread so: each
    returns once its earlier messages are home.
    `ordered_recovery` keeps the order of message sessions over the end of an outage: a session goes on through the backlog
    until its earlier messages are home, `ordered_recovery_max` at the longest. Other messages are not affected.
    `fragment_counts` says how many fragments partitioned entities of the primary have, by path; entities that are not named are
    then ordinary ones. If it is None, the primary is asked when it matters, which needs the Manage right there.
    `pairing_timeout` is how long pairing may take; `require_backlog=False` lets it succeed without a backlog then: the pair is
    unprotected, says so, and finishes in the background.
    `meter` records every operation of the pair's senders, pings and syphon, for a bill; such as
    `twinbus.meter.application_log.OperationsWriter`. A namespace of twinbus keeps its own log.
    """

    backlog_queue_count: int = BACKLOG_QUEUE_COUNT_DEFAULT
    failover_interval: timedelta = FAILOVER_INTERVAL_DEFAULT
    ping_primary_interval: timedelta = PING_INTERVAL_DEFAULT
    enable_syphon: bool = False
    classifier: Classifier = classify
    on_event: Callable[[PairingEvent], None] = field(default=_ignore)
    operation_timeout: timedelta = timedelta(seconds=60)
    readmission_interval: timedelta = timedelta(minutes=1)
    message_size_max: int = MESSAGE_SIZE_MAX
    primary_name: str | None = None
    ping_jitter: float = 0.05
    recovery_ramp: timedelta = timedelta(0)
    ordered_recovery: bool = True
    ordered_recovery_max: timedelta = timedelta(minutes=10)
    fragment_counts: Mapping[str, int] | None = None
    syphon_messages_per_second_max: float | None = None
    pairing_timeout: timedelta = timedelta(seconds=30)
    require_backlog: bool = True
    meter: Meter = NO_METER

    def __post_init__(self) -> None:
        _check_types(self)
        _require(self.backlog_queue_count >= 1, "backlog_queue_count must be at least 1.")
        _between("failover_interval", self.failover_interval, timedelta(0), FAILOVER_INTERVAL_MAX)
        _between("ping_primary_interval", self.ping_primary_interval, PING_INTERVAL_MIN, PING_INTERVAL_MAX)
        _require(self.operation_timeout > timedelta(0), "operation_timeout must be longer than zero.")
        _require(self.readmission_interval > timedelta(0), "readmission_interval must be longer than zero.")
        _require(self.pairing_timeout > timedelta(0), "pairing_timeout must be longer than zero.")
        _require(self.ordered_recovery_max > timedelta(0), "ordered_recovery_max must be longer than zero.")
        _require(self.recovery_ramp >= timedelta(0), "recovery_ramp cannot be negative.")
        _require(self.message_size_max > 0, "message_size_max must be a number of bytes above zero.")
        _require(0 <= self.ping_jitter < 1, "ping_jitter is a share of the interval: from 0 to below 1.")
        counts = (self.fragment_counts or {}).values()
        _require(
            all(isinstance(each, int) and each >= 1 for each in counts), "fragment_counts are whole numbers from 1."
        )
        rate = self.syphon_messages_per_second_max
        _require(rate is None or rate > 0, "syphon_messages_per_second_max must be above zero, or None for no cap.")


_KINDS: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
    (
        timedelta,
        "a timedelta, such as timedelta(seconds=30)",
        (
            "failover_interval",
            "ping_primary_interval",
            "operation_timeout",
            "readmission_interval",
            "recovery_ramp",
            "pairing_timeout",
            "ordered_recovery_max",
        ),
    ),
    (int, "a whole number", ("backlog_queue_count", "message_size_max")),
    (float | int, "a number", ("ping_jitter",)),
    (float | int | None, "a number, or None for no cap", ("syphon_messages_per_second_max",)),
    (bool, "True or False", ("enable_syphon", "require_backlog", "ordered_recovery")),
    (str | None, "a text, or None for the name in its host", ("primary_name",)),
    (Mapping | None, "a mapping of paths to numbers, or None to ask the primary", ("fragment_counts",)),
    (Callable, "a function of one argument", ("classifier", "on_event")),
)


def _check_types(options: SendAvailabilityPairedNamespaceOptions) -> None:
    """Plain numbers of seconds are a common mistake, and comparing them with durations says nothing helpful. A
    classifier that cannot be called would be found in the first outage, and nothing would ever fail over."""
    for kind, wanted, names in _KINDS:
        for name in names:
            value = getattr(options, name)
            _require(isinstance(value, kind), f"{name} is {value!r}; give {wanted}.")


def _between(name: str, value: timedelta, low: timedelta, high: timedelta) -> None:
    _require(low <= value <= high, f"{name} is {value}; give a duration from {low} to {high}.")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ArgumentError(otherwise)
