"""Serve one namespace until the process is told to stop."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import uvloop

from twinbus.server.interpreter import tune_interpreter
from twinbus.server.logs import configure_logs
from twinbus.server.namespace import NamespaceServer
from twinbus.server.server_settings import ServerSettings


def serve(settings: ServerSettings, on_ready: Callable[[NamespaceServer], Awaitable[None]]) -> None:
    """Blocks until SIGINT or SIGTERM. Raises MessagingError where the namespace cannot be served, or what `on_ready` raises."""
    configure_logs(settings.log_format)
    tune_interpreter()
    uvloop.run(_serve(settings, on_ready))


async def _serve(settings: ServerSettings, on_ready: Callable[[NamespaceServer], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = NamespaceServer(settings, has_store_process=True)
    await server.start()
    try:
        await on_ready(server)
        await stop.wait()
    finally:
        await server.stop()
