"""The stock administration client for a namespace that speaks plain HTTP: a connection string in, a client out.

The official client always uses `https://`, although the data clients honour `UseDevelopmentEmulator=true`. Its transport can be
replaced: ours sends the same requests to the HTTP endpoint of the namespace. Without the flag the client is the stock one,
unchanged, and works with Azure.
`async_administration` is the same for asyncio.
"""

from typing import Any
from urllib.parse import urlsplit, urlunsplit

from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.client.connection_string import ConnectionString, parse_connection_string

CONNECT_RETRIES = 3
"""As in the stock client; with the pauses between them they take 5 seconds."""


def administration_endpoint(parsed: ConnectionString) -> str:
    """The default HTTP address of a local namespace: 5300 for AMQP port 5672, 5301 for 5673, and so on."""
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    return f"http://{host}:{parsed.http_port}"


def administration_client(
    connection_string: str, endpoint: str | None = None, *, connect_retries: int = CONNECT_RETRIES
) -> ServiceBusAdministrationClient:
    """`endpoint`, such as http://localhost:5300, is needed if the ports are not the default ones."""
    parsed = parse_connection_string(connection_string)
    if parsed.uses_tls and endpoint is None:
        return ServiceBusAdministrationClient.from_connection_string(connection_string, retry_connect=connect_retries)
    transport = _PlainTransport(endpoint or administration_endpoint(parsed))
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string, transport=transport, retry_connect=connect_retries
    )


def moved(url: str, endpoint: str) -> str:
    """The same path and query at another scheme and authority."""
    there, asked = urlsplit(endpoint), urlsplit(url)
    return urlunsplit((there.scheme, there.netloc, asked.path, asked.query, asked.fragment))


class _PlainTransport(RequestsTransport):  # type: ignore[misc]
    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = endpoint

    def send(self, request: Any, **kwargs: Any) -> Any:
        request.url = moved(request.url, self._endpoint)
        return super().send(request, **kwargs)
