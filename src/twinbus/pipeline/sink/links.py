"""A worker process's connection to a namespace: kept from task to task, since Spark uses its workers again.

Connecting, proving one's rights and opening a link takes a few round trips, more than a small task has messages.
"""

import asyncio
import os
from contextlib import suppress
from threading import Lock

from twinbus.client.blocking import LoopThread
from twinbus.client.namespace import Namespace
from twinbus.client.sender import Sender
from twinbus.errors import MessagingError
from twinbus.pipeline.connection_options import ConnectionOptions

SENDER_COUNT_MAX = 256
"""Links that are kept open; a namespace has a limit for them too."""
CONNECTION_COUNT_MAX = 8
"""Connections that a process keeps, for jobs with different connection strings."""


class SenderLinks:
    """One connection and its senders, on one event loop. What failed is opened again when it is next needed."""

    def __init__(self, connection: ConnectionOptions) -> None:
        self._connection = connection
        self._namespace: Namespace | None = None
        self._senders: dict[str, Sender] = {}
        self._opening = asyncio.Lock()
        self.unbatched: set[str] = set()
        """Entities that take messages without a key one by one only: partitioned ones that detect duplicates."""

    async def sender(self, path: str) -> Sender:
        """Raises EntityNotFound, Unauthorized, ConnectionLost and so on."""
        sender = self._senders.get(path)
        if sender is not None and sender.fault is None:
            return sender
        async with self._opening:
            sender = self._senders.get(path)
            if sender is None or sender.fault is not None:
                sender = self._senders[path] = await (await self._connected()).sender(path)
            return sender

    async def trim(self) -> None:
        """Close the oldest links beyond the limit. Nothing may be under way on them."""
        while len(self._senders) > SENDER_COUNT_MAX:
            oldest = next(iter(self._senders))
            with suppress(MessagingError):
                await self._senders.pop(oldest).close()

    async def drop(self) -> None:
        """Start over: the peer does not answer, so the open connection may be dead."""
        namespace, self._namespace = self._namespace, None
        self._senders.clear()
        if namespace is not None:
            with suppress(MessagingError):
                await namespace.close()

    async def _connected(self) -> Namespace:
        if self._namespace is not None and self._namespace.fault is not None:
            await self.drop()
        if self._namespace is None:
            self._namespace = await self._connection.connect()
        return self._namespace


_lock = Lock()
_kept: dict[tuple[int, ConnectionOptions, str], tuple[LoopThread, SenderLinks]] = {}


def links_of_process(connection: ConnectionOptions) -> tuple[LoopThread, SenderLinks]:
    """Those of this process, made when they are first asked for; they end with it. Raises OptionError."""
    # Threads and sockets do not survive a fork, so a child has none of its parent's. What a variable or a file says may
    # have changed since, and then the connection that was made with it is of no use.
    place = os.getpid(), connection, connection.resolve()
    with _lock:
        found = _kept.get(place)
        if found is None:
            if len(_kept) >= CONNECTION_COUNT_MAX:
                _end(*_kept.pop(next(iter(_kept))))
            loop = LoopThread()
            found = _kept[place] = loop, loop.run(_made(connection))
        return found


def _end(loop: LoopThread, links: SenderLinks) -> None:
    loop.run(links.drop())
    loop.stop()


async def _made(connection: ConnectionOptions) -> SenderLinks:
    return SenderLinks(connection)
