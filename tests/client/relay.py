"""A relay between client and server that a test can cut, or hold so that bytes go nowhere."""

import asyncio
import re
import ssl


class Relay:
    """Listens on `port` and passes everything on to another port of this machine. With `tls` it ends TLS here.

    `delay_s` is how long bytes are under way, in each direction.
    """

    def __init__(self, target_port: int, tls: ssl.SSLContext | None = None, delay_s: float = 0.0) -> None:
        self._tls = tls
        self._delay_s = delay_s
        self._target_port = target_port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._may_pass = asyncio.Event()
        self._may_pass.set()
        self.heard = bytearray()
        """What clients sent."""
        self.holds_at = re.compile(b"(?!)")
        """What a client says when its peer hangs, from then on."""

    @property
    def connections(self) -> int:
        """That clients made so far."""
        return len(self._writers) // 2

    @property
    def open_connections(self) -> int:
        return sum(not task.done() for task in self._tasks) // 2

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._listener.sockets[0].getsockname()[1]

    def hold(self) -> None:
        """Read and pass on nothing, in both directions: a peer that hangs."""
        self._may_pass.clear()

    def pass_on(self) -> None:
        self._may_pass.set()

    def say(self, data: bytes) -> None:
        """To every client, as if its peer had said it."""
        for writer in self._writers[::2]:
            writer.write(data)

    def cut(self) -> None:
        """Drop every connection without a word."""
        for writer in self._writers:
            writer.transport.abort()

    async def stop(self) -> None:
        self._listener.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers += (writer, back)
        pumps = self._pump(reader, back, self.heard), self._pump(there, writer, bytearray())
        self._tasks += map(asyncio.create_task, pumps)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, heard: bytearray) -> None:
        try:
            while data := await source.read(1 << 16):
                heard += data
                if heard is self.heard and self.holds_at.search(data):
                    self.hold()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._may_pass.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        sink.close()
