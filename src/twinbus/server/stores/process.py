"""The messaging stores of a namespace in a process of their own (`host`): requests out as frames, events in.

    no process --start--> running --it ended--> no process --after a pause--> running
                             '--stop--> every store is closed, and it ends by itself

If the process ends by itself (killed, or out of memory), every line reads its end. Answers that were written before are read
first, so a commit that was answered is known to be durable; the others are unknown, and fail. Only when the last line is gone
are the stores disconnected and a new process started: a line that is still open could bring answers of the old one. If a
single line ends, the process is killed, since its stores belong together.

If the namespace ends first, the process reads the end of its lines and exits (`host`). If the namespace stops in good order, it
waits for the process to serve what was asked before `stop`, close the stores and exit; after STOP_WAIT_S it kills it.
"""

import asyncio
import logging
import socket
import subprocess
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest

from twinbus.broker.store_port import StoreLease
from twinbus.server.server_settings import LogFormat, LogLevel
from twinbus.server.stores.host_process import HostProcess, Orders
from twinbus.server.stores.leases import HeldLease, LeaseLine, held_for_good
from twinbus.server.stores.places import StoresToKeep
from twinbus.server.stores.served_store import STOP_WAIT_S, OnLost, OnReturned, ServedStore
from twinbus.server.stores.shared_room import new_rooms
from twinbus.server.stores.socket_line import SocketLine

BUFFER_BYTES = 1 << 20
"""Of a line: requests that do not fit cannot share the next sync with those that do."""
RESTART_PAUSE_S = 1.0
KILL_WAIT_S = 2.0

log = logging.getLogger(__name__)


class StoreProcess:
    """Lives on the loop thread. `hired`: a process to begin with."""

    def __init__(
        self,
        wanted: StoresToKeep,
        log: tuple[LogFormat, LogLevel],
        loop: asyncio.AbstractEventLoop,
        on_lost: OnLost,
        on_returned: OnReturned,
        hired: HostProcess | None = None,
    ) -> None:
        self._hired = hired
        count = len(wanted.numbers)
        self.stores = [ServedStore(index, on_lost, on_returned) for index in wanted.numbers]
        self._held = [HeldLease() for _ in range(count)] if wanted.have_leases else []
        self.leases: Sequence[StoreLease] = self._held or held_for_good(count)
        self._wanted = wanted
        self._log = log
        self._loop = loop
        self._lines: list[SocketLine] = []
        self._lease_line: LeaseLine | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopping = False
        self._restart: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None
        self._all_closed = asyncio.Event()

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        self._all_closed.clear()
        pairs = [_socket_pair() for _ in self.stores]
        lease_pair = socket.socketpair() if self._held else None
        theirs = [*([lease_pair[1]] if lease_pair else []), *(end for _, end in pairs)]
        hired, self._hired = self._hired, None
        host = HostProcess() if hired is None or hired.has_ended else hired
        self._process = host.process
        rooms = new_rooms(len(self.stores))
        host.begin(Orders(*self._log, self._wanted, has_rooms=bool(rooms)), theirs, rooms)
        for end in theirs:
            end.close()
        if lease_pair is not None:
            self._lease_line = lease_line = LeaseLine(
                self._loop,
                self._held,
                lambda number: self.stores[number].recall(),
                lambda number, is_replicated: self.stores[number].found_replicated(is_replicated),
            )
            await self._loop.create_unix_connection(lambda: lease_line, sock=lease_pair[0])
        self._lines = [
            SocketLine(self._loop, store, self._line_lost, room) for store, room in zip_longest(self.stores, rooms)
        ]
        for line, (ours, _) in zip(self._lines, pairs, strict=True):
            await self._loop.create_unix_connection(partial(_given, line), sock=ours)

    async def stop(self) -> None:
        self._is_stopping = True
        if self._starting is not None:
            await asyncio.wait([self._starting])  # or some stores would miss the stop
        for store in self.stores:
            store.stop()
        if any(line.is_open for line in self._lines):
            try:
                await asyncio.wait_for(self._all_closed.wait(), STOP_WAIT_S)
            except TimeoutError:
                log.warning("stores_not_closed", extra={"fields": {"seconds": STOP_WAIT_S}})
        self.abandon()

    def abandon(self) -> None:
        self._is_stopping = True
        if self._restart is not None:
            self._restart.cancel()
        for line in self._lines:
            line.close()
        if self._lease_line is not None:
            self._lease_line.close()
        if self._process is not None:
            # What is durable stays so, and nobody waits for anything else.
            self._end(self._process)
            self._process = None

    def _line_lost(self) -> None:
        if any(line.is_open for line in self._lines):
            if not self._is_stopping and self._process is not None:
                # A process without one of its stores cannot continue: restart it as a whole.
                self._process.kill()
            return
        self._all_closed.set()
        if not self._is_stopping:
            self._lost()

    def _lost(self) -> None:
        assert self._process is not None
        code = self._end(self._process)
        log.error("store_process_ended", extra={"fields": {"code": code}})
        for store in self.stores:
            store.disconnect(f"the process that keeps the messaging stores ended with {code}")
        self._start_later()

    def _end(self, process: "subprocess.Popen[bytes]") -> int | None:
        """The exit code; None if the system keeps the process from ending, as a hanging disk does."""
        process.kill()
        try:
            return process.wait(KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            return None

    def _start_later(self) -> None:
        self._restart = self._loop.call_later(RESTART_PAUSE_S, self._start_again)

    def _start_again(self) -> None:
        self._starting = self._loop.create_task(self._try_to_start())

    async def _try_to_start(self) -> None:
        if self._is_stopping:
            return
        try:
            await self.start()
        except OSError as error:
            log.error("store_process_not_started", extra={"fields": {"reason": str(error)}})
            self._start_later()


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return ours, theirs


def _given(line: SocketLine) -> SocketLine:
    return line
