"""The stock administration client for asyncio, for any namespace; see `administration`.

It is a module of its own because its imports take longer to load than a command takes to run.
"""

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from twinbus.client.administration import administration_endpoint, moved
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.trust import has_named, tls_context


def async_administration_client(
    connection_string: str, endpoint: str | None = None, *, authorities: Sequence[Path] = ()
) -> ServiceBusAdministrationClient:
    """As `administration_client`."""
    parsed = parse_connection_string(connection_string)
    place = endpoint if endpoint is not None or parsed.uses_tls else administration_endpoint(parsed)
    options: dict[str, Any] = {}
    if place is not None or has_named(authorities):
        options["transport"] = _Transport(place, tls_context(authorities) if has_named(authorities) else None)
    return ServiceBusAdministrationClient.from_connection_string(connection_string, **options)


class _Transport(AioHttpTransport):  # type: ignore[misc]
    """Sends to `endpoint`, if there is one, and trusts as `context` does, if there is one."""

    def __init__(self, endpoint: str | None, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._context = context

    async def send(self, request: Any, **config: Any) -> Any:
        if self._endpoint is not None:
            request.url = moved(request.url, self._endpoint)
        if self._context is not None:
            config["ssl"] = self._context
        return await super().send(request, **config)
