"""The HTTP server: an ASGI application for connections that others have accepted, on the loop that is running."""

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import State

from twinbus.http.messaging.cased_headers import CasedHttpProtocol
from twinbus.http.paced_reading import PacedReading, ReadingTurns
from twinbus.http.websocket import CLOSE_WAIT, STRANGER_MESSAGE_SIZE_MAX, TRUST
from twinbus.server.listening.admission import Admission

SHUTDOWN_GRACE_S = 2
SWITCHING_PROTOCOLS = 101
KEEP_ALIVE_S = 240  # as long as an idle AMQP connection


class _QuietServer(uvicorn.Server):
    """Catches no signals: the namespace decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class BinaryWebSocket(WebSocketsSansIOProtocol):
    """AMQP is binary, and a text ends the connection (`http.websocket`): so texts are not decoded, however broken they are.

    Where a message ends means nothing, so its fragments are not kept until it does: there may be any number of them.
    """

    _pongs = b""
    _giving_up: asyncio.TimerHandle | None = None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.conn.max_message_size = STRANGER_MESSAGE_SIZE_MAX

    def handle_ping(self) -> None:
        # The answers to all pings of a slice come with the first one, and with a close that follows them.
        answers = b"".join(self.conn.data_to_send())
        if self.writable.is_set() or self.conn.state is not State.OPEN:
            self.transport.write(answers)
        elif answers:
            # While the client does not read, the last pings will do (RFC 6455, section 5.5.3): it may send any number of them.
            self._pongs = answers

    def resume_writing(self) -> None:
        super().resume_writing()
        pongs, self._pongs = self._pongs, b""
        if pongs and not self.close_sent:
            self.transport.write(pongs)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        if not self.disconnected:
            # A transport that is closed waits for ever for a client to read the rest.
            self._giving_up = self.loop.call_later(CLOSE_WAIT / 1_000, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
        super().connection_lost(exc)
        # It leads back to its connection, and one that was cut off has not come to its end.
        self.conn.parser.close()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == SWITCHING_PROTOCOLS:
            # Not a method of this: the application would keep the connection, and that keeps the application.
            trust = partial(setattr, self.conn, "max_message_size", self.config.ws_max_size)
            cast(dict[str, object], self.scope["extensions"])[TRUST] = trust

    def shutdown(self) -> None:
        # One whose peer has closed it has been told so. Uvicorn tells it once more, which raises, and the server would end without
        # stopping anything else.
        is_told = self.handshake_complete and not self.close_sent and self.conn.state is not State.OPEN
        if is_told or self.transport.is_closing():
            self.transport.close()
        else:
            super().shutdown()

    def send_500_response(self) -> None:
        # Who has gone gets none: to write to a transport that is closed raises.
        if not self.transport.is_closing():
            super().send_500_response()

    def handle_bytes(self, event: Frame) -> None:
        self.curr_msg_data_type = "bytes"
        self._take(event)

    def handle_cont(self, event: Frame) -> None:
        self._take(event)

    def _take(self, event: Frame) -> None:
        if event.data or self.curr_msg_data_type == "text":
            self.frames = [bytes(event.data)]
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text":
            self.frames = [b""]
        super().send_receive_event_to_app()


class HttpServer:
    def __init__(self, application: ASGIApp, admission: Admission) -> None:
        config = uvicorn.Config(
            application,
            http=cast(type[asyncio.Protocol], partial(CasedHttpProtocol, admission=admission)),
            timeout_keep_alive=KEEP_ALIVE_S,
            lifespan="off",
            access_log=False,
            log_config=None,
            ws=BinaryWebSocket,
            # AMQP has heartbeats of its own, and the Python SDK reads too seldom to answer these in time.
            ws_ping_interval=None,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        )
        # Here, where a missing package keeps the namespace from starting, and not in the task below.
        config.load()
        self._server = _QuietServer(config)
        self._task: asyncio.Task[None] | None = None
        self._turns = ReadingTurns(asyncio.get_running_loop().call_soon)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=[]))

    def protocol(self) -> asyncio.Protocol:
        """For a connection; it is closed when this server stops."""
        config = self._server.config
        make = cast(type[HttpToolsProtocol], config.http_protocol_class)
        return PacedReading(make(config=config, server_state=self._server.server_state, app_state={}), self._turns)

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await self._task
