"""The process that keeps messaging stores, as whoever starts it sees it: hired first, told what to keep when that is known.

Most of its start is reading its program. So a process that may have to serve a namespace at any moment hires one in advance
(`twinbus.server.nodes.node`). What it is told goes over a socket: a connection string may hold a secret, and anybody can read arguments.
"""

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import twinbus
from twinbus.server.server_settings import STORE_COUNT_MAX, LogFormat, LogLevel
from twinbus.server.stores.places import StoresToKeep

PROGRAM = "import sys; sys.path.append(sys.argv[1]); from twinbus.server.stores.host import main; main(sys.argv[2])"
PACKAGE_PLACE = str(Path(twinbus.__file__).parents[1])
DESCRIPTORS_MAX = 2 * STORE_COUNT_MAX + 1
"""A line and a room for each store, and one for their leases."""


class Orders(NamedTuple):
    log_format: LogFormat
    log_level: LogLevel
    wanted: StoresToKeep
    has_rooms: bool  # whether each store shares memory with the namespace


class HostProcess:
    """Raises OSError if the system starts no more processes. It ends by itself if it is never told anything."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        # -P: a folder in the working directory may have the name of our package; the place of ours is an argument instead.
        # A session of its own: Ctrl-C must reach the namespace only.
        command = [sys.executable, "-P", "-c", PROGRAM, PACKAGE_PLACE, str(theirs.fileno())]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                # Its threads take turns, so a heap for each of them would waste memory.
                env={"MALLOC_ARENA_MAX": "2", **os.environ},
            )
        except OSError:
            self._orders.close()
            raise
        finally:
            theirs.close()

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def begin(self, orders: Orders, lines: Sequence[socket.socket], rooms: Sequence[int]) -> None:
        """`lines`: that of the leases first, if there are any; then one for each store. `rooms`: descriptors of memory to share."""
        with self._orders, suppress(OSError):  # if it is gone, its lines end
            socket.send_fds(self._orders, [b"\0"], [*(line.fileno() for line in lines), *rooms])
            self._orders.sendall(pickle.dumps(orders))


def read_orders(descriptor: int) -> tuple[Orders, list[socket.socket], list[int | None]] | None:
    """In the process, with lines and rooms; None if nobody needs it any more."""
    with socket.socket(fileno=descriptor) as line:
        first, descriptors, _, _ = socket.recv_fds(line, 1, DESCRIPTORS_MAX)
        told = b"".join(iter(lambda: line.recv(1 << 16), b""))
    if not first or not told:
        return None
    orders: Orders = pickle.loads(told)
    count = len(orders.wanted.numbers)
    line_count = len(descriptors) - count * orders.has_rooms
    lines = [socket.socket(fileno=each) for each in descriptors[:line_count]]
    return orders, lines, [*descriptors[line_count:]] or [None] * count
