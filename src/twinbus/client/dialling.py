"""Connecting a protocol to a peer, over TCP, TLS or WebSocket: an address in, bytes flowing out, or an error that says why."""

import asyncio
import ssl
from collections.abc import Awaitable
from typing import TypeVar

from twinbus.client.remote_errors import ConnectionLost, PeerNotTrusted
from twinbus.errors import ArgumentError, OperationTimeout

T = TypeVar("T")


async def dial(protocol: asyncio.Protocol, host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float) -> None:
    """Raises ConnectionLost where nobody listens, PeerNotTrusted, OperationTimeout."""
    connecting = asyncio.get_running_loop().create_connection(lambda: protocol, host, port, ssl=tls)
    try:
        await within(connecting, timeout_s)
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason or error
        raise PeerNotTrusted(
            f"No TLS with {host}:{port}: {reason}. Give a context that trusts its certificate."
        ) from None
    except OSError as error:
        raise ConnectionLost(f"Nothing answers at {host}:{port}: {error.strerror or error}.") from None


async def dial_websocket(
    protocol: asyncio.Protocol, host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float
) -> None:
    """As `dial`; raises WebSocketRefused too, where what listens there is something else."""
    # Not at the top: few need it, it takes a while to import, and executors that got our archive only may not have it.
    try:
        from twinbus.client.websocket import WebSocketStream
    except ImportError:
        raise ArgumentError("AMQP over WebSockets needs the package websockets: pip install websockets.") from None
    stream = WebSocketStream(protocol, host, port, uses_tls=tls is not None)
    await dial(stream, host, port, tls, timeout_s)
    try:
        await within(stream.opened, timeout_s)
    except BaseException:
        stream.abort()
        raise


async def within(waiting: Awaitable[T], timeout_s: float) -> T:
    try:
        return await asyncio.wait_for(waiting, timeout_s)
    except TimeoutError:
        raise OperationTimeout(f"No answer within {timeout_s:g} s. Check host and port, or try again.") from None
