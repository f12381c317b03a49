"""Blocking clients beside those of asyncio, for the syphon, whose pumps are threads."""

import asyncio
from typing import Any

from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient

TOKEN_TIMEOUT_S = 60.0


class BlockingCredential:
    """A credential of asyncio for threads: tokens are fetched on the event loop it belongs to."""

    def __init__(self, credential: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._credential = credential
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._credential, name)

    def get_token(self, *scopes: str, **options: Any) -> Any:
        coroutine = self._credential.get_token(*scopes, **options)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TOKEN_TIMEOUT_S)


def blocking_client(client: AioServiceBusClient, loop: asyncio.AbstractEventLoop) -> ServiceBusClient:
    """A client for the same namespace with the same rights, by the same way. Never to be used on the loop's own thread."""
    # The SDK has no way to ask a client for its credential and how it connects.
    config = client._config
    credential: Any = BlockingCredential(client._credential, loop)
    return ServiceBusClient(
        client.fully_qualified_namespace,
        credential,
        # No retries: pumps have their own, and one that is told to stop should not sit through the SDK's.
        retry_total=0,
        use_tls=config.use_tls,
        transport_type=config.transport_type,
        http_proxy=config.http_proxy,
        user_agent=config.user_agent,
        custom_endpoint_address=client._custom_endpoint_address,
        connection_verify=client._connection_verify,
        ssl_context=client._ssl_context,
    )


def blocking_clients(clients: list[AioServiceBusClient]) -> tuple[ServiceBusClient, ServiceBusClient]:
    """Of a primary and a secondary, on the running loop."""
    loop = asyncio.get_running_loop()
    primary, secondary = (blocking_client(client, loop) for client in clients)
    return primary, secondary
