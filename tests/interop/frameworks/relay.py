"""A relay in front of a namespace: clients that dial port 5671 whatever they are told reach it, and the network can be cut.

It listens at a loopback address of its own, so that the port is free however many tests run on the machine.
"""

import asyncio
import secrets
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from tests.interop.foreign_suite import SuiteUnavailable

T = TypeVar("T")

AMQPS_PORT = 5671
WAIT_S = 10.0


class Relay:
    """`address`: where it listens, at AMQPS_PORT."""

    def __init__(self, target_port: int) -> None:
        self.address = f"127.{64 + secrets.randbelow(64)}.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}"
        self._target_port = target_port
        self._pipes: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        try:
            self._socket = socket.create_server((self.address, AMQPS_PORT))
        except OSError as fault:
            raise SuiteUnavailable(f"{self.address}:{AMQPS_PORT} cannot be listened at: {fault.strerror}") from None
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._join, sock=self._socket))

    def cut(self) -> None:
        """End every connection; new ones pass."""
        self._run(self._cut())

    def close(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    async def _cut(self) -> None:
        for writer in list(self._pipes):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _join(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, forth = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._pipes |= {back, forth}
        try:
            await asyncio.gather(_copy(near, forth), _copy(far, back))
        finally:
            for writer in (back, forth):
                self._pipes.discard(writer)
                writer.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.close()


@contextmanager
def relayed(target_port: int) -> Iterator[Relay]:
    """Raises SuiteUnavailable where the address cannot be used."""
    relay = Relay(target_port)
    try:
        yield relay
    finally:
        relay.close()
