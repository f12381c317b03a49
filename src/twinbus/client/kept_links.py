"""One connection and its links, kept as long as they work: what fails is forgotten and opened again when it is next needed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from twinbus.client.entity_node import EntityNode
from twinbus.client.namespace import Namespace
from twinbus.client.receiver import Receiver
from twinbus.client.sender import Sender
from twinbus.errors import MessagingError


class KeptLinks:
    """Tasks of one event loop may share it. `connect` opens the connection."""

    def __init__(self, connect: Callable[[], Awaitable[Namespace]]) -> None:
        self._connect = connect
        self._namespace: Namespace | None = None
        self._senders: dict[str, Sender] = {}
        self._opening = asyncio.Lock()
        self._attaching: dict[str, asyncio.Lock] = {}

    async def sender(self, path: str) -> Sender:
        """Raises EntityNotFound, Unauthorized, ConnectionLost and so on. Links to different entities are opened side by side."""
        sender = self._senders.get(path)
        if sender is not None and sender.fault is None:
            return sender
        async with self._opening:
            namespace = await self._connected()
        async with self._attaching.setdefault(path, asyncio.Lock()):
            sender = self._senders.get(path)
            if sender is None or sender.fault is not None:
                sender = self._senders[path] = await namespace.sender(path)
            return sender

    async def receiver(self, path: str, credit: int, size_max: int | None = None) -> Receiver:
        """A new one; its owner closes it."""
        async with self._opening:
            return await (await self._connected()).receiver(path, credit=credit, size_max=size_max)

    async def entity(self, path: str) -> EntityNode:
        """To ask about its messages, on the same connection."""
        async with self._opening:
            return (await self._connected()).entity(path)

    async def reach(self) -> None:
        """Connect, unless connected. Raises MessagingError or OSError if the namespace does not answer."""
        async with self._opening:
            await self._connected()

    async def trim(self, count_max: int) -> None:
        """Close the oldest senders beyond this number. Nothing may be under way on them."""
        while len(self._senders) > count_max:
            oldest = next(iter(self._senders))
            self._attaching.pop(oldest, None)
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
            self._namespace = await self._connect()
        return self._namespace
