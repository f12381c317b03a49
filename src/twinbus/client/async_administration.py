"""The stock administration client for asyncio, for a namespace that speaks plain HTTP; see `administration`.

It is a module of its own because its imports take longer to load than a command takes to run.
"""

from typing import Any

from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from twinbus.client.administration import administration_endpoint, moved
from twinbus.client.connection_string import parse_connection_string


def async_administration_client(connection_string: str, endpoint: str | None = None) -> ServiceBusAdministrationClient:
    """`endpoint`, such as http://localhost:5300, is needed if the ports are not the default ones."""
    parsed = parse_connection_string(connection_string)
    if parsed.uses_tls and endpoint is None:
        return ServiceBusAdministrationClient.from_connection_string(connection_string)
    transport = _PlainTransport(endpoint or administration_endpoint(parsed))
    return ServiceBusAdministrationClient.from_connection_string(connection_string, transport=transport)


class _PlainTransport(AioHttpTransport):  # type: ignore[misc]
    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = endpoint

    async def send(self, request: Any, **config: Any) -> Any:
        request.url = moved(request.url, self._endpoint)
        return await super().send(request, **config)
