"""Serve one namespace until the process is told to stop."""

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable

import uvloop

from twinbus.server.logs import configure_logs
from twinbus.server.namespace import NamespaceServer
from twinbus.server.settings import ServerSettings

# Store threads come back from the disk while the loop computes; at the default of 5 ms each would wait that long.
SWITCH_INTERVAL_S = 0.0002
# Messages are freed by their counts, and nearly nothing is left for the collector; at the default thresholds it walks
# the rows in memory again and again all the same.
COLLECTOR_THRESHOLDS = (100_000, 20, 100)


def serve(settings: ServerSettings, on_ready: Callable[[NamespaceServer], Awaitable[None]]) -> None:
    """Blocks until SIGINT or SIGTERM. Raises MessagingError where the namespace cannot be served, or what `on_ready` raises."""
    configure_logs(settings.log_format)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
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
