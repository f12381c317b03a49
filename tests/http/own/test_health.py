"""`/ready` as a balancer asks it: from what a process knows by itself."""

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from twinbus.http.own.health import HealthPage
from twinbus.http.own.nodes import NodeFigures
from twinbus.http.own.store_records import STORES, StoreRecords
from twinbus.own_hosts import OwnHosts

PATIENCE_S = 5


class Condition(Enum):
    UP = "up"
    DOWN = "down"
    FOREIGN = "foreign"


@dataclass
class Store:
    index: int
    reported_condition: Condition
    is_full: bool = False
    set_aside: tuple[str, ...] = ()
    kept_in: str = ""
    owner: str = ""
    reported_fault: str = ""
    delay_s: float = 0.0
    acks_to_lose: int = 0


class Silent:
    """Other processes that never answer."""

    async def ask_all(self, what: str, details: dict[str, Any]) -> dict[int, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def ask_owner(self, store: int, what: str, details: dict[str, Any]) -> Any:
        raise AssertionError


class Answering(Silent):
    async def ask_all(self, what: str, details: dict[str, Any]) -> dict[int, Any]:
        assert what == STORES
        return {1: [{"index": 1, "condition": "up", "set_aside": 0, "kept_in": "", "owner": ""}]}


class Undecided(Silent):
    """One node serves everything, and another one has read that a store is to be off."""

    async def ask_all(self, what: str, details: dict[str, Any]) -> dict[int, Any]:
        served = [{"index": index, "condition": "up", "set_aside": 0, "kept_in": "", "owner": ""} for index in (0, 1)]
        return {1: served, 2: [{**served[0], "condition": "down"}]}


class Machines:
    """`reason`: why this node is not ready."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def not_ready(self) -> str:
        return self._reason

    def listed(self) -> list[dict[str, Any]]:
        raise AssertionError

    async def drain(self, name: str) -> None:
        raise AssertionError

    async def move(self, store: int, name: str | None) -> None:
        raise AssertionError

    async def switch(self, store: int, *, is_up: bool) -> bool:
        raise AssertionError

    def figures(self) -> NodeFigures:
        raise AssertionError


async def ready(others: Silent, nodes: Machines | None, *conditions: Condition) -> tuple[int, dict[str, Any]]:
    stores = [Store(index, condition) for index, condition in enumerate(conditions)]
    page = HealthPage("shop", StoreRecords(stores, others), OwnHosts([]), nodes)
    transport = httpx.ASGITransport(Starlette(routes=[Route("/ready", page.show_ready)]))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        async with asyncio.timeout(PATIENCE_S):
            answer = await http.get("/ready")
    return answer.status_code, answer.json()


@pytest.mark.parametrize("nodes", [None, Machines("")], ids=["processes", "machines"])
async def test_a_process_with_a_store_that_works_is_ready_whether_or_not_others_answer(nodes: Machines | None) -> None:
    status, said = await ready(Silent(), nodes, Condition.DOWN, Condition.UP, Condition.FOREIGN)
    assert (status, said["status"]) == (200, "ready")
    assert said["unhealthy_stores"] == {"0": "down"}


async def test_a_machine_asks_no_other_one_even_if_it_has_no_store() -> None:
    assert (await ready(Silent(), Machines(""), Condition.FOREIGN, Condition.FOREIGN))[0] == 200


async def test_a_machine_that_is_not_ready_says_why_even_if_its_stores_work() -> None:
    status, said = await ready(Silent(), Machines("it ends"), Condition.UP, Condition.FOREIGN)
    assert (status, said["status"], said["reason"]) == (503, "not ready", "it ends")


async def test_a_process_whose_own_stores_are_down_is_ready_while_another_process_has_one_that_works() -> None:
    assert (await ready(Answering(), None, Condition.DOWN, Condition.FOREIGN))[0] == 200


async def test_a_store_that_a_node_serves_is_up_until_it_does_so_no_more_though_it_is_to_be_off() -> None:
    stores = [Store(0, Condition.DOWN), Store(1, Condition.FOREIGN)]
    assert [store["condition"] for store in await StoreRecords(stores, Undecided()).all()] == ["up", "up"]
