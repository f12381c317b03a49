"""The process that keeps the messaging stores of a namespace: `main` with FORMAT, then SOCKET FOLDER for each store.

Each store has a thread and a socket to the namespace (`line_frames`). Journals, tables and checkpoints run in this process's
interpreter, so that the event loop of the namespace does not share its own.

The process ends when every store has been stopped; or, when the namespace is gone, with the first thread that reads the end of
its socket or fails to write to it. Nobody waits then for what is under way, and what is durable is in the journals. A
successor that opens a folder too early is refused by the folder's lock and tries again. Signals are ignored: Ctrl-C and
SIGTERM reach the namespace, which still needs its stores to stop in good order, and stops this process as well.
"""

import logging
import os
import pickle
import select
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from twinbus.server.data_folder import open_store
from twinbus.server.process_setup import set_up_process
from twinbus.server.server_settings import LogFormat, LogLevel
from twinbus.server.stores.line_frames import (
    COMMIT,
    COUNT,
    DONE,
    EVENT,
    QUERY,
    ROWS,
    UNWRITABLE,
    FrameBuffer,
    frame,
    is_rows,
    pickled,
)
from twinbus.server.stores.served_store import Answer, Done, Event
from twinbus.server.stores.worker import Commit, Query, Request, StoreWorker, Switch, Unwritable
from twinbus.store.durable import DurableStore
from twinbus.store.journal_record import encode_rows
from twinbus.store.store_limits import StoreLimits

READ_BYTES = 512 * 1024

log = logging.getLogger(__name__)


class SocketEnd:
    """The store's end of its line."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = FrameBuffer()
        self._space = memoryview(bytearray(READ_BYTES))
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
                size = self._connection.recv_into(self._space)
                if size == 0:
                    raise EOFError
                requests += self._requests(self._space[:size])
        except OSError as error:
            raise EOFError from error
        return requests

    def _requests(self, data: memoryview) -> Iterator[Request]:
        for kind, content in self._frames.take(data):
            if kind == COMMIT:
                yield Commit([content])
            elif kind == QUERY:
                yield Query(pickle.loads(content))
            elif kind == UNWRITABLE:
                yield Unwritable(content.decode())
            else:
                yield Switch(*pickle.loads(content))

    def send(self, events: Sequence[Event]) -> None:
        try:
            self._connection.sendall(b"".join([_frame_of(event) for event in events]))
        except OSError as error:
            raise EOFError from error


def _frame_of(event: Event) -> bytes:
    if isinstance(event, Done):
        return frame(DONE, COUNT.pack(event.commits))
    if isinstance(event, Answer) and is_rows(event.result):
        # Thousands of them when a backlog is drained: columns take a fifth of the time that pickles do.
        return frame(ROWS, b"".join(encode_rows(event.result)))
    return pickled(EVENT, event)


def run(index: int, connection: socket.socket, folder: Path, limits: StoreLimits) -> None:
    """Serve one store until it is stopped. Ends the process if the namespace is gone or the thread breaks."""
    try:
        StoreWorker(
            index, partial(open_store, folder, limits), DurableStore.commit_records, SocketEnd(connection)
        ).run()
    except EOFError:
        # Not `sys.exit`, which ends a thread only: the other stores have lost the namespace too.
        os._exit(1)
    except BaseException:
        # A store without its thread would never answer again; a process that ends is restarted.
        log.exception("store_thread_broken", extra={"fields": {"store": index}})
        os._exit(1)


def main(arguments: Sequence[str]) -> None:
    log_format, log_level, *rest = arguments
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    set_up_process(LogFormat(log_format), LogLevel(log_level))
    lines = [socket.socket(fileno=int(descriptor)) for descriptor in rest[::2]]
    folders = [Path(folder) for folder in rest[1::2]]
    limits = StoreLimits.shared_by(len(folders))
    threads = [
        threading.Thread(target=run, args=(index, line, folder, limits), name=f"store-{index:02}")
        for index, (line, folder) in enumerate(zip(lines, folders, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
