"""The namespace's end of the line to one store in the second process: requests out as frames, events in.

A request is sent at once if the store has nothing to do, otherwise together with the others of the same turn of the loop. A commit
that is large is encoded and written in steps, one in each turn, and whatever comes behind it waits (`in_order`).
"""

import asyncio
import logging
import pickle
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from twinbus.server.stores.in_order import InOrder
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
from twinbus.server.stores.served_store import Answer, Done, Event, Failed, ServedStore
from twinbus.server.stores.shared_room import LAID_SIZE_MIN, Room, halves
from twinbus.store.changes import Change, StoredMessage, contents_size
from twinbus.store.journal_record import decode_rows, encode_changes, encode_in_parts, is_long
from twinbus.store.reads import Read

JOINED_BYTES_MAX = 2 << 20
"""Of a large commit, in one turn of the loop: some milliseconds."""
COMMIT_BYTES_MAX = (1 << 31) - (1 << 20)
"""A batch is written in one piece, and the system writes no more than this at once."""
UNAWAITED_WAIT_S = 0.04
"""How long what nobody waits for is kept, for something else to go with."""

log = logging.getLogger(__name__)


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
        self._in_order = InOrder(loop.call_soon, self.close)
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
        self._in_order.stop()
        self._lost()

    def commit(self, changes: list[Change], /, *, is_awaited: bool = True) -> int:
        """A large one is encoded and written in steps. Nobody changes the rows in it before it is answered."""
        if self._in_order.is_busy:
            self._in_order.wait(partial(self._commit, changes, is_awaited=is_awaited))
            return contents_size(changes)
        return self._commit(changes, is_awaited=is_awaited)

    def _commit(self, changes: list[Change], *, is_awaited: bool) -> int:
        if is_long(changes):
            self._in_order.begin(self._commit_in_steps(changes))
            return contents_size(changes)
        try:
            pieces = encode_changes(changes)
            size = sum(map(len, pieces))
            rest = self._send_commit(pieces, size, is_awaited=is_awaited)
        except Exception as broken:
            self._send_unwritable(broken)
            return 0
        if rest is not None:
            self._in_order.begin(rest)
        return size

    def _commit_in_steps(self, changes: list[Change]) -> Iterator[None]:
        pieces: list[bytes] = []
        size = 0
        try:
            for part in encode_in_parts(changes):
                pieces += part
                size += sum(map(len, part))
                yield
            rest = self._send_commit(pieces, size, is_awaited=True)
        except Exception as broken:
            self._send_unwritable(broken)
            return
        yield from rest or ()

    def _send_commit(self, pieces: list[bytes], size: int, *, is_awaited: bool) -> Iterator[None] | None:
        """Returns the steps in which it is still to be written, if it is large."""
        if size > COMMIT_BYTES_MAX:
            raise ValueError(f"it has {size} bytes")
        place = self._room.lay_down(pieces, size) if self._room is not None and size >= LAID_SIZE_MIN else None
        if place is None and size <= JOINED_BYTES_MAX:
            body = b"".join(pieces)
            self._is_laid.append(False)
            self._send(COMMIT, body, is_awaited=is_awaited)
            return None
        self._is_laid.append(place is not None)
        if place is None:
            return self._write_in_steps(pieces, size)
        self._send(LAID_COMMIT, LAID.pack(place, size))
        return None

    def _write_in_steps(self, pieces: list[bytes], size: int) -> Iterator[None]:
        self._out.append(HEADER.pack(COMMIT, size))
        self._flush()
        for data in _joined(pieces):
            if self._transport is not None:
                self._transport.write(data)
            yield

    def _send_unwritable(self, broken: Exception) -> None:
        """As if the store had failed: the broker forgets what it decided and starts from what is durable."""
        log.error("commit_not_encoded", exc_info=broken)
        self._is_laid.append(False)
        self._send(UNWRITABLE, repr(broken).encode())

    def query(self, read: Read[Any], /) -> None:
        if self._in_order.is_busy:
            self._in_order.wait(partial(self._query, read))
        else:
            self._query(read)

    def _query(self, read: Read[Any]) -> None:
        self._is_laid.append(False)
        read_count, self._read_count = self._read_count, 0
        self._send(QUERY, COUNT.pack(read_count) + pickle.dumps(read, pickle.HIGHEST_PROTOCOL))

    def switch(self, name: str, /, *arguments: float) -> None:
        if self._in_order.is_busy:
            self._in_order.wait(partial(self._switch, name, *arguments))
        else:
            self._switch(name, *arguments)

    def _switch(self, name: str, *arguments: float) -> None:
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


def _joined(pieces: list[bytes]) -> Iterator[bytes]:
    """As much together as is copied in some milliseconds; a large piece need not be."""
    start = size = 0
    for place, piece in enumerate(pieces):
        if size + len(piece) > JOINED_BYTES_MAX and place > start:
            yield b"".join(pieces[start:place])
            start, size = place, 0
        size += len(piece)
    yield b"".join(pieces[start:])
