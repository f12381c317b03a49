"""The one timer of a namespace: a steady beat that ticks brokers and connections.

A beat, and not a timer set for the earliest due time, because the time comes from the namespace's clock, which a test may move
by an hour: nothing on the loop notices that except the next beat.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from twinbus.broker.telling import tell
from twinbus.clock import Clock, Millis

BEAT_S = 0.05
CONNECTION_EVERY: Millis = 250


class Ticking(Protocol):
    def tick(self, now: Millis) -> object: ...


class Beat:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        brokers: Iterable[Ticking],
        connections: Callable[[], Iterable[Ticking]],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._brokers = list(brokers)
        self._connections = connections
        self._connections_due: Millis = 0
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._next = self._loop.call_later(BEAT_S, self._beat)

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def _beat(self) -> None:
        self._next = self._loop.call_later(BEAT_S, self._beat)
        now = self._clock.now()
        for broker in self._brokers:
            tell(broker.tick, now)
        # A clock that was set back must not keep connections from being ticked.
        if now >= self._connections_due or now < self._connections_due - CONNECTION_EVERY:
            self._connections_due = now + CONNECTION_EVERY
            for connection in list(self._connections()):
                tell(connection.tick, now)
