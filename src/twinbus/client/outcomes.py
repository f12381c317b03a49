"""What became of things that were handed in together: a place for each, and one future for all of them."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from twinbus.errors import MessagingError


class Settles(Protocol):
    """Called once per index with its outcome: None if the peer has done it, else the error."""

    def settle(self, index: int, error: MessagingError | None) -> None: ...


class Outcomes:
    """`done` resolves when each has its outcome; `left` counts those that have not."""

    __slots__ = ("done", "left", "outcomes")

    def __init__(self, count: int) -> None:
        self.outcomes: list[MessagingError | None] = [None] * count
        self.left = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not count:
            self.done.set_result(None)

    def settle(self, index: int, error: MessagingError | None) -> None:
        if error is not None:
            self.outcomes[index] = error
        self.left -= 1
        # The waiting task may have been cancelled, and the future with it.
        if not self.left and not self.done.done():
            self.done.set_result(None)

    async def wait(self) -> list[MessagingError | None]:
        await self.done
        return self.outcomes


class SharedOutcome:
    """One outcome for several places: what is said of a batch is said of each message in it."""

    __slots__ = ("_outcomes", "_places")

    def __init__(self, outcomes: Outcomes, places: Sequence[int]) -> None:
        self._outcomes = outcomes
        self._places = places

    def settle(self, index: int, error: MessagingError | None) -> None:
        for place in self._places:
            self._outcomes.settle(place, error)
