"""A process that serves a namespace until it is told to end: at once, as a spare when nobody else does, or as one of several nodes."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import uvloop

from twinbus.clock import NamespaceClock
from twinbus.errors import ArgumentError, StoreTaken, StoreUnavailable
from twinbus.server.namespace import NamespaceServer, Prepare
from twinbus.server.process_setup import set_up_process
from twinbus.server.server_settings import ServerSettings
from twinbus.server.spare import Spare
from twinbus.server.tracing import OpenTelemetrySpans, spans_of

if TYPE_CHECKING:
    from twinbus.store.postgres.place import Owner, PostgresPlace

log = logging.getLogger(__name__)


def serve(
    settings: ServerSettings, on_ready: Callable[[NamespaceServer], None], prepare: Prepare | None = None
) -> None:
    """Serve a namespace until SIGINT or SIGTERM.

    Raises MessagingError if the namespace cannot be served, or whatever `on_ready` or `prepare` raises.
    """
    set_up_process(settings.log_format, settings.log_level)
    uvloop.run(_serve(settings, on_ready, prepare))


async def _serve(
    settings: ServerSettings, on_ready: Callable[[NamespaceServer], None], prepare: Prepare | None
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    spans = spans_of(settings.name, os.environ)
    try:
        await _serve_until(stop, settings, spans, on_ready, prepare)
    finally:
        if spans is not None:
            await asyncio.to_thread(spans.close)


async def _serve_until(
    stop: asyncio.Event,
    settings: ServerSettings,
    spans: "OpenTelemetrySpans | None",
    on_ready: Callable[[NamespaceServer], None],
    prepare: Prepare | None,
) -> None:
    if not settings.store_dsns:
        await _serve_once(NamespaceServer(settings, has_store_process=True, spans=spans), stop, on_ready, prepare)
        return
    owner, places = _places(settings)
    if settings.node_name is not None:
        await _serve_as_node(stop, settings, owner, spans, on_ready, prepare)
        return
    spare = Spare(places, owner)
    while not stop.is_set() and await spare.wait(stop):
        server = NamespaceServer(settings, has_store_process=True, owner=owner, spans=spans)
        try:
            await _serve_once(server, stop, on_ready, prepare)
        except StoreTaken:
            continue  # another spare was quicker
        except StoreUnavailable as refused:
            if not spare.has_waited or not refused.is_transient:
                raise ArgumentError(str(refused)) from refused
            # More than half of the stores can be reached, and the catalog cannot.
            log.warning("not_taken_over", extra={"fields": {"reason": str(refused)}})
            await spare.pause(stop)


async def _serve_as_node(
    stop: asyncio.Event,
    settings: ServerSettings,
    owner: "Owner",
    spans: "OpenTelemetrySpans | None",
    on_ready: Callable[[NamespaceServer], None],
    prepare: Prepare | None,
) -> None:
    from twinbus.server.machines.node import MachineNode

    clock = NamespaceClock()
    node = MachineNode(settings, owner, clock)
    # An operator who reads who has a store, or had it, looks for a node.
    owner = replace(owner, address=f"node {node.name}, {owner.address}")
    server = NamespaceServer(settings, clock=clock, has_store_process=True, owner=owner, spans=spans, membership=node)
    try:
        await server.start(prepare)
    except StoreUnavailable as refused:
        raise ArgumentError(str(refused)) from refused
    try:
        on_ready(server)
        ends = [asyncio.ensure_future(event.wait()) for event in (stop, node.drain_asked)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    finally:
        await server.stop()
    if node.replaced is not None:
        raise node.replaced


def _places(settings: ServerSettings) -> "tuple[Owner, list[PostgresPlace]]":
    try:
        from twinbus.store.postgres.place import Owner, PostgresPlace
    except ImportError as missing:
        raise ArgumentError(
            "Messaging stores in PostgreSQL need psycopg: pip install 'twinbus[postgres]'."
        ) from missing
    dsns, count = settings.store_dsns, settings.store_count
    return Owner.this_process(), [
        PostgresPlace(dsns[number % len(dsns)], settings.name, number, count) for number in range(count)
    ]


async def _serve_once(
    server: NamespaceServer,
    stop: asyncio.Event,
    on_ready: Callable[[NamespaceServer], None],
    prepare: Prepare | None,
) -> None:
    """Until `stop`, or until another process owns the stores."""
    await server.start(prepare)
    try:
        on_ready(server)
        ends = [asyncio.ensure_future(event.wait()) for event in (stop, server.stores.superseded)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if not stop.is_set():
            log.warning("superseded", extra={"fields": {"namespace": server.settings.name}})
    finally:
        await server.stop()
