"""A namespace that several processes serve, started and stopped by a test."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.client.namespace_http import ask
from twinbus.definitions.entity_file import read_wanted
from twinbus.server.nodes.supervisor import Supervisor
from twinbus.server.server_settings import ServerSettings

T = TypeVar("T")

WAIT_S = 150.0


class TwoNodes:
    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """Each time over a new connection, so nodes answer in turns."""
        supervisor = self.supervisor
        endpoint = f"http://127.0.0.1:{supervisor.http_port}"
        return await asyncio.to_thread(ask, supervisor.connection_string, endpoint, method, path, body)

    async def administer(self, do: Callable[[ServiceBusAdministrationClient], T]) -> T:
        """Over a connection of its own."""

        def run() -> T:
            connection_string = self.supervisor.connection_string
            trusted = str(self.supervisor.tls_authority)
            with ServiceBusAdministrationClient.from_connection_string(
                connection_string, retry_total=0, connection_verify=trusted
            ) as client:
                return do(client)

        return await asyncio.to_thread(run)

    def kill(self, node: int) -> None:
        os.kill(self.supervisor.process_ids[node], signal.SIGKILL)

    async def until_healthy(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while (await self.ask("GET", "/health"))["status"] != "healthy":
                await asyncio.sleep(0.05)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                await asyncio.sleep(0.01)


def two_nodes(folder: Path, *queues: str, **settings: Any) -> AbstractAsyncContextManager[TwoNodes]:
    return several_nodes(2, folder, *queues, **settings)


@asynccontextmanager
async def several_nodes(count: int, folder: Path, *queues: str, **settings: Any) -> AsyncIterator[TwoNodes]:
    wanted = ServerSettings("test", folder, amqp_port=0, http_port=0, store_count=4, **settings)
    supervisor = Supervisor(wanted, count, read_wanted(queues, None))
    await supervisor.start()
    try:
        yield TwoNodes(supervisor)
    finally:
        await supervisor.stop()
