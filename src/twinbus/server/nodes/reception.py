"""Accepts the connections of a namespace and hands each to the node that has the fewest.

One process accepts and passes on, instead of ports that all nodes listen on: a kernel that spreads connections by the hash of
their addresses gives one of two nodes six of eight as often as not, and one listening socket for all wakes the idlest node,
which then takes the lot. A node that has ended gets none, and those on their way to it are closed with it, so no client waits
in a queue that nobody reads. It costs a connection some microseconds, and a message nothing.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from twinbus.server.listening.accepting import Acceptor
from twinbus.server.listening.ports import Door
from twinbus.server.nodes.shared_counts import BEAT, OPEN, SharedCounts

ACCEPTED_AT_ONCE_MAX = 64


@dataclass(slots=True)
class _Desk:
    """A node, as the reception sees it."""

    line: socket.socket
    beat: int = 0
    given: int = 0  # since that beat, so that they are not in its own count yet
    last: int = 0  # when it was given one


class Reception:
    def __init__(self, doors: Sequence[tuple[socket.socket, Door]], counts: SharedCounts) -> None:
        self._acceptor = Acceptor(doors, self._pass_on, ACCEPTED_AT_ONCE_MAX)
        self._counts = counts
        self._desks: dict[int, _Desk] = {}
        self._turn = 0

    def open(self) -> None:
        """Raises ArgumentError if another program listens on one of the ports by now."""
        self._acceptor.open()

    def close(self) -> None:
        self._acceptor.close()

    def add(self, node: int, line: socket.socket) -> None:
        """From now on the node gets connections over this line."""
        line.setblocking(False)
        self._desks[node] = _Desk(line)

    def remove(self, node: int) -> None:
        self._desks.pop(node, None)

    def _pass_on(self, connection: socket.socket, door: Door) -> None:
        with connection:
            self.hand_over(connection, door)

    def hand_over(self, connection: socket.socket, door: Door) -> int | None:
        """Returns the node that got it; without one that can take it, it is closed."""
        for node in sorted(self._desks, key=self._load_of):
            desk = self._desks[node]
            try:
                socket.send_fds(desk.line, [bytes([door])], [connection.fileno()])
            except OSError:
                continue  # it has ended, or takes none at the moment
            self._turn += 1
            desk.given, desk.last = desk.given + 1, self._turn
            return node
        return None

    def _load_of(self, node: int) -> tuple[int, int]:
        desk, beat = self._desks[node], self._counts.get(node, BEAT)
        if beat != desk.beat:
            desk.beat, desk.given = beat, 0
        return self._counts.get(node, OPEN) + desk.given, desk.last
