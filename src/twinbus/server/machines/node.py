"""What makes a namespace's server one of several on different machines: all that is in this package, put together.

    start   catalog > register > number > certificate > listen for nodes > beat > own stores, until all of them have an owner
    stop    hand the stores over > (the server closes its connections and stores) > leave the register

What gateways see are fronts over parts (`twinbus.cluster`).
"""

import asyncio
import logging
from collections.abc import Callable, Set
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any, Final

from twinbus.broker.entity.entities import Entities
from twinbus.broker.message_broker import MessageBroker
from twinbus.clock import Clock, Millis, boot_time
from twinbus.cluster.fronts.fronts import Fronts
from twinbus.cluster.lines.frames import Hello
from twinbus.cluster.lines.line import Topics
from twinbus.errors import ArgumentError, MessagingError
from twinbus.http.own.nodes import NodeFigures, NoSuchNode
from twinbus.management.catalog_postgres import first_place
from twinbus.management.catalog_shared import SharedPostgresCatalog
from twinbus.server.listening.admission import Admission
from twinbus.server.machines.assembly import Assembly
from twinbus.server.machines.catalog_watch import CatalogWatch
from twinbus.server.machines.claiming import Claiming
from twinbus.server.machines.claims import NOBODY
from twinbus.server.machines.identity import Authority, line_contexts
from twinbus.server.machines.keeper import HANDED_OVER_S, OwnershipKeeper
from twinbus.server.machines.lookout import Lookout, Sight
from twinbus.server.machines.reach import Reach
from twinbus.server.machines.register import (
    ALL_NODES,
    DRAINING,
    GONE,
    NODES_MAX,
    SERVING,
    Facts,
    NodeReplaced,
    Register,
    Seen,
)
from twinbus.server.machines.tcp_mesh import NodeAddress, TcpMesh
from twinbus.server.nodes.answers import Answers
from twinbus.server.nodes.membership import SOON_S, AskedOthers, AskedPeers
from twinbus.server.patience import Intervals
from twinbus.server.server_settings import ServerSettings
from twinbus.server.stores.leases import HeldLease
from twinbus.server.stores.pool import SWITCH_WAIT_S
from twinbus.store.postgres.place import Owner, PostgresPlace

if TYPE_CHECKING:
    from twinbus.server.namespace import NamespaceServer

log = logging.getLogger(__name__)

TAKE: Final = "take"
DRAIN: Final = "drain"
LOOK: Final = "look"
STEP_EVERY_S = 0.25
OWNED_WAIT_S = 20.0
"""At the start, for all stores to have an owner."""
TURN_WAIT_S = 10.0
HOLD_WAIT_S = 1.0
"""For all nodes to wait with what concerns a store."""
LOOKED_WAIT_S = 1.0
"""For the register to be read once more."""


class MachineNode:
    """Lives on the event loop; `open_catalog` blocks. Raises ArgumentError if other nodes could not reach it where it is to listen."""

    lock: int | None = None
    numbers = None
    stores = None
    metrics_of_all = None

    def __init__(self, settings: ServerSettings, owner: Owner, clock: Clock) -> None:
        assert settings.node_name is not None
        assert settings.listen_nodes is not None
        advertised = settings.advertise_nodes
        self._listens_at = NodeAddress.read(settings.listen_nodes, is_reached=advertised is None)
        self._is_reached_at = None if advertised is None else NodeAddress.read(advertised)
        self.settings = settings
        self.name = self.label = settings.node_name
        self.owner = owner
        self._clock = clock
        self.changing_at_start: list[str] = []
        self.connections_elsewhere = 0  # as the other nodes said with their last beat
        self._connections_here = 0
        self._topics = Topics()
        self._reach = Reach(self._topics)
        self._fronts: Fronts | None = None
        self._server: NamespaceServer | None = None
        self._lookouts: list[Lookout] = []
        self._heard_at = boot_time()
        self._step_at = 0.0
        self._register_fault = ""
        self._read_at = 0.0  # the register, by boot time
        self._is_leaving = False
        self.drain_asked = asyncio.Event()
        """Somebody wants this node to hand over its stores and end."""
        self.replaced: NodeReplaced | None = None
        """Why it ends by itself."""

    # Start

    def open_catalog(self) -> SharedPostgresCatalog:
        """Join the nodes of the namespace. Raises MessagingError."""
        settings, now = self.settings, self._clock.now()
        place = first_place(settings.store_dsns, settings.name, self.owner)
        database = SharedPostgresCatalog(place, self.owner, ALL_NODES, settings.store_count, now)
        try:
            self.register = Register(place, self.owner, self.name, len(settings.store_dsns))
            self._authority: Authority = self.register.prepare(now)
            self.number = self.register.join(self.owner.address)
            # Before the catalog is read: whoever begins a change later finds this node in the register.
            self.changing_at_start = self.register.names_in_turn()
            self._catalog_version = self.register.catalog_version()
        except BaseException:
            database.close()
            raise
        database.allow = self.register.allow_change
        return database

    def first_turn(self, name: str) -> AbstractAsyncContextManager[None]:
        """Before this node has lines."""
        return Assembly(Topics(), dict, list, self.number, self.register).turn(name, TURN_WAIT_S)

    def join(self, places: "list[PostgresPlace]") -> None:
        """On the event loop, when the number of this node is known."""
        hello = Hello(self.number, NODES_MAX, self.settings.name)
        contexts = line_contexts(self._authority, self.number, self._clock.now())
        self.mesh = TcpMesh(hello, contexts, self._topics, self._clock)
        self.assembly = Assembly(self._topics, lambda: self.mesh.lines, self._live, self.number, self.register)
        self.assembly.changing_at_start = self.changing_at_start
        self.peers = AskedPeers(self.assembly, self.number, lambda: len(self._live()), self._look)
        self.others = AskedOthers(self.assembly, self.number, lambda store: self.claiming.owners.of[store])
        self.answers = Answers(self.assembly)
        self.assembly.answering |= {TAKE: self._take, DRAIN: self._drain_asked, LOOK: self._look_asked}
        loop = asyncio.get_running_loop()
        self._places = places

        def seen(sight: Sight) -> None:
            loop.call_soon_threadsafe(self._database_seen, sight)

        dsns = self.settings.store_dsns
        for database in range(min(len(dsns), len(places))):
            own = [place for place in places if place.number % len(dsns) == database]
            self._lookouts.append(Lookout(database, own, self.owner, _unless_closed(seen)))

    def fronts(self, entities: Entities, clock: Clock) -> Fronts:
        self.claiming = Claiming(
            self.number, self.settings.store_count, self._topics, self._served, lambda: self.mesh.lines.values(), clock
        )
        self._fronts = Fronts(entities, self.number, self.claiming.owners, clock, self._topics, NOBODY + 1)
        self.claiming.follow(self._fronts)
        return self._fronts

    def _served(self) -> dict[int, int]:
        """The stores of this node, with their epochs."""
        assert self._server is not None
        pool = self._server.stores
        return {store.index: store.epoch for store in pool.stores if pool.brokers[store.index].is_available}

    def presence(self, admission: Admission) -> "MachineNode":
        """What ticks: this node lives while it does."""
        return self

    async def begin(self, server: "NamespaceServer") -> None:
        """Everything but the ports is ready: own stores from now on. Returns when all of them have an owner, or after a while."""
        self._server = server
        self.answers.start(server)
        pool, fronts = server.stores, self._fronts
        assert fronts is not None
        self.keeper = OwnershipKeeper(
            self.number,
            self.owner.id,
            len(self._lookouts),
            pool,  # type: ignore[arg-type]
            lambda: set(self.mesh.lines),
            self._turn,
            self._hand_over,
            self._is_being_given,
        )
        self._watch = watch = CatalogWatch(self._catalog_version, self.register.catalog_version, self._follow_all)
        pool.moved_in = fronts.mover.arrivals
        pool.when_known = watch.when_known
        for broker in pool.brokers:
            broker.when_loaded = self.claiming.serves_more
        address = await self.mesh.listen(self._listens_at)
        reached_at = self._is_reached_at or address
        if not reached_at.port:
            reached_at = reached_at._replace(port=address.port)
        self.register.address = str(reached_at)
        fields = {
            "node": self.name,
            "number": self.number,
            "listens_for_nodes": str(address),
            "reached_at": str(reached_at),
        }
        log.info("node_joined", extra={"fields": fields})
        loop = asyncio.get_running_loop()
        self.register.start(
            lambda: self._heard_at,
            _unless_closed(lambda seen: loop.call_soon_threadsafe(self._register_seen, seen)),
            _unless_closed(lambda fault: loop.call_soon_threadsafe(self._register_lost, fault)),
            lambda: _unless_closed(loop.call_soon_threadsafe)(self._was_replaced),
        )
        for lookout in self._lookouts:
            lookout.start()
        deadline, intervals = loop.time() + OWNED_WAIT_S, Intervals(loop.time())
        while (missing := self._missing()) and loop.time() < deadline:
            if intervals.is_due(loop.time()):
                _say_missing(missing)
            await asyncio.sleep(0.02)
        if missing:
            _say_missing(missing)

    def _missing(self) -> list[int]:
        """Stores that should have an owner."""
        assert self._server is not None
        stores = self._server.stores.stores
        return [
            store
            for store, owner in enumerate(self.claiming.owners.of)
            if owner == NOBODY and stores[store].is_wanted_up
        ]

    def connections_changed(self, own_count: int) -> None:
        self._connections_here = own_count

    # Time and views

    def tick(self, now: Millis) -> None:
        self._heard_at = boot_time()
        if self._server is None:
            return
        self.claiming.tick(now)
        if self._heard_at >= self._step_at:
            self._step_at = self._heard_at + STEP_EVERY_S
            self._say_facts()
            self.keeper.step()

    def _say_facts(self) -> None:
        """With the next beat."""
        state = DRAINING if self.keeper.is_draining else SERVING
        self.register.facts = Facts(state, self.keeper.unreached, self._connections_here)

    def _live(self) -> list[int]:
        if self._server is None:
            return [self.number]
        return sorted({node.number for node in self.keeper.nodes()} | {self.number})

    def _register_seen(self, seen: Seen) -> None:
        if self._register_fault:
            self._register_fault = ""
            log.info("register_reached", extra={"fields": {"node": self.name}})
        others = [node for node in seen.nodes if node.is_live and node.number != self.number]
        self.connections_elsewhere = sum(node.connections for node in others)
        addresses: dict[int, NodeAddress] = {}
        for node in others:
            with suppress(ArgumentError):
                addresses[node.number] = NodeAddress.read(node.address)
        self.mesh.names = {node.number: node.name for node in seen.nodes}
        self.mesh.follow(addresses)
        self.claiming.owners.downs = seen.downs
        self.keeper.register_seen(seen)
        self._read_at = seen.at
        self._reach.look({node.number: node.name for node in others}, self.mesh.lines)
        self._watch.seen(seen.version)

    def _register_lost(self, fault: str) -> None:
        if fault != self._register_fault:
            self._register_fault = fault
            log.warning("register_not_reached", extra={"fields": {"node": self.name, "reason": fault}})

    def _was_replaced(self) -> None:
        """While this process stood still, or was started slowly. Two with one number would take the lines from each other."""
        log.error("node_replaced", extra={"fields": {"node": self.name, "number": self.number}})
        self.replaced = NodeReplaced(
            f"Another process has the place of node '{self.name}' now, which was not heard of for too long. This one ends."
        )
        self.mesh.close()
        self.drain_asked.set()

    def _database_seen(self, sight: Sight) -> None:
        if not self._is_leaving:
            self.keeper.database_seen(sight)

    async def _follow_all(self) -> bool:
        """Something has changed that this node may not have been told."""
        assert self._server is not None
        is_followed = await self.answers.follower.follow_all(lambda name: self.assembly.turn(name, 0.0))
        self._server.follow_root_rule()
        return is_followed

    # Moves

    async def _hand_over(self, store: int, to: int) -> bool:
        """Locks and message sessions go with it, as far as nodes can be reached. Whether that node serves it."""
        assert self._server is not None
        assert self._fronts is not None
        mover, pool = self._fronts.mover, self._server.stores
        epoch, holding = pool.stores[store].epoch, await self._hold(store)

        def move_out(broker: MessageBroker) -> None:
            mover.move_out(broker, epoch, holding, to, self._clock.now())

        await pool.release(store, move_out)
        with suppress(MessagingError):
            return await self._tell_to_take(to, store)
        return False

    def _is_being_given(self, store: int) -> bool:
        """Whether the node that had it is reached, and has still to say that it has given it to some node: before that it sends what is
        locked, and before it begins it lets everybody wait."""
        assert self._fronts is not None
        owner = self.claiming.claimant_of(store)
        is_claimed = owner != self.number and self._fronts.peers.is_reached(owner)
        return is_claimed or self._fronts.is_given_away(store)

    async def _hold(self, store: int) -> Set[int]:
        """Everybody waits with what concerns a store. Returns the nodes that do."""
        assert self._server is not None
        assert self._fronts is not None
        answered, epoch = asyncio.Event(), self._server.stores.stores[store].epoch
        holding = self._fronts.mover.hold(store, epoch, self._clock.now(), answered.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(HOLD_WAIT_S):
                await answered.wait()
        return {*holding}

    def _turn(self, name: str) -> AbstractAsyncContextManager[None]:
        return self.assembly.turn(name, TURN_WAIT_S)

    async def _tell_to_take(self, node: int, store: int) -> bool:
        answers = await self.assembly.ask(TAKE, {"store": store}, HANDED_OVER_S, to=node)
        return answers[node] is True

    async def _take(self, details: dict[str, Any]) -> bool:
        """A store was released for this node. Whether it serves it."""
        assert self._server is not None
        store, pool = details["store"], self._server.stores
        self.keeper.given(store)
        deadline = boot_time() + HANDED_OVER_S
        while not pool.brokers[store].is_available and boot_time() < deadline and not self.keeper.is_draining:
            self._lookouts[store % len(self._lookouts)].look_soon()
            await asyncio.sleep(0.05)
        return bool(pool.brokers[store].is_available)

    async def _drain_asked(self, _: dict[str, Any]) -> None:
        self.drain_asked.set()

    async def _look_asked(self, _: dict[str, Any]) -> None:
        """Something in the register has changed."""
        await self._look()

    async def _look(self) -> bool:
        """Beat at once. Whether that is done and what there is in the register is known, which takes a while at most."""
        asked_at = boot_time()
        self.register.beat_soon()
        while self._read_at < asked_at and boot_time() < asked_at + LOOKED_WAIT_S:
            await asyncio.sleep(0.01)
        return self._read_at >= asked_at

    async def _let_all_look(self) -> None:
        await self._look()
        await self.assembly.ask_each([node for node in self._live() if node != self.number], LOOK, {}, SOON_S)

    # Pages

    def listed(self) -> list[dict[str, Any]]:
        stores: dict[int, list[int]] = {}
        for store, owner in enumerate(self.claiming.owners.of):
            stores.setdefault(owner, []).append(store)
        reached = {*self.mesh.lines, self.number}
        live = {node.number: node for node in self.keeper.nodes()}
        # What is left of one that is gone is its line in the register.
        gone = [
            node._replace(state=GONE, connections=0, unreached=())
            for node in self.keeper.gone()
            if node.number not in live
        ]
        return [
            {
                "name": node.name,
                "number": node.number,
                "address": node.address,
                "state": node.state,
                "stores": stores.get(node.number, []) if node.number in live else [],
                "connections": node.connections,
                "process": node.process,
                "unreached": list(node.unreached),
                "is_reached": node.number in live and node.number in reached,
                "age_s": round(node.age_s, 1),
            }
            for node in sorted([*live.values(), *gone], key=lambda node: node.name)
        ]

    def _named(self, name: str) -> int:
        for node in self.keeper.nodes():
            if node.name == name:
                return node.number
        raise NoSuchNode(f"No node '{name}' serves this namespace. 'twinbus node list' shows those that do.")

    async def drain(self, name: str) -> None:
        number = self._named(name)
        if number == self.number:
            self.drain_asked.set()
        else:
            answer = (await self.assembly.ask(DRAIN, {}, HANDED_OVER_S, to=number))[number]
            if isinstance(answer, MessagingError):
                raise answer

    async def move(self, store: int, name: str | None) -> None:
        if store >= self.settings.store_count:
            raise ArgumentError(
                f"There is no messaging store {store}; the last one is {self.settings.store_count - 1}."
            )
        if name is not None:
            self._named(name)
        await asyncio.to_thread(self.register.pin, store, name)

    async def switch(self, store: int, *, is_up: bool) -> bool:
        # Written down first, and nodes act on what they read there: told by word, one would be put right by what it read before.
        await asyncio.to_thread(self.register.switch, store, is_up=is_up)
        log.info("store_switched", extra={"fields": {"store": store, "to": "up" if is_up else "down"}})
        await self._let_all_look()
        deadline = boot_time() + SWITCH_WAIT_S
        while not (is_done := self._is_served(store) is is_up) and boot_time() < deadline:
            await asyncio.sleep(0.02)
        return is_done

    def _is_served(self, store: int) -> bool:
        """The claim of a node that is gone stays."""
        return self.claiming.owners.of[store] in self._live()

    def not_ready(self) -> str:
        if self.keeper.is_draining or self.drain_asked.is_set():
            return "this node is about to end"
        if missing := self._reach.cut_off_from():
            return f"this node does not reach {', '.join(missing)}"
        served_at = {*self.mesh.lines, self.number}.intersection(self.claiming.owners.of)
        return "" if served_at else "this node reaches no messaging store that is up"

    def figures(self) -> NodeFigures:
        assert self._server is not None
        now, epochs = boot_time(), self.claiming.own_epochs
        leases = {store: self._server.stores.stores[store].lease for store in epochs}
        trusted = {
            store: max(0.0, lease.until - now) for store, lease in leases.items() if isinstance(lease, HeldLease)
        }
        return NodeFigures(
            self.name,
            epochs,
            trusted,
            self.keeper.takeovers,
            self.keeper.moves,
            self.register.times_fenced,
            self.mesh.sent_bytes,
            self.mesh.received_bytes,
            dict(self._reach.round_trips_s),
        )

    # End

    async def hand_over(self) -> None:
        """Other nodes get the stores, and no connections come here."""
        if self._server is not None and not self.keeper.is_draining:
            log.info("draining", extra={"fields": {"node": self.name}})
            self.keeper.is_draining = True
            self._say_facts()
            # Before anybody gets a store: one that is pinned to this node would come back at once, and another node that leaves too would
            # be given some.
            await self._let_all_look()
            await self.keeper.drain()
            log.info("drained", extra={"fields": {"node": self.name, "moves": self.keeper.moves}})

    def close(self) -> None:
        """Blocks for a moment: the others need not wait for the end of this node."""
        self._is_leaving = True
        for lookout in self._lookouts:
            lookout.close()
        if hasattr(self, "mesh"):
            self.mesh.close()
        self.register.leave()


def _say_missing(stores: list[int]) -> None:
    log.warning("stores_without_owner", extra={"fields": {"stores": ",".join(map(str, stores))}})


def _unless_closed(call: Callable[[Any], object]) -> Callable[[Any], None]:
    """For threads that may outlive the loop by a moment."""

    def called(value: Any) -> None:
        with suppress(RuntimeError):
            call(value)

    return called
