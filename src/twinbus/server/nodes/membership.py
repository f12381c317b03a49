"""What makes a namespace's server one of several: which of them it is, and how it reaches the others.

It asks them through the supervisor (`leash`), for changes to entities (`AskedPeers`) and for pages about the whole namespace
(`AskedOthers`), and it says in shared memory that it lives and how many connections it has (`Presence`).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from twinbus.broker.entity.entities import Entities
from twinbus.clock import Clock, Millis
from twinbus.cluster.fronts.fronts import Fronts
from twinbus.cluster.lines.frames import Hello
from twinbus.cluster.lines.line import Topics
from twinbus.errors import FragmentUnavailable, MessagingError
from twinbus.http.own.store_records import STORES, StoreRecord
from twinbus.management.control_plane import WAIT_FOR_TURN_S
from twinbus.management.own_process import WAIT_FOR_FRAGMENTS_S
from twinbus.server.listening.admission import Admission
from twinbus.server.nodes.leash import Answering, Leash
from twinbus.server.nodes.mesh import Mesh
from twinbus.server.nodes.seat import Seat, owner_of
from twinbus.server.nodes.shared_counts import AMQP, BEAT, OPEN, SharedCounts
from twinbus.server.nodes.switchboard import FOLLOW, Words
from twinbus.server.nodes.totals import PATIENCE_S as TOTALS_PATIENCE_S

if TYPE_CHECKING:
    from twinbus.server.namespace import NamespaceServer

AVAILABLE, DELETE, ACCESS_RULES, IDLE, CLOSE = "available", "delete", "access-rules", "idle", "close-if-idle"
"""Questions, beside `FOLLOW` and those of the pages."""
SOON_S = 2.0
"""How long a page waits for nodes that are silent: a probe that asks for it gives up soon after."""
SLOW_S = 120.0
"""For what takes its time, such as bringing a log to Parquet."""
PATIENCE_S: Mapping[str, float] = {"flush": SLOW_S, "switch": 30.0}
TOTALS_WAIT_S = 3 * TOTALS_PATIENCE_S
"""Somebody else may have asked before."""

log = logging.getLogger(__name__)


class Asking(Protocol):
    """The way to the other nodes. See `Leash`."""

    answering: dict[str, Answering]
    changing_at_start: list[str]
    """Names whose turn somebody had when this node joined: whoever has it may not know this node, and the catalog that it reads may be
    from before the change."""

    @property
    def nodes(self) -> list[int]: ...

    async def ask(self, what: str, details: Words, timeout_s: float, to: int | None = None) -> dict[int, Any]: ...

    async def ask_each(self, nodes: Sequence[int], what: str, details: Words, timeout_s: float) -> list[Any]: ...

    def turn(self, name: str, wait_s: float) -> AbstractAsyncContextManager[None]: ...


async def _knows_all() -> bool:
    return True


class AskedPeers:
    """See `Peers`. `index`: of this node; `node_count`: of all that there should be; `look`: find out which there are, and whether that is
    known now."""

    def __init__(
        self,
        asking: Asking,
        index: int,
        node_count: Callable[[], int],
        look: Callable[[], Awaitable[bool]] = _knows_all,
    ) -> None:
        self._leash = asking
        self._index = index
        self._node_count = node_count
        self._look = look

    def turn(self, name: str) -> AbstractAsyncContextManager[None]:
        return self._leash.turn(name, WAIT_FOR_TURN_S)

    async def available_stores(self) -> set[int]:
        return await self._stores(AVAILABLE, {})

    async def follow(self, path: str) -> set[int]:
        return await self._stores(FOLLOW, {"path": path})

    async def delete(self, path: str) -> set[int]:
        return await self._stores(DELETE, {"path": path})

    async def _stores(self, what: str, details: dict[str, Any]) -> set[int]:
        answers = await self._all(what, details)
        # A node of an earlier release does not say what it has when it has done something. If it is gone by now, it has nothing.
        silent = [node for node, stores in answers.items() if stores is None]
        for node in silent:
            del answers[node]
            answers |= await self._leash.ask(AVAILABLE, {}, WAIT_FOR_FRAGMENTS_S, to=node)
        _raise_first(answers)
        return {store for stores in answers.values() for store in stores}

    async def follow_access_rules(self) -> None:
        await self._all(ACCESS_RULES, {})

    @property
    def is_first(self) -> bool:
        return min(self._leash.nodes, default=0) == self._index

    async def is_idle(self, path: str) -> bool:
        return await self._look() and await self._is_true_of_all(IDLE, path)

    async def close_if_idle(self, path: str) -> bool:
        return await self._is_true_of_all(CLOSE, path)

    async def _is_true_of_all(self, what: str, path: str) -> bool:
        answers = await self._all(what, {"path": path})
        return len(answers) == self._node_count() - 1 and all(answers.values())

    async def _all(self, what: str, details: dict[str, Any]) -> dict[int, Any]:
        """Raises the first error of a node."""
        answers = await self._leash.ask(what, details, WAIT_FOR_FRAGMENTS_S)
        _raise_first(answers)
        return answers


def _raise_first(answers: Mapping[int, Any]) -> None:
    for answer in answers.values():
        if isinstance(answer, MessagingError):
            raise answer


class AskedOthers:
    """See `OtherNodes`. `owner_of`: the node that serves a store."""

    def __init__(self, asking: Asking, index: int, owner_of: Callable[[int], int]) -> None:
        self._leash = asking
        self._index = index
        self._owner_of = owner_of

    async def ask_all(self, what: str, details: dict[str, Any]) -> dict[int, Any]:
        answers: dict[int, Any] = {}
        # Each for itself, so that one that is silent does not cost the answers of the others.
        nodes = [node for node in self._leash.nodes if node != self._index]
        for node, answer in zip(
            nodes, await self._leash.ask_each(nodes, what, details, PATIENCE_S.get(what, SOON_S)), strict=True
        ):
            if isinstance(answer, MessagingError):
                log.warning("node_did_not_answer", extra={"fields": {"node": node, "reason": str(answer)}})
            answers[node] = answer
        return answers

    async def ask_owner(self, store: int, what: str, details: dict[str, Any]) -> Any:
        owner: int | None = self._owner_of(store)
        if owner not in self._leash.nodes:
            owner = await self._holder_of(store)
        if owner is None:
            raise FragmentUnavailable(f"The process that serves messaging store {store} is not there now. Try again.")
        answer = (await self._leash.ask(what, details, PATIENCE_S.get(what, SOON_S), to=owner))[owner]
        if isinstance(answer, MessagingError):
            raise answer
        return answer

    async def _holder_of(self, store: int) -> int | None:
        """A store that is switched off is served by nobody, and is at one node nevertheless."""
        for node, records in (await self.ask_all(STORES, {})).items():
            if isinstance(records, list) and any(record["index"] == store for record in records):
                return node
        return None


class Presence:
    """Ticks with everything else, so it stops when the loop does."""

    def __init__(self, counts: SharedCounts, node: int, admission: Admission) -> None:
        self._counts = counts
        self._node = node
        self._admission = admission

    def tick(self, _: Millis) -> None:
        self._counts.put(self._node, OPEN, self._admission.socket_count)
        self._counts.put(self._node, BEAT, self._counts.get(self._node, BEAT) + 1)


class Membership:
    def __init__(self, seat: Seat, leash: Leash, counts: SharedCounts, lock: int, clock: Clock) -> None:
        """`clock`: that of the namespace, since what comes on lines is decided about at its time."""
        self.seat = seat
        self.leash = leash
        self.lock = lock
        self.label = str(seat.index)
        self.numbers = seat.numbers
        self.stores = seat.stores
        self.peers = AskedPeers(leash, seat.index, lambda: seat.count)
        self.others = AskedOthers(leash, seat.index, lambda store: owner_of(store, seat.count))
        self._topics = Topics()
        hello = Hello(seat.index, seat.count, seat.settings.name)
        self.mesh = Mesh(hello, self._topics, clock, lambda peer: leash.say({"line": peer}))
        self._counts = counts

    def fronts(self, entities: Entities, clock: Clock) -> Fronts:
        """What gateways of this node see of entities of which other nodes have a part."""
        owners = [owner_of(store, self.seat.count) for store in range(self.seat.settings.store_count)]
        return Fronts(entities, self.seat.index, owners, clock, self._topics, self.seat.count)

    async def begin(self, _: "NamespaceServer") -> None:
        """The stores are open. Only now are there lines to other nodes: they send what waited for this one as soon as they reach it,
        and a store that is not open yet would refuse it."""
        self.mesh.open()

    async def metrics_of_all(self, wanted: Sequence[str], stores: Sequence[StoreRecord]) -> bytes:
        return (await self.leash.totals({"wanted": wanted, "stores": stores}, TOTALS_WAIT_S)).encode()

    @property
    def changing_at_start(self) -> Sequence[str]:
        return self.leash.changing_at_start

    @property
    def connections_elsewhere(self) -> int:
        return self._counts.sum_of_others(self.seat.index, AMQP)

    def connections_changed(self, own_count: int) -> None:
        self._counts.put(self.seat.index, AMQP, own_count)

    def presence(self, admission: Admission) -> Presence:
        return Presence(self._counts, self.seat.index, admission)
