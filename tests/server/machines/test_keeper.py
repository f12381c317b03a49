"""Which stores a node takes and gives up, by what it reads in the register and the leases."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from twinbus.server.machines.keeper import REMEMBERED_S, OwnershipKeeper
from twinbus.server.machines.lookout import LeaseSeen, Sight
from twinbus.server.machines.register import DRAINING, SERVING, NodeRow, Seen
from twinbus.server.stores.served_store import StoreCondition

HERE = 1
STORES = 4


@dataclass
class Store:
    is_own: bool = False
    is_wanted_up: bool = True
    condition: StoreCondition = StoreCondition.FOREIGN
    epoch: int = 1

    def rest(self) -> None: ...


@dataclass
class Pool:
    """Stores that open and close at once."""

    stores: list[Store] = field(default_factory=lambda: [Store() for _ in range(STORES)])

    def own(self, index: int) -> None:
        self.stores[index].is_own, self.stores[index].condition = True, StoreCondition.UP

    async def drop(self, index: int) -> bool:
        self.stores[index].is_own, self.stores[index].condition = False, StoreCondition.FOREIGN
        return True

    def own_stores(self) -> list[int]:
        return [index for index, store in enumerate(self.stores) if store.is_own]


@asynccontextmanager
async def turn(_: str) -> AsyncIterator[None]:
    yield


async def hand_over(store: int, to: int) -> bool:
    raise AssertionError


def keeper_of(pool: Pool) -> OwnershipKeeper:
    keeper = OwnershipKeeper(HERE, "me", 1, pool, set, turn, hand_over, lambda _: False, lambda: 0.0)  # type: ignore[arg-type]
    keeper.database_seen(Sight(0, {index: LeaseSeen() for index in range(STORES)}, 0.0))
    return keeper


def seen(*downs: int) -> Seen:
    """By a node that is alone."""
    return Seen([NodeRow(HERE, "a", "", "", SERVING, (), 0, 5.0, 0.0)], 0, {}, frozenset(downs), 0.0)


async def settled(keeper: OwnershipKeeper) -> None:
    for task in list(keeper._tasks):
        await task


def test_nodes_that_are_not_heard_of_any_more_are_gone_for_a_day_unless_they_have_left_in_good_order() -> None:
    def row(number: int, name: str, state: str, left_s: float) -> NodeRow:
        return NodeRow(number, name, "", "", state, (), 0, left_s, 100_000.0)

    nodes = [
        row(HERE, "here", SERVING, 5.0),
        row(2, "killed", SERVING, 0.0),
        row(3, "frozen", SERVING, 1.0 - REMEMBERED_S),
        row(4, "forgotten", SERVING, -REMEMBERED_S),
        row(5, "stopped", DRAINING, -1.0),
    ]
    keeper = keeper_of(Pool())
    assert keeper.gone() == []
    keeper.register_seen(Seen(nodes, 0, {}, frozenset(), 0.0))
    assert [node.name for node in keeper.gone()] == ["killed", "frozen"]
    assert [node.name for node in keeper.nodes()] == ["here"]


async def test_a_store_that_is_switched_off_is_taken_by_nobody_though_its_lease_is_free() -> None:
    pool = Pool()
    keeper = keeper_of(pool)
    keeper.register_seen(seen(2))
    assert pool.own_stores() == [0, 1, 3]
    assert not pool.stores[2].is_wanted_up


async def test_its_owner_gives_a_store_up_that_is_switched_off_and_takes_it_when_it_is_switched_on() -> None:
    pool = Pool()
    keeper = keeper_of(pool)
    keeper.register_seen(seen())
    assert pool.own_stores() == [0, 1, 2, 3]
    keeper.register_seen(seen(0, 2))
    await settled(keeper)
    keeper.step()
    assert pool.own_stores() == [1, 3]
    keeper.register_seen(seen(0))
    assert pool.own_stores() == [1, 2, 3]


async def test_a_store_that_was_given_to_a_node_is_not_taken_while_it_is_switched_off() -> None:
    pool = Pool()
    keeper = keeper_of(pool)
    keeper.register_seen(seen(2))
    keeper.given(2)
    keeper.step()
    assert pool.own_stores() == [0, 1, 3]


async def test_a_store_on_its_way_is_taken_when_it_is_given_and_not_when_its_lease_is_free() -> None:
    """What is locked in it comes before the word that it is given, and would be delivered to somebody else without that."""
    pool, on_the_way = Pool(), {1, 2}
    keeper = OwnershipKeeper(HERE, "me", 1, pool, set, turn, hand_over, on_the_way.__contains__, lambda: 0.0)  # type: ignore[arg-type]
    keeper.database_seen(Sight(0, {index: LeaseSeen() for index in range(STORES)}, 0.0))
    keeper.register_seen(seen())
    assert pool.own_stores() == [0, 3]
    keeper.given(1)
    keeper.step()
    assert pool.own_stores() == [0, 1, 3]
    on_the_way.clear()  # it has taken too long, or who gives it is gone
    keeper.step()
    assert pool.own_stores() == [0, 1, 2, 3]


async def test_a_move_that_has_waited_for_its_turn_is_not_made_if_its_successor_is_gone_by_then() -> None:
    may_begin, handed_over = asyncio.Event(), []

    @asynccontextmanager
    async def late_turn(_: str) -> AsyncIterator[None]:
        await may_begin.wait()
        yield

    async def note(store: int, to: int) -> bool:
        handed_over.append((store, to))
        return True

    pool, nodes = Pool(), [NodeRow(HERE, "a", "", "", SERVING, (), 0, 5.0, 0.0)]
    keeper = OwnershipKeeper(HERE, "me", 1, pool, set, late_turn, note, lambda _: False, lambda: 0.0)  # type: ignore[arg-type]
    keeper.database_seen(Sight(0, {index: LeaseSeen() for index in range(STORES)}, 0.0))
    keeper.register_seen(Seen(nodes, 0, {}, frozenset(), 0.0))
    both = [*nodes, NodeRow(2, "b", "", "", SERVING, (), 0, 5.0, 0.0)]
    for is_there in (False, True):
        may_begin.clear()
        keeper.register_seen(Seen(both, 0, {3: "b"}, frozenset(), 0.0))
        await asyncio.sleep(0)
        if not is_there:
            keeper.register_seen(Seen(nodes, 0, {3: "b"}, frozenset(), 0.0))
        may_begin.set()
        await settled(keeper)
        assert handed_over == ([(3, 2)] if is_there else [])


async def test_a_node_that_leaves_gives_no_store_to_one_that_is_gone_by_then() -> None:
    handed_over: list[int] = []
    nodes = [
        NodeRow(number, name, "", "", SERVING, (), 0, 5.0, 0.0) for number, name in ((HERE, "a"), (2, "b"), (3, "c"))
    ]

    async def note(_: int, to: int) -> bool:
        handed_over.append(to)
        gone = next(node for node in nodes if node.number not in (HERE, handed_over[0]))
        keeper.register_seen(Seen([node for node in nodes if node is not gone], 0, {}, frozenset(), 0.0))
        return True

    keeper = OwnershipKeeper(HERE, "me", 1, pool := Pool(), set, turn, note, lambda _: False, lambda: 0.0)  # type: ignore[arg-type]
    keeper.database_seen(Sight(0, {index: LeaseSeen() for index in range(STORES)}, 0.0))
    keeper.register_seen(Seen(nodes[:1], 0, {}, frozenset(), 0.0))
    assert pool.own_stores() == [0, 1, 2, 3]
    keeper.register_seen(Seen(nodes, 0, {}, frozenset(), 0.0))
    await keeper.drain()
    assert handed_over == [handed_over[0]] * STORES


async def test_a_store_that_its_next_owner_has_not_taken_is_not_said_to_have_moved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refused(store: int, _: int) -> bool:
        return store == 0

    caplog.set_level(logging.INFO)
    nodes = [NodeRow(number, name, "", "", SERVING, (), 0, 5.0, 0.0) for number, name in ((HERE, "a"), (2, "b"))]
    keeper = OwnershipKeeper(HERE, "me", 1, Pool(), set, turn, refused, lambda _: False, lambda: 0.0)  # type: ignore[arg-type]
    keeper.register_seen(Seen(nodes, 0, {}, frozenset(), 0.0))
    for store in (0, 1):
        await keeper.hand_over(store, 2)
    told = [each.message for each in caplog.records if each.message.startswith("store_")]
    assert told == ["store_moved", "store_not_taken"]
