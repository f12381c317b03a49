"""Lines to other nodes over sockets."""

import asyncio
import socket

import pytest

from twinbus.clock import SystemClock
from twinbus.cluster.lines.frames import Hello
from twinbus.cluster.lines.line import Topics
from twinbus.server.nodes import mesh as module
from twinbus.server.nodes.mesh import Mesh

PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    monkeypatch.setattr(module, "STILL_MISSING_S", 0.0)


async def turns() -> None:
    """Enough for whatever is due at once."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_missing_line_is_asked_for_until_it_is_there() -> None:
    """The supervisor may not be able to hand out the first one that is asked for."""

    async def run() -> None:
        asked: asyncio.Queue[int] = asyncio.Queue()
        mesh = Mesh(Hello(0, 2, "shop"), Topics(), SystemClock(), asked.put_nowait)
        mesh.open()
        here, there = socket.socketpair()
        await mesh.connect(1, here)
        there.close()
        async with asyncio.timeout(PATIENCE_S):
            assert [await asked.get() for _ in range(3)] == [1, 1, 1]
        here, there = socket.socketpair()
        with there:
            await mesh.connect(1, here)
            while not asked.empty():
                asked.get_nowait()
            await turns()
            assert asked.empty()
            mesh.close()

    asyncio.run(run())


def test_the_higher_of_two_nodes_leaves_it_to_the_other_to_ask() -> None:
    async def run() -> None:
        asked: list[int] = []
        mesh = Mesh(Hello(1, 2, "shop"), Topics(), SystemClock(), asked.append)
        mesh.open()
        here, there = socket.socketpair()
        await mesh.connect(0, here)
        there.close()
        async with asyncio.timeout(PATIENCE_S):
            while mesh.lines:
                await asyncio.sleep(0)
        await turns()
        assert asked == []

    asyncio.run(run())
