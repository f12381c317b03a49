"""WebSockets when the server stops."""

import asyncio
import socket

import uvicorn
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
    assert await rest_of(client) == Frame(Opcode.CLOSE, NORMAL_CLOSE).serialize(mask=False)


async def test_an_open_websocket_is_told_that_the_server_stops() -> None:
    websocket, client = await accepted()
    websocket.shutdown()
    assert await rest_of(client) == Frame(Opcode.CLOSE, RESTART).serialize(mask=False)
