"""One address for several nodes, as a balancer in front of them gives: each connection goes to the next node that is ready."""

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]


class Balancer:
    """`ready`: the addresses of the nodes that are ready at the moment. Lives on a loop."""

    def __init__(self, ready: Callable[[], list[Address]], host: str = "127.0.0.1") -> None:
        self._ready = ready
        self._host = host
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections: dict[Address, set[asyncio.StreamWriter]] = {}
        self.events: list[str] = []
        """What became of connections, with the time of the day."""

    def note(self, event: str) -> None:
        now = time.time()
        self.events.append(f"{time.strftime('%H:%M:%S', time.gmtime(now))}.{int(now * 1_000) % 1_000:03d} {event}")

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, self._host, 0)
        self.port: int = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut_off(self, address: Address) -> None:
        """A node that does not answer any more: those who are connected to it are to connect again."""
        self.note(f"cut off {address}")
        for writer in self._connections.pop(address, set()):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._turn += 1
        ready = self._ready()
        for address in ready[self._turn % max(1, len(ready)) :] + ready:
            try:
                async with asyncio.timeout(1):
                    there, back = await asyncio.open_connection(*address)
            except (OSError, TimeoutError) as error:
                self.note(f"{address} is not reached: {error!r}")
            else:
                self.note(f"connected to {address}")
                ends = self._connections.setdefault(address, set())
                ends |= {writer, back}
                for one, other in ((reader, back), (there, writer)):
                    task = asyncio.create_task(_pump(one, other))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                    task.add_done_callback(lambda _, ends=ends, other=other: ends.discard(other))  # type: ignore[misc]
                return
        self.note(f"nobody is reached of {ready}")
        writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()
