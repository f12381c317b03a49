"""How nodes of a test ask each other, without lines or a supervisor between them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from twinbus.errors import MessagingError
from twinbus.server.nodes.leash import Answering
from twinbus.server.nodes.switchboard import Words


class Way:
    """From one node to the others, and the turns of all. See `Asking`."""

    def __init__(self, node: int, ways: "list[Way]", turns: dict[str, asyncio.Lock]) -> None:
        self.gone: set[int] = set()
        """Nodes that are taken for dead."""
        self.answering: dict[str, Answering] = {}
        self.changing_at_start: list[str] = []
        self.asked: list[str] = []
        self.after: Callable[[str], object] = lambda what: None
        """Called when all have answered, and the asker does not know it yet."""
        self._node = node
        self._ways = ways
        self._turns = turns

    @property
    def nodes(self) -> list[int]:
        return [way._node for way in self._ways if way._node not in self.gone]

    async def ask(self, what: str, details: Words, timeout_s: float, to: int | None = None) -> dict[int, Any]:
        self.asked.append(what)
        answers: dict[int, Any] = {}
        for way in self._ways:
            if way is not self and way._node not in self.gone and to in (None, way._node):
                try:
                    answers[way._node] = await way.answering[what](details)
                except MessagingError as error:
                    answers[way._node] = error
        self.after(what)
        await asyncio.sleep(0)
        return answers

    async def ask_each(self, nodes: Sequence[int], what: str, details: Words, timeout_s: float) -> list[Any]:
        raise AssertionError

    @asynccontextmanager
    async def turn(self, name: str, wait_s: float) -> AsyncIterator[None]:
        async with self._turns.setdefault(name, asyncio.Lock()):
            yield
