"""Connecting to a namespace over TCP, TLS or WebSocket: a connection string and a transport in, a connected protocol out, or an
error with the reason."""

import asyncio
import ssl
from collections.abc import Awaitable
from enum import StrEnum
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from twinbus.client.connecting.connection_string import ConnectionString
from twinbus.client.connecting.trust import CA_FILE_VARIABLE
from twinbus.client.remote_errors import ConnectionLost, PeerNotTrusted
from twinbus.errors import ArgumentError, OperationTimeout


class Transport(StrEnum):
    AMQP = "amqp"
    WEB_SOCKET = "ws"


class Address(NamedTuple):
    host: str
    port: int
    uses_tls: bool


def address_of(target: ConnectionString, transport: Transport, endpoint: str | None = None) -> Address:
    """WebSockets go to the HTTP port: that of `endpoint`, such as http://localhost:5300, or that of the connection string."""
    if transport is Transport.AMQP:
        if endpoint is not None:
            raise ArgumentError("An HTTP endpoint is for AMQP over WebSockets. Omit it, or choose that transport.")
        return Address(target.host, target.port, target.uses_tls)
    if endpoint is None:
        return Address(target.host, target.http_port, target.uses_tls)
    return http_address(endpoint)


def http_address(endpoint: str) -> Address:
    """Of a URL. Raises ArgumentError."""
    try:
        parts = urlsplit(endpoint)
    except ValueError as error:
        raise ArgumentError(f"The endpoint has no valid host: {error}.") from None
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ArgumentError(f"The endpoint has no valid port: {error}.") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ArgumentError(f"'{endpoint}' is not an endpoint. Write http://HOST:PORT, or https:// with TLS.")
    return Address(host, port or (443 if parts.scheme == "https" else 80), parts.scheme == "https")


T = TypeVar("T")


async def dial(protocol: asyncio.Protocol, host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float) -> None:
    """Raises ConnectionLost if nothing listens there, PeerNotTrusted or OperationTimeout."""
    connecting = asyncio.get_running_loop().create_connection(lambda: protocol, host, port, ssl=tls)
    try:
        await within(connecting, timeout_s)
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason or error
        raise PeerNotTrusted(
            f"TLS with {host}:{port} failed: {reason}. "
            f"If its certificate is not a public one, name the PEM file to trust in {CA_FILE_VARIABLE}."
        ) from None
    except OSError as error:
        raise ConnectionLost(f"Nothing answers at {host}:{port}: {error.strerror or error}.") from None


async def dial_websocket(
    protocol: asyncio.Protocol, host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float
) -> None:
    """As `dial`; also raises WebSocketRefused if something else listens there."""
    # Not at the top: few need it, it is slow to import, and executors that have only our archive may not have it.
    try:
        from twinbus.client.connecting.websocket import WebSocketStream
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
