"""One address for several nodes, as a balancer in front of them gives: each connection goes to the next node that is ready."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress


class Balancer:
    """`ports`: those of the nodes that are ready at the moment. Lives on a loop."""

    def __init__(self, ports: Callable[[], list[int]]) -> None:
        self._ports = ports
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._turn += 1
        ports = self._ports()
        for port in ports[self._turn % len(ports) :] + ports:
            with suppress(OSError):
                there, back = await asyncio.open_connection("127.0.0.1", port)
                for one, other in ((reader, back), (there, writer)):
                    task = asyncio.create_task(_pump(one, other))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                return
        writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()
