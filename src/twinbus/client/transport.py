"""How AMQP travels and where to: a connection string and a choice in, the address to dial out."""

from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlsplit

from twinbus.client.connection_string import ConnectionString
from twinbus.errors import ArgumentError


class Transport(StrEnum):
    AMQP = "amqp"
    WEB_SOCKET = "ws"


class Address(NamedTuple):
    host: str
    port: int
    uses_tls: bool


def address_of(target: ConnectionString, transport: Transport, endpoint: str | None = None) -> Address:
    """WebSockets go to the HTTP port: that of `endpoint`, such as http://localhost:5300, or the usual one."""
    if transport is Transport.AMQP:
        if endpoint is not None:
            raise ArgumentError("An HTTP endpoint is for AMQP over WebSockets. Omit it, or choose that transport.")
        return Address(target.host, target.port, target.uses_tls)
    if endpoint is None:
        return Address(target.host, target.http_port, target.uses_tls)
    parts = urlsplit(endpoint)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ArgumentError(f"The endpoint has no valid port: {error}.") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ArgumentError(f"'{endpoint}' is not an endpoint. Write http://HOST:PORT, or https:// with TLS.")
    return Address(host, port or (443 if parts.scheme == "https" else 80), parts.scheme == "https")
