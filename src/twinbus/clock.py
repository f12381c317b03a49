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

    So nobody sees a time that was set before those who measure how long something takes have been told by how much. What was set is told
    from what has passed by the time since boot, which goes on while the machine sleeps. It is read by `follow` alone: the monotonic clock
    is cheaper, and `now` is called for every burst of messages.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        boot_ns: Callable[[], int] | None = None,
        steady_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._boot_ns = boot_ns or partial(time.clock_gettime_ns, BOOT_CLOCK)
        self._steady_ns = steady_ns
        wall_time = wall_ns()
        self._offset_ns = wall_time - steady_ns()
        self._booted_at_ns = wall_time - self._boot_ns()  # by the wall clock: another time if that was set

    def now(self) -> Millis:
        return (self._offset_ns + self._steady_ns()) // 1_000_000

    def follow(self) -> Millis:
        """Take over what the wall clock shows. Returns by how much it was set since the last call, 0 if by less than STEP_MIN:
        then it is a little faster or slower, and nobody has to know."""
        steady, boot, wall = self._steady_ns(), self._boot_ns(), self._wall_ns()
        if self._boot_ns() - boot >= READ_APART_MAX_NS or self._steady_ns() - steady >= READ_APART_MAX_NS:
            return 0  # the process stood still between the readings, which say nothing then; the next beat looks again
        step = wall - boot - self._booted_at_ns
        self._offset_ns, self._booted_at_ns = wall - steady, wall - boot
        return step // 1_000_000 if abs(step) >= STEP_MIN * 1_000_000 else 0


STEP_MIN: Millis = 1_000
"""A wall clock that moves by this much between two beats was set. Daemons that adjust it gently change it by less in an hour."""
READ_APART_MAX_NS = 100_000_000


def boot_time() -> float:
    """Seconds since the machine was started, asleep or not: for leases, which a clock that jumps or sleeps would prolong."""
    # macOS has no such clock; its monotonic one counts sleep as well.
    return time.clock_gettime(BOOT_CLOCK)


BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
