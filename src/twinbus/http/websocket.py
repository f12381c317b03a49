"""AMQP over WebSocket: binary messages are pieces of one byte stream, whose boundaries mean nothing."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from starlette.routing import Match, WebSocketRoute
from starlette.types import Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from twinbus.clock import Clock, Millis
from twinbus.errors import MessagingError
from twinbus.gateway.connection_gateway import ConnectionGateway
from twinbus.gateway.connections import Connections, MakeGateway
from twinbus.gateway.turns import Share, Turns

PATH = "/$servicebus/websocket"
PATHS = (PATH, f"{PATH}/")
"""The .NET client puts a slash at the end."""
SUB_PROTOCOL = "AMQPWSB10"
TRUST = "twinbus.trust"
"""The extension of ASGI by which a server is told that a client has proved who it is."""
STRANGER_MESSAGE_SIZE_MAX = 256 * 1_024
"""Of one message of a client that has not: it is in memory before anything of it is read."""
NOT_BINARY = 1003
READS_MAX = 16
"""Messages that are taken one after the other: those that have arrived already do not let the loop go on."""
CLOSE_WAIT: Millis = 10_000
"""How long a client has to read the rest, after the connection was closed."""


class WebSocketConnection:
    """One client: a task reads, another one writes what the gateway has to send."""

    def __init__(
        self, socket: WebSocket, make_gateway: MakeGateway, connections: Connections, turns: Turns, clock: Clock
    ) -> None:
        self._socket = socket
        self._connections = connections
        self._turns = turns
        self._share = Share()
        self._trust: Callable[[], None] | None = socket.scope.get("extensions", {}).get(TRUST)
        self._reads_left = READS_MAX
        self._turn = asyncio.Event()
        self._clock = clock
        self._is_output_due = asyncio.Event()
        self._is_calm = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._gateway: ConnectionGateway = make_gateway(self._is_output_due.set)
        self._unsent: list[bytes] = []
        self._is_sending = False
        self._is_text = False
        self._closed_at: Millis | None = None
        self._unsent_size = 0

    async def run(self) -> None:
        """Until one of the two sides has closed."""
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                with contextlib.suppress(WebSocketDisconnect, asyncio.CancelledError):
                    task.result()
            if self._is_text:
                # Nothing can be written any more after the close.
                self.cut()
                await asyncio.wait(self._tasks)
                with contextlib.suppress(WebSocketDisconnect, TimeoutError):
                    async with asyncio.timeout(CLOSE_WAIT / 1_000):
                        await _unless_ended(self._socket.close(NOT_BINARY, "AMQP needs binary messages."))
        finally:
            self._gateway.lost(self._clock.now())
            self.cut()
            # With what ended them they keep this, and nothing but the collector would free it.
            self._tasks = []

    async def _read(self) -> None:
        while (message := await self._socket.receive())["type"] == "websocket.receive":
            data = message.get("bytes")
            if data is None:
                self._is_text = True
                return
            self._reads_left -= 1
            if self._reads_left == 0 or not self._turns.is_open_to(self._share):
                await self._next_turn()
            self._work(data)
            while self._gateway.is_behind:
                await self._next_turn()
                self._work(b"")
            if self._is_too_much:
                self._is_calm.clear()
                await self._is_calm.wait()

    def _work(self, data: bytes) -> None:
        """One slice of what the client has sent."""
        gateway, turns, share = self._gateway, self._turns, self._share
        start = turns.work_time()
        gateway.receive(data, self._clock.now(), share.size)
        self._is_output_due.set()
        if self._is_sending:
            self._take_output()
        turns.used(share, turns.work_time() - start, is_behind=gateway.is_behind)
        if share.is_stranger and not gateway.is_stranger:
            self._connections.proved(self)
            if self._trust is not None:
                self._trust()
        share.is_stranger = gateway.is_stranger

    async def _next_turn(self) -> None:
        is_mine = False
        while not is_mine:
            self._turn.clear()
            self._turns.wait(self._share, self)
            await self._turn.wait()
            # The task goes on after all others that were woken: they may have used the turn up.
            is_mine = self._turns.is_open_to(self._share)
        self._reads_left = READS_MAX

    def take_turn(self) -> None:
        self._turn.set()

    async def _write(self) -> None:
        while True:
            await self._is_output_due.wait()
            self._is_output_due.clear()
            self._take_output()
            if self._unsent:
                chunk = b"".join(self._unsent)
                self._unsent.clear()
                self._is_sending = True
                await self._send(chunk)
                self._is_sending = False
                self._unsent_size -= len(chunk)
            if not self._is_too_much:
                self._is_calm.set()
            if self._gateway.is_closed and not self._unsent:
                await _unless_ended(self._socket.close())
                return

    async def _send(self, chunk: bytes) -> None:
        """Nothing more is handed over while the client is slow to take this."""
        sending = asyncio.ensure_future(_unless_ended(self._socket.send_bytes(chunk)))
        try:
            # A client that reads takes it at once, and to pause and resume ten thousand links for each write would be felt.
            await asyncio.sleep(0)
            if sending.done():
                sending.result()
                return
            self._gateway.pause()
            await sending
            self._gateway.resume(self._clock.now())
        finally:
            sending.cancel()

    @property
    def _is_too_much(self) -> bool:
        return self._gateway.is_flooded or self._unsent_size > self._gateway.unread_size_max

    def _take_output(self) -> None:
        """While a write waits for the client the answers pile up here, where they are counted."""
        chunk = self._gateway.data_to_send()
        if chunk:
            self._unsent.append(chunk)
            self._unsent_size += len(chunk)

    @property
    def unread_size(self) -> int:
        return self._unsent_size + self._gateway.held_back_size

    def refuse(self, error: MessagingError | None) -> None:
        self._gateway.refusal = error

    def tick(self, now: Millis) -> None:
        self._gateway.tick(now)
        self._is_output_due.set()
        if self._gateway.is_closed:  # and still here: a write, or the close, waits for the client to read
            self._closed_at = now if self._closed_at is None else self._closed_at
            if now - self._closed_at >= CLOSE_WAIT:
                self.cut()

    def clock_stepped(self, by: Millis) -> None:
        self._gateway.clock_stepped(by)
        if self._closed_at is not None:
            self._closed_at += by

    def close(self) -> None:
        self._gateway.shut_down(self._clock.now())
        self._is_output_due.set()

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()

    def force_detach(self, path: str, now: Millis) -> int:
        count = self._gateway.force_detach(path, now)
        self._is_output_due.set()
        return count


async def _unless_ended(sending: Awaitable[None]) -> None:
    """The HTTP server calls it an error of ours to write after a close, also if the client's came a moment before."""
    try:
        await sending
    except RuntimeError as error:
        raise WebSocketDisconnect from error


def websocket_routes(
    make_gateway: MakeGateway, connections: Connections, turns: Turns, clock: Clock
) -> list[WebSocketRoute]:
    async def serve(socket: WebSocket) -> None:
        is_amqp = SUB_PROTOCOL in socket.scope.get("subprotocols", [])
        await socket.accept(subprotocol=SUB_PROTOCOL if is_amqp else None)
        connection = WebSocketConnection(socket, make_gateway, connections, turns, clock)
        connection.refuse(connections.add(connection))
        try:
            await connection.run()
        finally:
            connections.discard(connection)

    return [_AmqpRoute(path, serve) for path in PATHS]


class _AmqpRoute(WebSocketRoute):
    """Takes the target in absolute form too (RFC 9112, section 3.2.2): the Java client sends `GET https://HOST/PATH`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        _, separator, rest = scope["path"].partition("://")
        return super().matches({**scope, "path": "/" + rest.partition("/")[2]} if separator else scope)
