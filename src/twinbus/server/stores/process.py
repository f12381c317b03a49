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
import pickle
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, cast

from twinbus.broker.store_port import StoreLease
from twinbus.server.server_settings import LogFormat, LogLevel
from twinbus.server.stores.host_process import HostProcess, Orders
from twinbus.server.stores.leases import HeldLease, LeaseLine, held_for_good
from twinbus.server.stores.line_frames import (
    COMMIT,
    COUNT,
    DONE,
    EVENT,
    HEADER,
    LAID,
    LAID_COMMIT,
    LAID_EVENT,
    LAID_ROWS,
    QUERY,
    ROWS,
    SOME_LAID_ROWS,
    SWITCH,
    UNWRITABLE,
    FrameSpace,
)
from twinbus.server.stores.places import StoresToKeep
from twinbus.server.stores.served_store import (
    STOP_WAIT_S,
    Answer,
    Done,
    Event,
    Failed,
    OnLost,
    OnReturned,
    ServedStore,
)
from twinbus.server.stores.shared_room import LAID_SIZE_MIN, Room, halves, new_rooms
from twinbus.store.changes import Change, StoredMessage
from twinbus.store.journal_record import decode_rows, encode_changes
from twinbus.store.reads import Read

BUFFER_BYTES = 1 << 20
"""Of a line: requests that do not fit cannot share the next sync with those that do."""
COMMIT_BYTES_MAX = (1 << 31) - (1 << 20)
"""A batch is written in one piece, and the system writes no more than this at once."""
UNAWAITED_WAIT_S = 0.04
"""How long what nobody waits for is kept, for something else to go with."""
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


class SocketLine(asyncio.BufferedProtocol):
    """The namespace's end of the line to one store."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: ServedStore, lost: Callable[[], None], room: int | None = None
    ) -> None:
        """`room`: the descriptor of the memory that is shared with the store; the line closes it."""
        self.is_open = True
        self._room: Room | None = None
        self._answers = memoryview(b"")  # the half that the store lays its answers down in
        if room is not None:
            commits, self._answers = halves(room)
            self._room = Room(commits)
        self._is_laid: deque[bool] = deque()  # of each request that is not answered
        self._read_count = 0  # answers in the room, since the store was last told
        self._loop = loop
        self._store = store
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._frames = FrameSpace()
        self._rows: list[StoredMessage] = []  # of an answer that is not complete
        self._out: list[bytes] = []  # requests that are not sent yet, header and content of each
        self._is_flush_due = False
        self._flush_timer: asyncio.TimerHandle | None = None  # for what nobody waits for

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface without the base class.
        self._transport = cast(asyncio.Transport, transport)
        self._store.connect(self, self._loop.call_soon)

    def get_buffer(self, _: int) -> memoryview:
        return self._frames.free()

    def buffer_updated(self, size: int) -> None:
        events: list[Event] = []
        for kind, content in self._frames.take(size):
            if kind == DONE:
                events.append(self._answered(Done(*COUNT.unpack(content))))
            elif kind == EVENT:
                events.append(self._answered(pickle.loads(content)))
            elif kind == LAID_EVENT:
                place, length = LAID.unpack(content)
                events.append(self._answered(pickle.loads(self._answers[place : place + length])))
                self._read_count += 1
            else:
                if kind in (LAID_ROWS, SOME_LAID_ROWS):
                    place, length = LAID.unpack(content)
                    self._rows += decode_rows(self._answers[place : place + length])
                    self._read_count += 1
                else:
                    self._rows += decode_rows(content)
                if kind in (ROWS, LAID_ROWS):
                    events.append(self._answered(Answer(self._rows)))
                    self._rows = []
        self._store.told(events)

    def _answered(self, event: Event) -> Event:
        """Requests are answered in their order: what was laid down for these is not looked at any more."""
        count = event.commits if type(event) is Done else 1 if isinstance(event, Answer | Failed) else 0
        is_laid, laid_count = self._is_laid, 0
        for _ in range(count):
            laid_count += is_laid.popleft()
        if laid_count and self._room is not None:
            self._room.give_up(laid_count)
        return event

    def connection_lost(self, _: Exception | None) -> None:
        self.is_open = False
        self._transport = None
        self._lost()

    def commit(self, changes: list[Change], /, *, is_awaited: bool = True) -> int:
        try:
            pieces = encode_changes(changes)
            size = sum(map(len, pieces))
            if size > COMMIT_BYTES_MAX:
                raise ValueError(f"it has {size} bytes")
            place = self._room.lay_down(pieces, size) if self._room is not None and size >= LAID_SIZE_MIN else None
            body = b"".join(pieces) if place is None else b""
        except Exception as broken:
            # As if the store had failed: the broker forgets what it decided and starts from what is durable.
            log.exception("commit_not_encoded")
            self._is_laid.append(False)
            self._send(UNWRITABLE, repr(broken).encode())
            return 0
        self._is_laid.append(place is not None)
        if place is not None:
            self._send(LAID_COMMIT, LAID.pack(place, size))
        else:
            self._send(COMMIT, body, is_awaited=is_awaited)
        return size

    def query(self, read: Read[Any], /) -> None:
        self._is_laid.append(False)
        read_count, self._read_count = self._read_count, 0
        self._send(QUERY, COUNT.pack(read_count) + pickle.dumps(read, pickle.HIGHEST_PROTOCOL))

    def switch(self, name: str, /, *arguments: float) -> None:
        self._send(SWITCH, pickle.dumps((name, arguments), pickle.HIGHEST_PROTOCOL))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send(self, kind: int, content: bytes, *, is_awaited: bool = True) -> None:
        """At once if the store has nothing to do; otherwise together with whatever else this turn of the loop asks of it. What
        nobody waits for goes with the next request, and need not wake the store and sync by itself."""
        is_idle = self._store.waiting_count <= len(self._out) // 2
        self._out += (HEADER.pack(kind, len(content)), content)
        if self._is_flush_due:
            return
        if is_awaited and is_idle:
            self._flush()
        elif is_awaited:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        elif self._flush_timer is None:
            self._flush_timer = self._loop.call_later(UNAWAITED_WAIT_S, self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        data = b"".join(self._out)
        self._out.clear()
        if data and self._transport is not None:
            self._transport.write(data)


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return ours, theirs


def _given(line: SocketLine) -> SocketLine:
    return line
