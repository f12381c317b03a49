"""Time as an argument: code that decides gets the time, and only the shell reads a clock."""

import time
from typing import Protocol, TypeAlias

Millis: TypeAlias = int
"""Milliseconds since 1970-01-01 UTC: what AMQP timestamps hold, and cheap to compare."""

NEVER: Millis = 2**63 - 1
"""Later than every time: the expiry of what does not expire."""


class Clock(Protocol):
    """Where a shell reads the time. `twinbus.testing.SimClock` is the other implementation."""

    def now(self) -> Millis: ...


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> Millis:
        return time.time_ns() // 1_000_000


class SteadyClock:
    """Wall time that never jumps: it starts at the wall clock's time and then follows the monotonic clock."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now(self) -> Millis:
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000


def boot_time() -> float:
    """Seconds since the machine was started, asleep or not: for leases, which a clock that jumps or sleeps would prolong."""
    # macOS has no such clock; its monotonic one counts sleep as well.
    return time.clock_gettime(BOOT_CLOCK)


BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
