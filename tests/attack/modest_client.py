"""A client that sends a small message now and then, in a process of its own: how long each of its sends takes."""

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace

PAUSE_S = 0.01
WAIT_S = 60.0


def p99(durations: list[float]) -> float:
    return sorted(durations)[len(durations) * 99 // 100]


async def _send(connection_string: str, path: str, line: Connection) -> None:
    durations: list[float] = []
    async with await Namespace.connect(connection_string) as namespace:
        sender = await namespace.sender(path)
        await sender.send([encode_message(b"first")])
        line.send(None)
        while not line.poll():
            start = time.perf_counter()
            answers = await sender.send([encode_message(b"x" * 100)])
            assert answers == [None], answers
            durations.append(time.perf_counter() - start)
            await asyncio.sleep(PAUSE_S)
    line.send(durations)


def _run(connection_string: str, path: str, line: Connection) -> None:
    asyncio.run(_send(connection_string, path, line))


class ModestClient:
    """Sends from `with` to the end of the block; then there are `durations`."""

    def __init__(self, connection_string: str, path: str) -> None:
        self.durations: list[float] = []
        processes = multiprocessing.get_context("spawn")
        self._line, theirs = processes.Pipe()
        self._process = processes.Process(target=_run, args=(connection_string, path, theirs), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        assert self._line.poll(WAIT_S)
        self._line.recv()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.send(None)
        if kind is None:
            assert self._line.poll(WAIT_S)
            self.durations = self._line.recv()
        self._process.join(WAIT_S)
        self._process.kill()
