"""The metrics of a namespace that several processes serve: whoever is asked for the page asks here, and gets it as a whole.

It is made in one place, which knows of every process from its start to its end, so that sums go on when one is replaced (`Tally`).
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from twinbus.http.own.metrics import METRICS
from twinbus.http.own.metrics_text import Tally
from twinbus.server.nodes.switchboard import Words

PATIENCE_S = 20.0
"""For a process that lives and has not answered: a scrape of ten thousand entities takes its time."""
LOOK_EVERY_S = 0.5


class CountingNode(Protocol):
    """A process, from its start to its end."""

    @property
    def index(self) -> int: ...
    @property
    def life(self) -> int:
        """A number that no other process has had."""
        ...

    @property
    def is_ready(self) -> bool:
        """Until it has ended."""
        ...

    @property
    def is_heard(self) -> bool: ...


class Totals:
    """Lives on the event loop of the supervisor. `ask`: a question for a node; its answers by node when it has answered or ended."""

    def __init__(
        self,
        ask: Callable[[Sequence[int], str, Words, Callable[[Words], None]], None],
        nodes: Callable[[], Sequence[CountingNode]],
    ) -> None:
        self._ask_nodes = ask
        self._nodes = nodes
        self._tally = Tally()
        # What has ended is done with after all that was heard of it, and large texts are added up beside the loop.
        self._thread = ThreadPoolExecutor(1, "totals")
        self._turn = asyncio.Lock()

    async def text(self, details: Words) -> str:
        """`details`: those of the question for the metrics of a node. One after the other: what is heard of a process has to be later
        than what was heard before, or its counters would seem to begin again."""
        async with self._turn:
            loop = asyncio.get_running_loop()
            asked = [(node, self._ask(node, details)) for node in self._nodes() if node.is_ready]
            deadline = loop.time() + PATIENCE_S
            while loop.time() < deadline and (
                missing := [answer for node, answer in asked if node.is_heard and not answer.done()]
            ):
                await asyncio.wait(missing, timeout=LOOK_EVERY_S)
            texts = {node.life: answer.result().encode() for node, answer in asked if node.is_ready and answer.done()}
            return (await loop.run_in_executor(self._thread, self._tally.merged, texts)).decode()

    def ended(self, node: CountingNode) -> None:
        """To be called once it is no longer ready."""
        self._thread.submit(self._tally.ended, node.life)

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    def _ask(self, node: CountingNode, details: Words) -> "asyncio.Future[str]":
        """Without an answer the text is empty."""
        text: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def answered(answers: Words) -> None:
            answer: Any = answers.get(str(node.index), {}).get("value")
            if not text.done():
                text.set_result(answer or "")

        self._ask_nodes([node.index], METRICS, details, answered)
        return text
