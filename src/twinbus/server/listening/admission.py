"""How many sockets a namespace holds: connections come and go, and some are closed so that others have room.

AMQP connections have a limit of their own (`gateway.connections`), and clients over it are answered. Everything before that, and
HTTP, is bounded here. Of those that wait for something the one that has waited longest is closed, not the newcomer: whoever
opens connections and leaves them silent does not keep others out.

    undecided   accepted, and not known yet what they speak
    idle        HTTP, between two requests or before the first
    strangers   AMQP, without a valid token so far
    sockets     all of them and AMQP together: some descriptors stay free for files and for the process of the stores
"""

import resource
from collections.abc import Sized
from dataclasses import dataclass
from typing import Protocol

from twinbus.amqp.reassembly import SHARED_SIZE_MAX
from twinbus.server.listening.refusal_log import (
    NO_REQUESTS,
    TOO_MANY_HTTP,
    TOO_MANY_SOCKETS,
    TOO_MANY_UNDECIDED,
    RefusalLog,
)

FREE_DESCRIPTORS = 256
"""For files, pipes and the process of the stores; at most a quarter of what the process may have."""
DESCRIPTORS_FALLBACK = 10_240
"""What macOS allows a process, whatever it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLimits:
    """Of all connections of a namespace together."""

    undecided_count_max: int = 5_000
    http_count_max: int = 5_000
    incomplete_size_max: int = SHARED_SIZE_MAX
    """Bytes of messages that have arrived in part."""
    unread_size_max: int = 512 * 1_048_576
    """Bytes that clients have not read yet."""


class Closable(Protocol):
    def cut(self) -> None: ...


class AmqpConnections(Sized, Protocol):
    @property
    def strangers(self) -> Sized: ...

    def cut_oldest_stranger(self) -> None: ...


class Admission:
    def __init__(
        self, limits: SharedLimits, amqp: AmqpConnections, refusals: RefusalLog, socket_count_max: int
    ) -> None:
        self._limits = limits
        self._amqp = amqp
        self._refusals = refusals
        self._socket_count_max = socket_count_max
        # In the order in which they began to wait.
        self.undecided: dict[Closable, None] = {}
        self._idle: dict[Closable, None] = {}
        self._busy: set[Closable] = set()

    def wait_for_start(self, connection: Closable) -> None:
        """A connection was accepted. One of those that wait may be closed, even this one."""
        self.undecided[connection] = None
        if len(self.undecided) > self._limits.undecided_count_max:
            self._close_first(self.undecided, TOO_MANY_UNDECIDED)
        self._check_sockets()

    def decided(self, connection: Closable) -> None:
        self.undecided.pop(connection, None)

    def http_idle(self, connection: Closable) -> None:
        """It speaks HTTP, and no request of it is being answered."""
        self._busy.discard(connection)
        self._idle.pop(connection, None)
        self._idle[connection] = None
        if len(self._idle) + len(self._busy) > self._limits.http_count_max:
            self._close_first(self._idle, TOO_MANY_HTTP)
        self._check_sockets()

    def http_busy(self, connection: Closable) -> None:
        if connection in self._idle:
            del self._idle[connection]
            self._busy.add(connection)

    def http_gone(self, connection: Closable) -> None:
        self._idle.pop(connection, None)
        self._busy.discard(connection)

    def http_refused(self) -> None:
        self._refusals.note(NO_REQUESTS)

    @property
    def socket_count(self) -> int:
        return len(self._amqp) + len(self.undecided) + len(self._idle) + len(self._busy)

    def _check_sockets(self) -> None:
        if self.socket_count > self._socket_count_max:
            waiting = max(self._idle, self.undecided, key=len)
            if len(self._amqp.strangers) > len(waiting):
                self._refusals.note(TOO_MANY_SOCKETS)
                self._amqp.cut_oldest_stranger()
            else:
                self._close_first(waiting, TOO_MANY_SOCKETS)

    def _close_first(self, waiting: dict[Closable, None], what: str) -> None:
        self._refusals.note(what)
        connection = next(iter(waiting))
        del waiting[connection]
        connection.cut()


def raise_descriptor_limit() -> None:
    """As far as the system allows: every connection is a descriptor, and the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, DESCRIPTORS_FALLBACK):
        if soft != resource.RLIM_INFINITY and (wanted == resource.RLIM_INFINITY or wanted > soft):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            except (OSError, ValueError):
                continue
        return


def socket_count_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft - min(FREE_DESCRIPTORS, soft // 4)
