"""The one timer of a namespace: a steady beat that ticks brokers and connections, and tells them when the clock was set.

A beat, and not a timer set for the earliest due time, because the time comes from the namespace's clock, which a test may move
by an hour: nothing on the loop notices that except the next beat.

A clock that is set (NTP, a virtual machine that goes on) is noticed here too, and here alone. Everybody who keeps the time at which
something began or ends, and means how long it takes by that, moves it: locks, the silence of connections, when an entity was last used.
What is a time of day stays: schedules, expiry, tokens, the history of duplicates.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from twinbus.broker.telling import tell
from twinbus.clock import Clock, Millis, NamespaceClock

log = logging.getLogger(__name__)

BEAT_S = 0.05
CONNECTION_EVERY: Millis = 250


class Ticking(Protocol):
    def tick(self, now: Millis) -> object: ...


class Stepping(Protocol):
    def clock_stepped(self, by: Millis) -> None:
        """The clock was set by this much, forward or (below 0) back: move what measures how long something takes."""
        ...


class TickingConnection(Ticking, Stepping, Protocol): ...


class Beat:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        brokers: Iterable[Ticking],
        connections: Callable[[], Iterable[TickingConnection]],
        stepping: Iterable[Stepping] = (),
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._brokers = list(brokers)
        self._connections = connections
        self._stepping = list(stepping)
        self._connections_due: Millis = 0
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._next = self._loop.call_later(BEAT_S, self._beat)

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def _beat(self) -> None:
        self._next = self._loop.call_later(BEAT_S, self._beat)
        if isinstance(self._clock, NamespaceClock) and (step := self._clock.follow()):
            self._tell_step(step)
        now = self._clock.now()
        for broker in self._brokers:
            tell(broker.tick, now)
        # A clock that was set back must not keep connections from being ticked.
        if now >= self._connections_due or now < self._connections_due - CONNECTION_EVERY:
            self._connections_due = now + CONNECTION_EVERY
            for connection in list(self._connections()):
                tell(connection.tick, now)

    def _tell_step(self, step: Millis) -> None:
        log.warning("clock_stepped", extra={"fields": {"ms": step}})
        for each in [*self._stepping, *self._connections()]:
            tell(each.clock_stepped, step)
