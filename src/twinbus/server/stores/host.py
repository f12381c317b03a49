"""The process that keeps the messaging stores of a namespace: `main` with a socket on which it is told which (`host_process`).

Each store has a thread, a socket to the namespace (`line_frames`) and memory that it shares with it (`shared_room`), unless the
system has none. Journals, tables and checkpoints run in this process's interpreter, so that the event loop of the namespace does not
share its own.

The process ends when every store has been stopped; or, when the namespace is gone, with the first thread that reads the end of
its socket or fails to write to it. Leases are given back then, so that a successor need not wait for their end. Nobody waits
for what is under way, and what is durable is in the journals. A successor that opens a folder too early is refused by the folder's lock
and tries again. Signals are ignored: Ctrl-C and SIGTERM reach the namespace, which still needs its stores to stop in good order, and
stops this process as well.
"""

import logging
import os
import pickle
import select
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from twinbus.clock import boot_time
from twinbus.server.process_setup import set_up_process
from twinbus.server.stores.host_process import read_orders
from twinbus.server.stores.leases import NOT_REPLICATED, REPLICATED, UPDATE
from twinbus.server.stores.line_frames import (
    COMMIT,
    COUNT,
    DONE,
    LAID,
    LAID_COMMIT,
    QUERY,
    UNWRITABLE,
    FrameSpace,
    event_frame,
    frame,
    is_rows,
    row_frames,
)
from twinbus.server.stores.places import StoresToKeep, opener
from twinbus.server.stores.served_store import Answer, Done, Event
from twinbus.server.stores.shared_room import Room, halves
from twinbus.server.stores.worker import Commit, Query, Request, StoreWorker, Switch, Unwritable
from twinbus.store.changes import StoredMessage
from twinbus.store.durable import DurableStore
from twinbus.store.store_limits import StoreLimits

if TYPE_CHECKING:
    from twinbus.store.postgres.lease import LeaseKeeper

READ_BYTES = 512 * 1024
TAKEN_BYTES_MAX = 4 << 20
"""What is taken from a line at once: a sync of megabytes takes little longer than one of a few bytes."""

log = logging.getLogger(__name__)


class SocketEnd:
    """The store's end of its line."""

    def __init__(self, connection: socket.socket, room: int | None = None) -> None:
        """`room`: the descriptor of the memory that is shared with the namespace."""
        self._connection = connection
        self._commits = memoryview(b"")  # the half that the namespace lays its commits down in
        self._room: Room | None = None
        if room is not None:
            self._commits, answers = halves(room)
            self._room = Room(answers)
        self._frames = FrameSpace(READ_BYTES)
        self._readable = select.poll()
        self._readable.register(connection, select.POLLIN)

    def receive(self, timeout_s: float | None) -> list[Request]:
        """Raises EOFError when the namespace is gone.

        Waits in `poll`: a thread that waits in `recv` is also woken each time the namespace has read what was sent to it.
        """
        requests: list[Request] = []
        timeout_ms = None if timeout_s is None else 1_000 * timeout_s
        try:
            while not requests:
                if not self._readable.poll(timeout_ms):
                    return []
                self._take(requests)
        except OSError as error:
            raise EOFError from error
        return requests

    def _take(self, requests: list[Request]) -> None:
        """What has arrived; the line is asked again only if it had more than there was space for."""
        taken, flags = 0, 0
        while taken < TAKEN_BYTES_MAX:
            space = self._frames.free()
            try:
                size = self._connection.recv_into(space, flags=flags)
            except BlockingIOError:
                return
            if size == 0 and not taken:
                raise EOFError
            for kind, content in self._frames.take(size):
                requests.append(self._request(kind, content))
            if size < len(space):
                return
            taken, flags = taken + size, socket.MSG_DONTWAIT

    def _request(self, kind: int, content: memoryview) -> Request:
        if kind == COMMIT:
            return Commit([bytes(content)])
        if kind == LAID_COMMIT:
            place, length = LAID.unpack(content)
            return Commit([self._commits[place : place + length]])
        if kind == QUERY:
            if self._room is not None:
                self._room.give_up(*COUNT.unpack_from(content))
            return Query(pickle.loads(content[COUNT.size :]))
        if kind == UNWRITABLE:
            return Unwritable(str(content, "utf-8"))
        return Switch(*pickle.loads(content))

    def send(self, events: Sequence[Event]) -> None:
        try:
            frames: list[bytes] = []
            for event in events:
                if isinstance(event, Answer) and is_rows(event.result):
                    self._send_frames(frames)
                    self._send_rows(event.result)
                else:
                    frames.append(self._frame_of(event))
            self._send_frames(frames)
        except OSError as error:
            raise EOFError from error

    def _frame_of(self, event: Event) -> bytes:
        if isinstance(event, Done):
            return frame(DONE, COUNT.pack(event.commits))
        # Only answers: the room is given up with the query that follows.
        return event_frame(event, self._room if isinstance(event, Answer) else None)

    def _send_frames(self, frames: list[bytes]) -> None:
        if frames:
            self._connection.sendall(b"".join(frames))
            frames.clear()

    def _send_rows(self, rows: list[StoredMessage]) -> None:
        """Thousands of them when a backlog is drained: columns take a fifth of the time that pickles do."""
        for size, pieces in row_frames(rows, self._room):
            sent = self._connection.sendmsg(pieces)
            if sent < size:
                self._connection.sendall(b"".join(pieces)[sent:])


class LeaseEnd:
    """The store process's end of the line for leases: tells renewals, and knows when the namespace was last alive."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._alive_at = boot_time()
        threading.Thread(target=self._listen, name="beats", daemon=True).start()

    def _listen(self) -> None:
        # At its end the stores' own threads read theirs.
        with suppress(OSError):
            while self._line.recv(64):
                self._alive_at = boot_time()

    def alive_at(self) -> float:
        return self._alive_at

    def replicated(self, number: int, is_replicated: bool) -> None:
        self.trusted_until(number, REPLICATED if is_replicated else NOT_REPLICATED)

    def trusted_until(self, number: int, until: float) -> None:
        try:
            self._line.sendall(UPDATE.pack(number, until))
        except OSError:
            return  # the namespace is gone


def run(index: int, line: SocketEnd, open_store: Callable[[], DurableStore], at_end: Callable[[], None]) -> None:
    """Serve one store until it is stopped. Ends the process if the namespace is gone or the thread breaks."""
    try:
        StoreWorker(index, open_store, DurableStore.commit_records, line).run()
    except EOFError:
        at_end()
        # Not `sys.exit`, which ends a thread only: the other stores have lost the namespace too.
        os._exit(1)
    except BaseException:
        # A store without its thread would never answer again; a process that ends is restarted.
        log.exception("store_thread_broken", extra={"fields": {"store": index}})
        os._exit(1)


def main(orders_socket: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told = read_orders(int(orders_socket))
    if told is None:
        return
    (log_format, log_level, wanted, _), lines, rooms = told
    set_up_process(log_format, log_level)
    limits = StoreLimits.shared_by(len(wanted.places))
    renewal, at_end = _keep_leases(lines.pop(0), wanted) if wanted.have_leases else (None, _nothing)
    threads = [
        threading.Thread(
            target=run,
            args=(index, line, opener(wanted.places[index], wanted.owner, limits, renewal), at_end),
            name=f"store-{index:02}",
        )
        for index, line in zip(wanted.numbers, map(SocketEnd, lines, rooms), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _keep_leases(line: socket.socket, wanted: StoresToKeep) -> "tuple[LeaseKeeper, Callable[[], None]]":
    from twinbus.store.postgres.lease import LeaseKeeper

    end = LeaseEnd(line)
    keeper = LeaseKeeper(end.trusted_until, end.alive_at, end.replicated)
    once = threading.Lock()
    if wanted.owner is not None and wanted.catalog is not None:
        keeper.give_back_too(wanted.catalog, wanted.owner, "leave_register" if wanted.is_node else "give_lease_back")

    def give_back() -> None:
        # The first thread that reads the end of its line gives all of them back; the others wait, and the process ends.
        with once:
            keeper.give_back()

    return keeper, give_back


def _nothing() -> None: ...
