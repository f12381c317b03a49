"""Which stores a node takes and gives up, by what it reads in the register and the leases."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

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


async def hand_over(store: int, to: int) -> None:
    raise AssertionError


def keeper_of(pool: Pool) -> OwnershipKeeper:
    keeper = OwnershipKeeper(HERE, "me", 1, pool, set, turn, hand_over, lambda: 0.0)  # type: ignore[arg-type]
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
