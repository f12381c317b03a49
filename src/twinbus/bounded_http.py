"""Connections of an HTTP server, with limits: the server itself accepts headers of any size and any number of connections, and waits
for ever: for headers, for the rest of a request that is answered already, and for a client that does not read its answer. It also
writes a line to its log for everything that is no request, as fast as that comes; here it is counted.
"""

import asyncio
import logging
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS_SIZE_MAX = 256 * 1024
"""Several times what a message may have, since quoting makes properties longer; those are measured later."""
HEADERS_WAIT_S = 20.0
"""For the headers of a request, from the start of the connection or from their first byte; and for what is left of a request
whose answer was sent."""
UNREAD_WAIT_S = 60.0
"""For a client to read, while its answer does not fit into the socket's buffer."""


log = logging.getLogger("uvicorn.error.connections")
"""What is wrong with this server, and not with a request."""
log.setLevel(logging.ERROR)


class HttpAdmission(Protocol):
    """Counts the connections, and closes some if there are too many."""

    def http_idle(self, connection: "BoundedHttpProtocol") -> None: ...
    def http_busy(self, connection: "BoundedHttpProtocol") -> None: ...
    def http_gone(self, connection: "BoundedHttpProtocol") -> None: ...
    def http_refused(self) -> None:
        """What came is no request."""


class BoundedHttpProtocol(HttpToolsProtocol):
    has_headers = False
    """Those of the request that arrives; what follows are a body and trailers."""
    _is_progress = False
    _is_upgraded = False
    _stalled_size = 0
    _giving_up: asyncio.TimerHandle | None = None
    _giving_up_unread: asyncio.TimerHandle | None = None

    def __init__(self, *, admission: HttpAdmission, **rest: Any) -> None:
        super().__init__(**rest)
        self._admission = admission
        self.logger = log

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_headers()
        self._admission.http_idle(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._admission.http_gone(self)
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)
        # They lead back to this: a collector that seldom runs would find thousands of connections that are gone.
        self.pipeline.clear()
        self.cycle = None  # type: ignore[assignment]

    def handle_websocket_upgrade(self) -> None:
        # From here on it is an AMQP connection and counts as one: it may be silent for as long as any other.
        self._is_upgraded = True
        self._admission.http_gone(self)
        super().handle_websocket_upgrade()
        # It leads back to this, and nothing more is read here.
        self.parser = None  # type: ignore[assignment]

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:
            # For each request that is answered others would be read, a slice full of them.
            self.flow.pause_reading()
        if not self.pipeline and not self.transport.is_closing():
            self._admission.http_idle(self)
            if self.cycle.more_body and self._giving_up is None:
                self._wait_for_headers()

    def cut(self) -> None:
        self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._giving_up_unread = self.loop.call_later(UNREAD_WAIT_S, self.cut)

    def resume_writing(self) -> None:
        if self._giving_up_unread is not None:
            self._giving_up_unread.cancel()
            self._giving_up_unread = None
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        # What ended no headers and brought no body is counted, since the parser keeps it: headers, and the trailers that a
        # body in chunks may have.
        if self._stalled_size > HEADERS_SIZE_MAX:
            self.send_400_response("The headers of the request are too large.")
            return
        self._is_progress = False
        super().data_received(data)
        self._stalled_size = 0 if self._is_progress else self._stalled_size + len(data)
        # Most requests come in one read and need no timer.
        is_answered = self.cycle is None or self.cycle.response_complete
        if (not self.has_headers or is_answered) and self._giving_up is None and not self._is_upgraded:
            self._wait_for_headers()

    def send_400_response(self, msg: str) -> None:
        self._admission.http_refused()
        super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        self.has_headers = self._is_progress = True
        self._stop_waiting()
        self._admission.http_busy(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._is_progress = True
        super().on_body(body)

    def on_message_begin(self) -> None:
        self.has_headers = False
        super().on_message_begin()

    def _wait_for_headers(self) -> None:
        if not self.transport.is_closing():
            self._giving_up = self.loop.call_later(HEADERS_WAIT_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
