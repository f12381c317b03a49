"""The message brokers of a namespace, each with its messaging store, whether those run in a process or on threads."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from random import SystemRandom

from twinbus.broker.forwarding_gate import ForwardingGate
from twinbus.broker.held_contents import HeldContents
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.moved_locks import MovedLocks
from twinbus.broker.wakeups import LongWork
from twinbus.broker.wide_lanes import WideLanes
from twinbus.clock import Clock
from twinbus.errors import StoreUnavailable
from twinbus.server.patience import Patience
from twinbus.server.stores.pressure import StorePressure
from twinbus.server.stores.served_store import OnLost, OnReturned, StoreCondition, StoreKeeper, foreign_store
from twinbus.store.changes import FragmentKey

log = logging.getLogger(__name__)

READY_WAIT_S = 10.0
"""From one store that has opened to the next. If that takes longer one hangs, and the others are served without it."""
SWITCH_WAIT_S = 8.0
"""Less than a command waits for its answer."""
READY_POLL_S = 0.005
TELL_POLL_S = 1.0
OPEN_WORK_WAIT_S = 2.0
"""For transactions on a store that is given away: those that are still open then are rolled back."""
FORWARD_WAIT_S = 0.5
"""For messages on their way to another entity: they are forwarded once more by the next owner if nothing has come of it by then. Not
longer, since what they are to reach may wait for this very store."""
RETIRE_WAIT_S = 2.0
"""For what was asked of a store before it is given away."""

NOT_OPENING = (StoreCondition.LOST, StoreCondition.DOWN, StoreCondition.TAKEN, StoreCondition.FOREIGN)

MakeKeeper = Callable[[OnLost, OnReturned], StoreKeeper]
MovedIn = Callable[[int, int], Mapping[FragmentKey, MovedLocks]]


class StorePool:
    def __init__(
        self,
        make_keeper: MakeKeeper,
        clock: Clock,
        store_count: int,
        on_opened: Callable[[int], None] = lambda _: None,
        *,
        are_shared: bool = False,
        database_count: int = 0,
    ) -> None:
        """`on_opened` is called with the number of each store whenever it was opened. `are_shared`: none of them is owned before `own`
        says so, and one that another machine has taken is no reason to end. `database_count`: they are shared out among as many."""
        self._on_opened = on_opened
        self._are_shared = are_shared
        self._was_open = [False] * store_count
        self._keeper = make_keeper(self._lost, self._returned)
        for store, lease in zip(self._keeper.stores, self._keeper.leases, strict=True):
            store.lease = lease
        own = {store.index: store for store in self._keeper.stores}
        self.stores = [own[index] if index in own else foreign_store(index) for index in range(store_count)]
        loop = asyncio.get_running_loop()
        self.pressure = StorePressure(self.stores, loop.time, loop.call_later)
        long_work, wide_lanes = LongWork(loop.call_soon, clock), WideLanes()
        held_contents, self.forwarding_gate = HeldContents(), ForwardingGate()
        shared = long_work, wide_lanes
        self.brokers = [
            MessageBroker(
                store.index, store, clock, SystemRandom(), *shared, store.lease, held_contents, self.forwarding_gate
            )
            for store in self.stores
        ]
        for broker in self.brokers:
            broker.is_foreign = are_shared or broker.index not in own
            broker.database = broker.index % database_count if database_count > 1 else None
        for store in self._keeper.stores if are_shared else ():
            store.is_own = False
            store.condition = StoreCondition.FOREIGN
        self.moved_in: MovedIn = lambda index, epoch: {}
        """The locks that were given under the epoch before, if they came with the store."""
        self.when_known: Callable[[Callable[[], None]], None] = lambda load: load()
        """Called with what loads a store that another owner may have had: to be called when all is known that was changed meanwhile."""
        self._loaded_epochs = [0] * store_count
        self.superseded = asyncio.Event()
        self._missed: set[int] = set()  # stores whose loss is in the log
        self._telling: asyncio.Task[None] | None = None

    def _lost(self, index: int, error: StoreUnavailable) -> None:
        if self.stores[index].condition is not StoreCondition.FOREIGN:
            log.warning("store_lost", extra={"fields": {"store": index, "reason": str(error)}})
            self._missed.add(index)
        elif self._was_open[index]:
            log.info("store_released", extra={"fields": {"store": index}})
        self._was_open[index] = False
        if self._are_shared and self.stores[index].condition in (StoreCondition.FOREIGN, StoreCondition.TAKEN):
            self.brokers[index].is_foreign = True
        self.brokers[index].store_lost(error)
        if self._are_shared:
            return
        taken_count = sum([store.condition is StoreCondition.TAKEN for store in self.stores])
        if 2 * taken_count > len(self.stores):
            # Another process serves the namespace; what is left of it here helps nobody.
            self.superseded.set()

    def _returned(self, index: int) -> None:
        level = logging.INFO if index in self._missed else logging.DEBUG
        log.log(level, "store_opened", extra={"fields": {"store": index}})
        self._missed.discard(index)
        if set_aside := self.stores[index].set_aside:
            fields = {"store": index, "set_aside": len(set_aside), "first": set_aside[0]}
            log.error("store_damaged", extra={"fields": fields})
        self._was_open[index] = True
        self._on_opened(index)
        epoch = self.stores[index].epoch
        if epoch <= self._loaded_epochs[index] + 1:
            self._load(index, epoch)  # nobody has had it since
        else:
            self.when_known(partial(self._load, index, epoch))

    def _load(self, index: int, epoch: int) -> None:
        store, broker = self.stores[index], self.brokers[index]
        if store.condition is not StoreCondition.UP or store.epoch != epoch:
            return  # it was lost again while this waited
        if self._are_shared:
            broker.is_foreign = False
        self._loaded_epochs[index] = epoch
        broker.expect(self.moved_in(index, epoch))
        broker.store_returned()

    @property
    def is_forwarding(self) -> bool:
        """Whether messages are on their way from one entity to another."""
        return any(broker.forwarding for broker in self.brokers)

    async def start(self) -> None:
        """Open the stores, and return when each has loaded or failed, or after a while if one hangs. If the process that keeps them
        ends, they have failed."""
        await self._keeper.start()
        own = [store.index for store in self.stores if not store.is_foreign]
        loop = asyncio.get_running_loop()
        patience = Patience("waiting_for_stores", len(own), lambda: self._missing(own), READY_WAIT_S, loop.time())
        while (count := sum(map(self._is_settled, own))) < len(own):
            if patience.is_over(count, loop.time()):
                log.warning("not_waiting_for_stores", extra={"fields": {"missing": self._missing(own)}})
                self._telling = loop.create_task(self._tell_of_missing(own, patience))
                return
            await asyncio.sleep(READY_POLL_S)

    async def _tell_of_missing(self, own: list[int], patience: Patience) -> None:
        """Nobody waits for them any more, and a store that hangs says nothing itself."""
        while (count := sum(map(self._is_settled, own))) < len(own):
            patience.is_over(count, asyncio.get_running_loop().time())
            await asyncio.sleep(TELL_POLL_S)

    def _missing(self, own: list[int]) -> str:
        """Which of these stores cannot be used yet, and why: those with the same reason together."""
        by_reason: dict[str, list[str]] = {}
        for index in own:
            if not self._is_settled(index):
                by_reason.setdefault(self.stores[index].awaited, []).append(str(index))
        return "; ".join(f"{','.join(numbers)}: {reason}" for reason, numbers in by_reason.items())

    def own(self, index: int) -> None:
        """Serve this store as soon as nobody else owns it; until then it is another node's."""
        self.stores[index].own()

    async def release(self, index: int, move_out: Callable[[MessageBroker], None]) -> bool:
        """Finish what is under way, and leave the store to another node. Whether it is closed in time; it will be later if not.

        `move_out` gets the broker when it is at rest, so that its locks travel. Transactions, other long work and messages that are being
        forwarded have a moment before.
        """
        broker = self.brokers[index]

        def is_done() -> bool:
            broker.retire()  # also once more: its store may fail and return while this waits, and be read again
            return broker.is_at_rest

        await _until(lambda: not broker.has_open_work, OPEN_WORK_WAIT_S)
        broker.finish_forwarding()
        await _until(lambda: not broker.forwarding, FORWARD_WAIT_S)
        if await _until(is_done, RETIRE_WAIT_S):
            try:
                move_out(broker)
            except Exception:  # a bug. The store goes without its locks: nobody would serve it here any more
                log.exception("locks_not_moved", extra={"fields": {"store": index}})
        else:
            # Whoever holds something of it here knows before anybody else can hold it.
            broker.store_lost(StoreUnavailable(f"messaging store {index} moves to another node"))
        return await self.drop(index)

    async def drop(self, index: int) -> bool:
        """Leave the store to whoever owns it."""
        store = self.stores[index]
        store.release()
        return await _until(lambda: store.condition is StoreCondition.FOREIGN, SWITCH_WAIT_S)

    async def switch_off(self, index: int) -> bool:
        """True when nothing in the store can be reached any more; False if that takes long, and then it still happens."""
        store, broker = self.stores[index], self.brokers[index]
        store.down()
        return await _until(lambda: store.condition is StoreCondition.DOWN and not broker.is_available, SWITCH_WAIT_S)

    async def switch_on(self, index: int) -> bool:
        """End all faults of the store. True when it serves again; False if it cannot be opened or that takes long."""
        store, broker = self.stores[index], self.brokers[index]
        store.slow(0.0)
        store.lose_acks(0)
        store.up()
        await _until(lambda: broker.is_available or store.condition is StoreCondition.LOST, SWITCH_WAIT_S)
        return broker.is_available

    def _is_settled(self, index: int) -> bool:
        return self.brokers[index].is_available or self.stores[index].condition in NOT_OPENING

    async def stop(self) -> None:
        """Finish what was asked of the stores and close them."""
        self._stop_telling()
        await self._keeper.stop()

    def abandon(self) -> None:
        self._stop_telling()
        self._keeper.abandon()

    def _stop_telling(self) -> None:
        if self._telling is not None:
            self._telling.cancel()


async def _until(is_done: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it was so in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not is_done() and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(READY_POLL_S)
    return is_done()
