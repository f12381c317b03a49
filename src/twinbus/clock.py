"""Time as an argument: code that decides gets the time, and only the shell reads a clock."""

import time
from collections.abc import Callable
from functools import partial
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


class NamespaceClock:
    """Wall time for a namespace: between two calls of `follow` it goes on evenly, however the wall clock is set meanwhile.

    It is the time since boot plus an offset, and `follow` alone changes the offset. So nobody sees a time that was set before those
    who measure how long something took have been told by how much. A machine that slept is no step: boot time goes on.
    """

    def __init__(self, boot_ns: Callable[[], int] | None = None, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._boot_ns = boot_ns or partial(time.clock_gettime_ns, BOOT_CLOCK)
        self._wall_ns = wall_ns
        self._offset_ns = wall_ns() - self._boot_ns()

    def now(self) -> Millis:
        return (self._offset_ns + self._boot_ns()) // 1_000_000

    def follow(self) -> Millis:
        """Take over what the wall clock shows. Returns by how much it was set since the last call, 0 if by less than STEP_MIN:
        then it is a little faster or slower, and nobody has to know."""
        before = self._boot_ns()
        wall = self._wall_ns()
        if self._boot_ns() - before >= READ_APART_MAX_NS:
            return 0  # the process stood still between the readings, which say nothing then; the next beat looks again
        moved = wall - before - self._offset_ns
        self._offset_ns += moved
        return moved // 1_000_000 if abs(moved) >= STEP_MIN * 1_000_000 else 0


STEP_MIN: Millis = 1_000
"""A wall clock that moves by this much between two beats was set. Daemons that adjust it gently change it by less in an hour."""
READ_APART_MAX_NS = 100_000_000


def boot_time() -> float:
    """Seconds since the machine was started, asleep or not: for leases, which a clock that jumps or sleeps would prolong."""
    # macOS has no such clock; its monotonic one counts sleep as well.
    return time.clock_gettime(BOOT_CLOCK)


BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
