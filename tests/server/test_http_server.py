"""WebSockets when the server stops."""

import asyncio
import socket

import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from twinbus.server.listening.http_server import BinaryWebSocket

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
NORMAL_CLOSE = b"\x03\xe8"
RESTART = b"\x03\xf4"


async def accept(_: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def accepted() -> tuple[BinaryWebSocket, socket.socket]:
    """A websocket, and the end of its client."""
    loop = asyncio.get_running_loop()
    config = uvicorn.Config(accept, lifespan="off", log_config=None, ws_ping_interval=None)
    config.load()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    _, websocket = await loop.create_connection(
        lambda: BinaryWebSocket(config=config, server_state=ServerState(), app_state={}), sock=ours
    )
    await loop.sock_sendall(theirs, UPGRADE)
    assert (await loop.sock_recv(theirs, 4096)).startswith(b"HTTP/1.1 101 ")
    return websocket, theirs


async def rest_of(client: socket.socket) -> bytes:
    found = b""
    with client:
        while data := await asyncio.get_running_loop().sock_recv(client, 4096):
            found += data
    return found


async def test_a_websocket_that_its_client_has_just_closed_does_not_keep_the_server_from_stopping() -> None:
    websocket, client = await accepted()
    websocket.data_received(Frame(Opcode.CLOSE, NORMAL_CLOSE).serialize(mask=True))
    websocket.shutdown()
    assert await rest_of(client) == close(NORMAL_CLOSE)


async def test_an_open_websocket_is_told_that_the_server_stops() -> None:
    websocket, client = await accepted()
    websocket.shutdown()
    assert await rest_of(client) == close(RESTART)


@pytest.mark.parametrize("is_handshake_over", [True, False])
def test_a_websocket_whose_client_has_just_gone_does_not_keep_the_server_from_stopping(is_handshake_over: bool) -> None:
    async def go_and_stop() -> None:
        websocket, client = await accepted()
        with client:
            websocket.handshake_complete = is_handshake_over
            websocket.transport.abort()
            while not websocket.disconnected:
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            websocket.shutdown()

    # The loop that a server has: to write to a transport that is closed is an error there.
    uvloop.run(go_and_stop())


def ping(payload: bytes) -> bytes:
    return Frame(Opcode.PING, payload).serialize(mask=True)


def close(payload: bytes) -> bytes:
    return Frame(Opcode.CLOSE, payload).serialize(mask=False)


def pong(payload: bytes) -> bytes:
    return Frame(Opcode.PONG, payload).serialize(mask=False)


async def test_every_ping_of_a_client_that_reads_is_answered() -> None:
    websocket, client = await accepted()
    for number in (b"1", b"2"):
        websocket.data_received(ping(number))
    websocket.shutdown()
    assert await rest_of(client) == pong(b"1") + pong(b"2") + close(RESTART)


async def test_of_the_pings_of_a_client_that_does_not_read_the_last_ones_are_answered_when_it_reads_again() -> None:
    websocket, client = await accepted()
    websocket.pause_writing()
    for number in range(1_000):
        websocket.data_received(ping(b"%d" % number) + ping(b"and again"))
    websocket.resume_writing()
    websocket.pause_writing()
    websocket.resume_writing()
    websocket.shutdown()
    assert await rest_of(client) == pong(b"999") + pong(b"and again") + close(RESTART)


async def test_no_pong_follows_a_close() -> None:
    websocket, client = await accepted()
    websocket.pause_writing()
    websocket.data_received(ping(b"1"))
    websocket.data_received(Frame(Opcode.CLOSE, NORMAL_CLOSE).serialize(mask=True))
    websocket.resume_writing()
    assert await rest_of(client) == close(NORMAL_CLOSE)


async def test_a_close_is_answered_with_the_ping_that_came_with_it() -> None:
    websocket, client = await accepted()
    websocket.pause_writing()
    websocket.data_received(ping(b"1") + Frame(Opcode.CLOSE, NORMAL_CLOSE).serialize(mask=True))
    assert await rest_of(client) == pong(b"1") + close(NORMAL_CLOSE)
