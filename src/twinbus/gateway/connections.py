"""The open connections of a namespace, whatever carries their bytes: sockets, TLS or WebSockets.

Anybody can open connections and leave them without a token. So such a stranger gives way to a newcomer, the one that has waited
longest first, and only clients that have proved a right can keep others out. Strangers elsewhere cannot be made to give way from here, so
no node counts those of another.
"""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from twinbus.broker.telling import tell
from twinbus.clock import Millis
from twinbus.errors import MessagingError, QuotaExceeded
from twinbus.gateway.connection_gateway import ConnectionGateway

MakeGateway: TypeAlias = Callable[[Callable[[], None]], ConnectionGateway]
"""The transport's `wake` in, the gateway of a new connection out."""


class OpenConnection(Protocol):
    """A connection as everything but its own transport sees it."""

    def tick(self, now: Millis) -> None: ...

    def clock_stepped(self, by: Millis) -> None: ...

    def close(self) -> None: ...

    def cut(self) -> None:
        """Drop the connection without a close frame, as a network failure does."""
        ...

    def force_detach(self, path: str, now: Millis) -> int: ...

    @property
    def unread_size(self) -> int:
        """Bytes that were sent and that the client has not read yet, apart from those that the system keeps."""
        ...


class OtherConnections(Protocol):
    """Those of the other nodes that serve the namespace, without their strangers."""

    @property
    def connections_elsewhere(self) -> int: ...

    def connections_changed(self, own_count: int) -> None:
        """For the other nodes to know: the connections here without the strangers."""
        ...


class _OnlyHere:
    connections_elsewhere = 0

    def connections_changed(self, own_count: int) -> None: ...


ONLY_HERE: OtherConnections = _OnlyHere()


class Connections:
    def __init__(self, count_max: int, others: OtherConnections = ONLY_HERE) -> None:
        self._count_max = count_max
        self._others = others
        self._open: set[OpenConnection] = set()
        self.strangers: dict[OpenConnection, None] = {}
        """Those whose clients have not put a valid token yet, in the order in which they came."""
        self.refused_count = 0
        """Those closed for a newcomer, too."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenConnection]:
        return iter(self._open)

    def add(self, connection: OpenConnection) -> MessagingError | None:
        """Returns the error to close it with, as soon as it can be sent, if there are too many."""
        self._open.add(connection)
        self.strangers[connection] = None
        count = len(self._open) + self._others.connections_elsewhere
        refusal = None
        if count > self._count_max:
            self.refused_count += 1
            if count - len(self.strangers) < self._count_max:
                self.cut_oldest_stranger()
            else:
                refusal = QuotaExceeded(
                    f"The namespace has {self._count_max} connections open, which is its limit. Close some."
                )
        return refusal

    def proved(self, connection: OpenConnection) -> None:
        """Its client has put a valid token."""
        self.strangers.pop(connection, None)
        self._tell_others()

    def cut_oldest_stranger(self) -> None:
        """Called while there is one."""
        oldest = next(iter(self.strangers))
        self._forget(oldest)
        oldest.cut()

    def discard(self, connection: OpenConnection) -> None:
        self._forget(connection)
        self._tell_others()

    def _tell_others(self) -> None:
        self._others.connections_changed(len(self._open) - len(self.strangers))

    def _forget(self, connection: OpenConnection) -> None:
        self._open.discard(connection)
        self.strangers.pop(connection, None)

    def close_all(self) -> None:
        for connection in list(self._open):
            tell(connection.close)

    def cut_all(self) -> int:
        """Returns how many there were."""
        connections = list(self._open)
        for connection in connections:
            connection.cut()
        return len(connections)

    def cut_unread(self, size_max: int) -> int:
        """Cut those whose clients leave most unread, until all together are within the limit. Returns how many were cut."""
        sizes = {connection: size for connection in self._open if (size := connection.unread_size)}
        total, count = sum(sizes.values()), 0
        for connection in sorted(sizes, key=sizes.__getitem__, reverse=True) if total > size_max else ():
            connection.cut()
            total -= sizes[connection]
            count += 1
            if total <= size_max:
                break
        return count

    def force_detach(self, path: str, now: Millis) -> int:
        """Detach all links to an entity; returns how many there were."""
        return sum(connection.force_detach(path, now) for connection in list(self._open))
