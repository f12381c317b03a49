"""Questions about a store go to the node that has it."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from twinbus.errors import FragmentUnavailable
from twinbus.http.own.store_records import STORES
from twinbus.server.nodes.leash import Answering
from twinbus.server.nodes.membership import AskedOthers
from twinbus.server.nodes.switchboard import Words

NOBODY = 64


class Three:
    """Nodes 0 to 2, of which the first asks. `held`: the stores that each of the others has, or why it does not say."""

    def __init__(self, held: dict[int, list[int] | FragmentUnavailable]) -> None:
        self.answering: dict[str, Answering] = {}
        self.changing_at_start: list[str] = []
        self.nodes = [0, 1, 2]
        self._held = held

    async def ask(self, what: str, details: Words, timeout_s: float, to: int | None = None) -> dict[int, Any]:
        assert to is not None
        return {to: f"{what} at {to}"}

    async def ask_each(self, nodes: Sequence[int], what: str, details: Words, timeout_s: float) -> list[Any]:
        assert what == STORES
        held = [self._held[node] for node in nodes]
        return [[{"index": index} for index in each] if isinstance(each, list) else each for each in held]

    def turn(self, name: str, wait_s: float) -> AbstractAsyncContextManager[None]:
        raise AssertionError


async def test_a_store_that_nobody_serves_is_asked_for_at_the_node_that_has_it() -> None:
    silent = FragmentUnavailable("Node 1 cannot be reached.")
    others = AskedOthers(Three({1: silent, 2: [4, 5]}), 0, lambda store: NOBODY)
    assert await others.ask_owner(5, "switch", {}) == "switch at 2"
    with pytest.raises(FragmentUnavailable, match="messaging store 3 is not there now"):
        await others.ask_owner(3, "switch", {})


async def test_a_store_that_is_served_is_asked_for_at_its_owner() -> None:
    assert await AskedOthers(Three({}), 0, lambda store: 1).ask_owner(5, "switch", {}) == "switch at 1"
