"""Keeps memory bounded over all connections: looks at them once a second, and closes those that cost most."""

from twinbus.amqp.reassembly import SharedReassembly
from twinbus.clock import Millis
from twinbus.gateway.connections import Connections
from twinbus.server.listening.refusal_log import INCOMPLETE, NOT_READ, TOO_MANY_AMQP, RefusalLog

LOOK_EVERY: Millis = 1_000


class Overload:
    def __init__(
        self, connections: Connections, reassembly: SharedReassembly, unread_size_max: int, refusals: RefusalLog
    ) -> None:
        self._connections = connections
        self._reassembly = reassembly
        self._unread_size_max = unread_size_max
        self._refusals = refusals
        self._dropped_count = 0
        self._refused_count = 0
        self._due: Millis = 0

    def tick(self, now: Millis) -> None:
        # A clock that was set back must not keep it from looking.
        if self._due - LOOK_EVERY <= now < self._due:
            return
        self._due = now + LOOK_EVERY
        if cut_count := self._connections.cut_unread(self._unread_size_max):
            self._refusals.note(NOT_READ, cut_count)
        if (dropped_count := self._reassembly.dropped_count) > self._dropped_count:
            self._refusals.note(INCOMPLETE, dropped_count - self._dropped_count)
            self._dropped_count = dropped_count
        if (refused_count := self._connections.refused_count) > self._refused_count:
            self._refusals.note(TOO_MANY_AMQP, refused_count - self._refused_count)
            self._refused_count = refused_count
