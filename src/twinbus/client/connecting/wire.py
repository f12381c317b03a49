"""The shell around a client's AMQP connection: a socket on one side, the owners of links on the other.

Everything runs on one event loop. The owner of a link is in `link.context` and gets the events of the link; each step of opening
that somebody waits for has a future.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, cast

from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.amqp.connection import Connection, ConnectionSettings, Role, State
from twinbus.amqp.events import (
    ConnectionClosed,
    CreditChanged,
    Deliveries,
    Dispositions,
    Event,
    LinkDetached,
    LinkOpened,
    Opened,
    OversizeDelivery,
    SessionBegun,
    SessionEnded,
)
from twinbus.amqp.link import Link
from twinbus.amqp.session import Session
from twinbus.client.connecting.dialling import dial, dial_websocket, within
from twinbus.client.remote_errors import ConnectionLost, error_of
from twinbus.clock import NEVER, Clock, SystemClock
from twinbus.errors import MessagingError, OperationTimeout

CLOSE_TIMEOUT_S = 5.0
BURST_SIZE_MAX = 1_048_576
"""Bytes of messages that are turned into frames before they go to the socket."""
# What may wait in the socket's buffer before senders have to wait: enough to keep it busy without using much memory.
_WRITE_BUFFER_MAX = 4 * 1_048_576


class LinkOwner(Protocol):
    """Gets the events of a link."""

    def link_event(self, event: Event) -> None: ...

    def link_lost(self, error: MessagingError) -> None:
        """The link has ended, by the peer or with the connection."""
        ...


class Wire(asyncio.Protocol):
    """One connection to a peer, open until `close` or until the peer ends it."""

    def __init__(self, settings: ConnectionSettings, clock: Clock) -> None:
        self._clock = clock
        self._connection = Connection(Role.CLIENT, settings, clock.now())
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._begun: dict[Session, asyncio.Future[None]] = {}
        self._attached: dict[Link, asyncio.Future[None]] = {}
        self._is_flush_due = False
        self._unflushed_size = 0
        self._own_reason: MessagingError | None = None
        self._resumed: list[Callable[[], None]] = []
        self.is_congested = False
        """The socket accepts no more for now; `when_writable` reports when it does."""
        self._timer: asyncio.TimerHandle | None = None
        self.fault: MessagingError | None = None
        """Why the connection ended; None while it is open."""

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        settings: ConnectionSettings,
        *,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 60.0,
        clock: Clock | None = None,
        is_websocket: bool = False,
    ) -> "Wire":
        """Connect and open. Raises ConnectionLost if nothing listens there, OperationTimeout if nothing answers."""
        wire = cls(settings, clock or SystemClock())
        await (dial_websocket if is_websocket else dial)(wire, host, port, tls, timeout_s)
        try:
            await within(asyncio.shield(wire._opened), timeout_s)
        except BaseException:
            wire._abort()
            raise
        return wire

    async def begin(self, timeout_s: float) -> Session:
        if self.fault is not None:
            raise self.fault
        session = self._connection.begin()
        begun = self._begun[session] = self._loop.create_future()
        self.flush()
        try:
            await within(begun, timeout_s)
        except BaseException:
            self._begun.pop(session, None)
            self.end(session)
            raise
        return session

    def end(self, session: Session) -> None:
        """Ends the session with all its links, without waiting for the peer."""
        session.end()
        self.flush_soon()

    async def attach(self, owner: LinkOwner, session: Session, name: str, timeout_s: float, **terms: Any) -> Link:
        """A link whose events go to `owner`; `terms` are those of `Session.attach`. If it fails, so does the session."""
        if self.fault is not None:
            raise self.fault
        link = session.attach(name, **terms)
        link.context = owner
        attached = self._attached[link] = self._loop.create_future()
        self.flush()
        try:
            await within(attached, timeout_s)
        except BaseException:
            self._attached.pop(link, None)
            self.end(session)
            raise
        return link

    async def detach(self, link: Link, gone: "asyncio.Future[None]") -> None:
        """End a link and its session. The link's owner resolves `gone` when the link has ended."""
        link.detach()
        self.flush_soon()
        # The session ends even if the peer does not answer.
        with suppress(OperationTimeout):
            await within(asyncio.shield(gone), CLOSE_TIMEOUT_S)
        self.end(link.session)

    async def close(self) -> None:
        """Everything under way fails with ConnectionLost. Waits for the peer's answer only for a limited time."""
        self._own_reason = self._own_reason or ConnectionLost("The connection was closed here. Connect again.")
        self._connection.close()
        self.flush()
        try:
            await within(asyncio.shield(self._ended), CLOSE_TIMEOUT_S)
        except OperationTimeout:
            self._abort()

    def when_writable(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, as soon as the socket accepts more."""
        if resume not in self._resumed:
            self._resumed.append(resume)

    def flush_soon(self, size: int = 0) -> None:
        """Write what is queued at the end of this turn of the loop: one write for all who call.

        `size` is the number of bytes that were queued, if it is large: beyond a limit they are written at once, so that the socket
        can report that it is full.
        """
        self._unflushed_size += size
        if self._unflushed_size > BURST_SIZE_MAX:
            self.flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._is_flush_due = False
        self._unflushed_size = 0
        data = self._connection.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)
        if self._connection.should_disconnect:
            self._drop()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports keep the interface without the base class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(_WRITE_BUFFER_MAX)
        self._connection.open()
        self.flush()
        self._tick()

    def data_received(self, data: bytes) -> None:
        for event in self._connection.receive_data(data, self._clock.now()):
            self._dispatch(event)
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        for event in self._connection.lost():
            self._dispatch(event)
        self._end(ConnectionLost("The connection was lost. Connect again."))

    def pause_writing(self) -> None:
        self.is_congested = True

    def resume_writing(self) -> None:
        self.is_congested = False
        resumed, self._resumed = self._resumed, []
        for resume in resumed:
            resume()

    def _tick(self) -> None:
        now = self._clock.now()
        was_open = self._connection.state is State.OPEN
        due = self._connection.tick(now)
        self.flush()
        if was_open and self._connection.state is not State.OPEN:
            # There is no point in waiting for this peer to read our close, or to answer it.
            self._own_reason = ConnectionLost("The peer has been silent for too long. Connect again.")
            self._abort()
        elif due != NEVER and self.fault is None:
            self._timer = self._loop.call_later(max(due - now, 1) / 1000, self._tick)

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _abort(self) -> None:
        # An orderly close waits for the buffer to be written, and this peer may never read it.
        if self._transport is not None:
            self._transport.abort()

    # Events

    def _dispatch(self, event: Event) -> None:
        match event:
            case Deliveries() | Dispositions() | CreditChanged() | OversizeDelivery():
                event.link.context.link_event(event)
            case LinkOpened(link):
                _resolve(self._attached.pop(link, None), None)
            case LinkDetached(link, _, error):
                self._link_gone(link, self._reason(error))
            case SessionBegun(session):
                _resolve(self._begun.pop(session, None), None)
            case SessionEnded(session, error):
                _resolve(self._begun.pop(session, None), self._reason(error))
            case Opened():
                _resolve(self._opened, None)
            case ConnectionClosed(error):
                self._end(self._reason(error))

    def _reason(self, error: ErrorCondition | None) -> MessagingError:
        return self._own_reason or error_of(error)

    def _link_gone(self, link: Link, error: MessagingError) -> None:
        waiting = self._attached.pop(link, None)
        _resolve(waiting, error)
        if waiting is None and link.context is not None:
            link.context.link_lost(error)
        # A session has one link, or the two of a request node, which are useless without each other.
        self.end(link.session)

    def _end(self, error: MessagingError) -> None:
        if self.fault is not None:
            return
        self.fault = error
        if self._timer is not None:
            self._timer.cancel()
        self._resumed.clear()
        for waiting in (self._opened, *self._begun.values(), *self._attached.values()):
            _resolve(waiting, error)
        _resolve(self._ended, None)


def _resolve(future: "asyncio.Future[None] | None", error: MessagingError | None) -> None:
    if future is None or future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
        # A waiting task gets it; if none waits (yet), it should not be logged as an error.
        future.exception()
