"""The portal's process: settings in, pages on a socket until it is asked to stop."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import uvicorn

from twinbus.bounded_http import BoundedHttpProtocol
from twinbus.portal.application import portal_application
from twinbus.portal.namespaces.directory import Directory
from twinbus.portal.settings import PortalSettings

SHUTDOWN_GRACE_S = 1
KEEP_ALIVE_S = 60
IDLE_MAX = 500
"""Connections that are not being answered, as an open page is. Beyond that the one that has waited longest is closed."""


class _Server(uvicorn.Server):
    """Catches signals once: open pages are streams that never end by themselves, so a second Ctrl-C must not be needed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Visitors:
    """The connections of a portal that are not being answered."""

    def __init__(self) -> None:
        self._idle: dict[BoundedHttpProtocol, None] = {}  # those that have waited longest come first

    def http_idle(self, connection: BoundedHttpProtocol) -> None:
        self._idle.pop(connection, None)
        self._idle[connection] = None
        if len(self._idle) > IDLE_MAX:
            next(iter(self._idle)).cut()

    def http_busy(self, connection: BoundedHttpProtocol) -> None:
        self._idle.pop(connection, None)

    http_gone = http_busy

    def http_refused(self) -> None:
        """Only one person uses a portal, who sees it."""


def serve(
    settings: PortalSettings,
    directory: Directory,
    listening: socket.socket,
    ready: Callable[[], None],
    *,
    ends_with_input: bool = False,
) -> None:
    """Returns after SIGINT or SIGTERM, or with `ends_with_input` when whoever started it closes its standard input."""

    async def run() -> None:
        stop = asyncio.Event()
        if ends_with_input:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        ready()
        await serve_until(stop, settings, directory, listening)

    asyncio.run(run())


async def serve_until(
    stop: asyncio.Event, settings: PortalSettings, directory: Directory, listening: socket.socket
) -> None:
    config = uvicorn.Config(
        portal_application(settings, directory),
        http=cast(type[asyncio.Protocol], partial(BoundedHttpProtocol, admission=_Visitors())),
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        ssl_certfile=None if settings.certificate is None else str(settings.certificate),
        ssl_keyfile=None if settings.key is None else str(settings.key),
    )
    config.load()
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    stopping.cancel()
