"""AMQP over WebSocket: a socket below, and above it the AMQP protocol, which does not notice the difference.

    socket --bytes--> frames --payloads--> protocol        binary messages are pieces of one byte stream:
    socket <--bytes-- frames <--writes---- protocol        their boundaries mean nothing

The first exchange is HTTP: a request to upgrade to the sub-protocol AMQPWSB10, which the namespace accepts or refuses.
"""

import asyncio
from typing import Any, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from twinbus.client.remote_errors import ConnectionLost, WebSocketRefused
from twinbus.errors import MessagingError

PATH = "/$servicebus/websocket"
SUB_PROTOCOL = Subprotocol("AMQPWSB10")
INCOMING_SIZE_MAX = 256 * 1_048_576
"""Of one binary message: as much as a connection accepts in pieces of one AMQP message."""
OUTGOING_SIZE_MAX = 262_144
"""Peers refuse messages beyond some size, and the size of one write has no limit."""
_SERVER_FAULT = 500


class WebSocketStream(asyncio.Protocol, asyncio.Transport):
    """The protocol of a socket and the transport of `inner`, which gets it once the upgrade is accepted."""

    def __init__(self, inner: asyncio.Protocol, host: str, port: int, *, uses_tls: bool) -> None:
        super().__init__()
        self._inner = inner
        self._peer = f"{host}:{port}"
        uri = WebSocketURI(uses_tls, host, port, PATH, "")
        self._frames = ClientProtocol(uri, subprotocols=[SUB_PROTOCOL], max_size=INCOMING_SIZE_MAX)
        self._socket: asyncio.Transport | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when AMQP can begin; fails with WebSocketRefused or ConnectionLost."""

    # The socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports keep the interface without the base class.
        self._socket = cast(asyncio.Transport, transport)
        self._frames.send_request(self._frames.connect())
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._frames.receive_data(data)
        for event in self._frames.events_received():
            if isinstance(event, Response):
                self._answered()
            elif isinstance(event, Frame) and event.opcode in (Opcode.BINARY, Opcode.CONT):
                self._inner.data_received(bytes(event.data))
        # Pings are answered here, and so is a close.
        self._flush()
        if self._frames.handshake_exc is not None:
            self._fail(self._refusal(self._frames.handshake_exc))
        elif self._frames.close_expected():
            self._drop()

    def eof_received(self) -> None:
        self._frames.receive_eof()

    def connection_lost(self, error: Exception | None) -> None:
        if self.opened.done() and not self.opened.cancelled() and self.opened.exception() is None:
            self._inner.connection_lost(error)
        else:
            self._fail(
                ConnectionLost(f"{self._peer} ended the connection without an answer. Check the port, or try again.")
            )

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    # The inner protocol's side

    def write(self, data: Any) -> None:
        # As with a socket, what is written while it closes is discarded.
        if self._frames.state is not State.OPEN:
            return
        if len(data) <= OUTGOING_SIZE_MAX:
            self._frames.send_binary(data)
        else:
            view = memoryview(data)
            for start in range(0, len(view), OUTGOING_SIZE_MAX):
                self._frames.send_binary(view[start : start + OUTGOING_SIZE_MAX])
        self._flush()

    def close(self) -> None:
        """Send a close frame without waiting for the peer's, because AMQP's own close was answered before."""
        if self._frames.state is State.OPEN:
            self._frames.send_close()
            self._flush()
        self._drop()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert self._socket is not None
        self._socket.set_write_buffer_limits(high, low)

    def _flush(self) -> None:
        data = b"".join(self._frames.data_to_send())
        if data and self._socket is not None:
            self._socket.write(data)

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _answered(self) -> None:
        if self._frames.handshake_exc is not None:
            return
        if self._frames.subprotocol != SUB_PROTOCOL:
            self._fail(WebSocketRefused(f"{self._peer} does not speak AMQP over its WebSockets."))
        elif not self.opened.done():
            self.opened.set_result(None)
            self._inner.connection_made(self)

    def _refusal(self, reason: Exception) -> MessagingError:
        status = reason.response.status_code if isinstance(reason, InvalidStatus) else None
        if status is not None and status >= _SERVER_FAULT:
            return ConnectionLost(f"{self._peer} answered with HTTP status {status}. Try again later.")
        answer = "something that is not HTTP" if status is None else f"HTTP status {status}"
        return WebSocketRefused(
            f"{self._peer} does not accept AMQP over WebSockets: it answered with {answer}. Check host and port."
        )

    def _fail(self, error: MessagingError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            # A waiting task gets it; if none waits any more, it should not be logged as an error.
            self.opened.exception()
        self.abort()
