"""Delays what passes through it: `python -m tests.server.machines.delaying_proxy HOST PORT TO_PORT`, and milliseconds on its standard input.

Runs at the host of the node that it stands before, so that a cut of that host's links is one for the proxy too.
"""

import asyncio
import sys
from contextlib import suppress

CHUNKS_MAX = 64
"""On their way in one direction: who sends more waits, as for a slow network."""


class DelayingProxy:
    def __init__(self, host: str, to_port: int) -> None:
        self._host, self._to_port = host, to_port
        self.delay_s = 0.0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self._host, self._to_port)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(self._carry(reader, back), self._carry(there, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)
        leaving = asyncio.create_task(self._leave(way, writer))
        loop, data = asyncio.get_running_loop(), b"?"
        while data:
            try:
                data = await reader.read(1 << 16)
            except OSError:
                data = b""
            await way.put((loop.time() + self.delay_s, data))
        await leaving

    async def _leave(self, way: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await way.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            if not data:
                writer.close()
                return
            writer.write(data)
            with suppress(OSError):
                await writer.drain()


async def main(host: str, port: int, to_port: int) -> None:
    proxy = DelayingProxy(host, to_port)
    server = await asyncio.start_server(proxy.accept, host, port)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with server:
        while line := await lines.readline():
            proxy.delay_s = float(line) / 1_000


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
