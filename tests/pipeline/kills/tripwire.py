"""A wire in front of namespaces over which a program dies: the number of a frame goes in, a dead program comes out.

    program  <--->  tripwire  <--->  namespaces
                       '-- frame 17 of those that are counted: kill -9, and then the frame goes on, or is lost

What a program did is what the namespaces have heard of it, so every state in which it can be killed is one between two frames.
Nothing of the program has to know about it: its connection strings have other ports.
"""

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

TRANSFER, DISPOSITION = 0x14, 0x15
HEADER_SIZE = 8
READ_SIZE = 256 * 1024
SESSION_FIELD, STATE_FIELD = 3, 0  # of /proc/PID/stat, behind the name
GONE_S_MAX = 20.0


class Tripwire:
    """Counts messages, requests, answers and settlements in both directions, over all its connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[socket.socket] = []
        self._sockets: list[socket.socket] = []
        self._kill: Callable[[], None] | None = None
        self._number = 0
        self._goes_on = False
        self.count = 0
        """Frames that have passed since it was set."""

    def guard(self, connection_string: str) -> str:
        """One with a port of the wire's own, behind which this namespace is."""
        found = re.search(r"127\.0\.0\.1:(\d+)", connection_string)
        assert found is not None
        listener = socket.create_server(("127.0.0.1", 0))
        self._listeners.append(listener)
        threading.Thread(target=self._accept, args=(listener, int(found[1])), daemon=True).start()
        return connection_string.replace(found[0], f"127.0.0.1:{listener.getsockname()[1]}")

    def set(self, kill: Callable[[], None], number: int, *, goes_on: bool) -> None:
        """`number` counts from 1; 0 lets everything pass. `goes_on`: the frame over which it dies arrives."""
        with self._lock:
            self._kill, self._number, self._goes_on, self.count = kill, number, goes_on, 0

    def close(self) -> None:
        for each in (*self._listeners, *self._sockets):
            # Closing alone does not wake a thread that reads from it.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listener: socket.socket, port: int) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", port))
                except OSError:
                    near.close()
                    continue
                self._sockets += (near, far)
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        waiting = bytearray()
        with suppress(OSError):
            while data := source.recv(READ_SIZE):
                waiting += data
                end = self._whole(waiting)
                target.sendall(waiting[:end])
                del waiting[:end]
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _whole(self, waiting: bytearray) -> int:
        """Up to where the bytes can go on. Raises ConnectionResetError once the program is dead."""
        place = 0
        while len(waiting) - place >= HEADER_SIZE:
            size = HEADER_SIZE
            if waiting[place : place + 4] != b"AMQP":
                size = int.from_bytes(waiting[place : place + 4])
                if len(waiting) - place < size:
                    break
                kind = waiting[place + 10] if size > 10 and waiting[place + 5] == 0 else 0
                if kind in (TRANSFER, DISPOSITION) and self._is_the_one():
                    if not self._goes_on:
                        raise ConnectionResetError
                    return place + size
            place += size
        return place

    def _is_the_one(self) -> bool:
        with self._lock:
            self.count += 1
            if self.count != self._number or self._kill is None:
                return False
            self._kill()
            return True


def kill_session(leader: int) -> None:
    """Every process of the session, also those whose parents have died; returns when none is left."""
    deadline = time.monotonic() + GONE_S_MAX
    while left := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _session_of(pid) == leader]:
        assert time.monotonic() < deadline, f"{left} do not die"
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _session_of(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[STATE_FIELD] == "Z" else int(fields[SESSION_FIELD])
