"""Owns and releases messaging stores so that what is becomes what is to be: views of the register and the leases in, switches of stores out.

    foreign --it is to be ours, and its lease is free, or it is given to us--> opening --taken over--> ours
    ours --it is to be another node's: one at a time, after calm; at once if this node leaves--> handed over, with its locks
    ours --its lease is another owner's, its database is out of reach, or it is switched off--> foreign

A node that dies stops beating, its leases end, and all others see both within a second: whoever is to own its stores now takes them. Moves
that nobody needs wait until no node has come or gone for CALM_S.

A store on its way from one node to another is free for a moment, and its locks may still be on their way: nobody takes it but the node that
it is given to, when it is told so.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

from twinbus.clock import boot_time
from twinbus.errors import MessagingError
from twinbus.server.machines.lookout import LeaseSeen, Sight
from twinbus.server.machines.register import SERVING, NodeRow, Seen
from twinbus.server.machines.share_out import Candidate, share_out
from twinbus.server.stores.served_store import StoreCondition

log = logging.getLogger(__name__)

CALM_S = 30.0
FRESH_S = 3.5
"""What was seen longer ago does not count: a lease may have been taken since."""
HANDED_OVER_S = 5.0
"""For a node to take a store that was released for it."""
MOVE_TURN = "$move"
REMEMBERED_S = 24 * 3_600.0
"""For which a node that is gone is shown to operators: one that is not to come back would stay in the register."""


class OwnedStore(Protocol):
    is_own: bool
    is_wanted_up: bool

    @property
    def condition(self) -> StoreCondition: ...
    @property
    def epoch(self) -> int: ...
    def rest(self) -> None: ...


class Switches(Protocol):
    """The stores of this process."""

    @property
    def stores(self) -> "list[OwnedStore]": ...

    def own(self, index: int) -> None: ...
    async def drop(self, index: int) -> bool: ...


class OwnershipKeeper:
    """Lives on the event loop. `reached`: the nodes that there is a line to; `turn`: of a name, over all nodes; `hand_over`: of a store
    to a node, and whether that one serves it then; `is_being_given`: whether the owner of a store is about to give it to some node."""

    def __init__(
        self,
        me: int,
        owner_id: str,
        database_count: int,
        pool: Switches,
        reached: Callable[[], set[int]],
        turn: Callable[[str], AbstractAsyncContextManager[None]],
        hand_over: Callable[[int, int], Awaitable[bool]],
        is_being_given: Callable[[int], bool],
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self._me = me
        self._owner_id = owner_id
        self._database_count = database_count
        self._pool = pool
        self._reached = reached
        self._turn = turn
        self._hand_over = hand_over
        self._is_being_given = is_being_given
        self._clock = clock
        self._seen: Seen | None = None
        self._sights: dict[int, Sight] = {}
        self._candidates: list[Candidate] = []
        self._changed_at = clock()
        self._taking: dict[int, float] = {}
        self._given: dict[int, float] = {}  # stores that others have released for this node, and when
        self._tasks: set[asyncio.Task[None]] = set()
        self._moving: int | None = None
        self._dropping: set[int] = set()
        self.is_draining = False
        self.takeovers = 0
        self.moves = 0

    # What is seen

    def register_seen(self, seen: Seen) -> None:
        self._seen = seen
        for store, state in enumerate(self._pool.stores):
            state.is_wanted_up = store not in seen.downs
        self.step()

    def database_seen(self, sight: Sight) -> None:
        before = self._sights.get(sight.database)
        self._sights[sight.database] = sight
        if (before is None or before.leases is not None) and sight.leases is None:
            fields = {"database": sight.database, "reason": sight.fault}
            log.warning("database_not_reached", extra={"fields": fields})
        self.step()

    @property
    def unreached(self) -> tuple[int, ...]:
        return tuple(each for each in range(self._database_count) if self._leases_in(each) is None)

    def lease_of(self, store: int) -> LeaseSeen | None:
        """As it was a moment ago; None if that is not known."""
        leases = self._leases_in(store % self._database_count)
        return None if leases is None else leases.get(store)

    def _leases_in(self, database: int) -> Mapping[int, LeaseSeen] | None:
        sight = self._sights.get(database)
        return None if sight is None or self._clock() - sight.at > FRESH_S else sight.leases

    def nodes(self) -> list[NodeRow]:
        """Those that live. While the register cannot be read, those that are reached."""
        if self._seen is None:
            return []
        if self._clock() - self._seen.at <= FRESH_S:
            return [node for node in self._seen.nodes if node.is_live]
        there = self._reached() | {self._me}
        return [node for node in self._seen.nodes if node.number in there]

    def gone(self) -> list[NodeRow]:
        """Those that were heard of until a while ago, and have not left in good order."""
        if self._seen is None or self._clock() - self._seen.at > FRESH_S:
            return []
        return [each for each in self._seen.nodes if each.state == SERVING and -REMEMBERED_S < each.left_s <= 0.0]

    def _name_of(self, number: int) -> str:
        names = [] if self._seen is None else [node.name for node in self._seen.nodes if node.number == number]
        return names[0] if names else str(number)

    @property
    def pins(self) -> dict[int, str]:
        return {} if self._seen is None else self._seen.pins

    def wanted(self) -> list[int | None]:
        """By store: the node that is to own it."""
        return share_out(len(self._pool.stores), self._database_count, self._candidates, self.pins)

    # What is done

    def step(self) -> None:
        self._look_at_nodes()
        wanted = self.wanted()
        for store, owner in enumerate(wanted):
            state, lease = self._pool.stores[store], self.lease_of(store)
            is_others = lease is not None and lease.is_live and lease.owner != self._owner_id
            if not state.is_wanted_up:
                if state.is_own and store != self._moving:
                    self._drop(store, "it is switched off")
            elif not state.is_own:
                is_wanted = self._is_given(store) or (owner == self._me and not self._is_being_given(store))
                if is_wanted and lease is not None and not is_others and not self.is_draining:
                    self._take(store, lease)
            elif state.condition is StoreCondition.UP:
                self._taken(store)
            elif is_others and state.condition in (StoreCondition.TAKEN, StoreCondition.LOST):
                self._drop(store, f"it is owned by {lease.address if lease else '?'}")
            elif owner not in (self._me, None) and state.condition is StoreCondition.LOST:
                self._drop(store, "this node does not reach it")
        self._move_one(wanted)

    def _look_at_nodes(self) -> None:
        candidates = [
            Candidate(node.number, node.name, self.unreached if node.number == self._me else node.unreached)
            for node in self.nodes()
            if node.state == SERVING and not (node.number == self._me and self.is_draining)
        ]
        if candidates == self._candidates:
            return
        before, after = ({each.name for each in some} for some in (self._candidates, candidates))
        if before != after:
            fields = {"gone": ",".join(sorted(before - after)), "new": ",".join(sorted(after - before))}
            log.info("nodes_changed", extra={"fields": {**fields, "nodes": ",".join(sorted(after))}})
        self._candidates = candidates
        self._changed_at = self._clock()

    def _take(self, store: int, lease: LeaseSeen) -> None:
        self._taking[store] = self._clock()
        fields = {"store": store, "former": lease.address or "nobody", "epoch": lease.epoch}
        log.info("taking_store", extra={"fields": fields})
        self._pool.own(store)

    def given(self, store: int) -> None:
        """Its owner has released it for this node, which may not have heard yet why."""
        self._given[store] = self._clock()

    def _is_given(self, store: int) -> bool:
        return store in self._given and self._clock() - self._given[store] < HANDED_OVER_S

    def _taken(self, store: int) -> None:
        since = self._taking.pop(store, None)
        if since is not None:
            self.takeovers += 1
            took = round(1_000 * (self._clock() - since))
            fields = {"store": store, "epoch": self._pool.stores[store].epoch, "ms": took}
            log.info("store_taken", extra={"fields": fields})

    def _drop(self, store: int, reason: str) -> None:
        if store in self._dropping:
            return
        self._dropping.add(store)
        self._taking.pop(store, None)
        log.warning("store_given_up", extra={"fields": {"store": store, "reason": reason}})
        self._spawn(self._drop_now(store))

    async def _drop_now(self, store: int) -> None:
        try:
            await self._pool.drop(store)
        finally:
            self._dropping.discard(store)

    def _move_one(self, wanted: "list[int | None]") -> None:
        """The next store that another node is to own: a pinned one at once, others after calm."""
        if self._moving is not None or self.is_draining:
            return
        for store, owner in enumerate(wanted):
            if owner is not None and self._is_to_move(store, owner):
                self._moving = store
                self._spawn(self._move(store, owner))
                return

    def _is_to_move(self, store: int, owner: int) -> bool:
        state, is_calm = self._pool.stores[store], self._clock() - self._changed_at >= CALM_S
        is_due = is_calm or store in self.pins
        return state.is_own and owner != self._me and is_due and state.condition is StoreCondition.UP

    async def _move(self, store: int, to: int) -> None:
        try:
            # Whoever cannot tell the others leaves it for later.
            with suppress(MessagingError):
                async with self._turn(MOVE_TURN):
                    # Others move theirs first, which takes its time: nodes may have come and gone.
                    if self.wanted()[store] == to and self._is_to_move(store, to):
                        await self.hand_over(store, to)
        finally:
            self._moving = None

    async def hand_over(self, store: int, to: int) -> None:
        """Returns when its next owner has it, or after a while."""
        self.moves += 1
        self._pool.stores[store].rest()
        since, fields = self._clock(), {"store": store, "to": self._name_of(to)}
        log.info("moving_store", extra={"fields": fields})
        is_taken = await self._hand_over(store, to)
        fields["ms"] = round(1_000 * (self._clock() - since))
        if is_taken:
            log.info("store_moved", extra={"fields": fields})
        else:  # whoever is to own it takes it when its lease is free
            log.warning("store_not_taken", extra={"fields": fields})

    async def drain(self) -> None:
        """All stores go to other nodes, if there are any."""
        self.is_draining = True
        self._look_at_nodes()
        while self._moving is not None:
            await asyncio.sleep(0.01)
        for state in [state for state in self._pool.stores if state.is_own]:
            state.rest()
        for store, state in enumerate(self._pool.stores):
            owner = self.wanted()[store]  # nodes may come and go while others are moved
            if state.is_own and owner is not None:
                await self.hand_over(store, owner)

    def _spawn(self, work: "Awaitable[None]") -> None:
        async def run() -> None:
            await work

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
