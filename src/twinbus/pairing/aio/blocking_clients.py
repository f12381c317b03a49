"""Blocking clients beside those for asyncio, for the syphon, whose pumps are threads."""

import asyncio
from typing import Any

from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AioServiceBusClient

from twinbus.pairing.new_pair import has_tokens

TOKEN_TIMEOUT_S = 60.0


class BlockingCredential:
    """A credential for asyncio that threads can use: tokens are fetched on the event loop it belongs to."""

    def __init__(self, credential: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._credential = credential
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._credential, name)

    def get_token(self, *scopes: str, **options: Any) -> Any:
        coroutine = self._credential.get_token(*scopes, **options)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TOKEN_TIMEOUT_S)


def blocking_client(client: AioServiceBusClient, loop: asyncio.AbstractEventLoop) -> ServiceBusClient:
    """A client for the same namespace with the same rights and transport. Never use it on the loop's own thread."""
    # The SDK has no public way to ask a client for its credential and transport.
    config = client._config
    credential: Any = client._credential
    # A key or a signature fetches nothing, so it is the same for both.
    if has_tokens(credential):
        credential = BlockingCredential(credential, loop)
    return ServiceBusClient(
        client.fully_qualified_namespace,
        credential,
        # No retries: pumps have their own, and a pump that is to stop should not have to wait for the SDK's.
        retry_total=0,
        use_tls=config.use_tls,
        transport_type=config.transport_type,
        http_proxy=config.http_proxy,
        user_agent=config.user_agent,
        custom_endpoint_address=client._custom_endpoint_address,
        connection_verify=client._connection_verify,
        ssl_context=client._ssl_context,
    )


def blocking_clients(
    primary: AioServiceBusClient, secondary: AioServiceBusClient
) -> tuple[ServiceBusClient, ServiceBusClient]:
    loop = asyncio.get_running_loop()
    return blocking_client(primary, loop), blocking_client(secondary, loop)
