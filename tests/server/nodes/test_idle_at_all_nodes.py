"""An entity that nobody uses is deleted at all nodes or at none, and what a node took of it is not lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.clock import Millis
from twinbus.errors import MessagingError, OperationInProgress, ServerBusy
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane, restore
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.server.nodes import answers as answers_module
from twinbus.server.nodes.answers import Answers
from twinbus.server.nodes.leash import Answering
from twinbus.server.nodes.membership import CLOSE, DELETE, IDLE, AskedPeers
from twinbus.server.nodes.switchboard import FOLLOW, Words
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import EachReply, Simulation

IDLE_AFTER: Millis = 300_000
NODES = [0, 1, 2]


class Way:
    """From one node to the others, and the turns of all. See `Asking`."""

    def __init__(self, node: int, ways: "list[Way]", turns: dict[str, asyncio.Lock]) -> None:
        self.nodes = NODES
        self.answering: dict[str, Answering] = {}
        self.asked: list[str] = []
        self.after: Callable[[str], object] = lambda what: None
        """Called when all have answered, and the asker does not know it yet."""
        self._node = node
        self._ways = ways
        self._turns = turns

    async def ask(self, what: str, details: Words, timeout_s: float, to: int | None = None) -> dict[int, Any]:
        self.asked.append(what)
        answers: dict[int, Any] = {}
        for way in self._ways:
            if way is not self:
                try:
                    answers[way._node] = await way.answering[what](details)
                except MessagingError as error:
                    answers[way._node] = error
        self.after(what)
        await asyncio.sleep(0)
        return answers

    async def ask_each(self, nodes: Sequence[int], what: str, details: Words, timeout_s: float) -> list[Any]:
        raise AssertionError

    @asynccontextmanager
    async def turn(self, name: str, wait_s: float) -> AsyncIterator[None]:
        async with self._turns.setdefault(name, asyncio.Lock()):
            yield


class Nodes:
    """Three that have a queue `q`, a topic `t` and a subscription `t/Subscriptions/s`, idle for as long as they may be. Each has fragments
    of its own, as of a partitioned entity."""

    def __init__(self, file: Path) -> None:
        self.sims = [Simulation() for _ in NODES]
        first = Catalog.in_file(file, "shop", self.sims[0].now)
        for description in (QueueDescription("q", auto_delete_on_idle=IDLE_AFTER), TopicDescription("t")):
            first.add(first.new_id(), description, self.sims[0].now)
        first.add(first.new_id(), SubscriptionDescription("t", "s", auto_delete_on_idle=IDLE_AFTER), self.sims[0].now)
        self.catalogs = [first, *(Catalog.in_file(file, "shop", self.sims[0].now) for _ in NODES[1:])]
        turns: dict[str, asyncio.Lock] = {}
        self.ways: list[Way] = []
        for node, sim, catalog in zip(NODES, self.sims, self.catalogs, strict=True):
            restore(catalog, sim.entities, sim.now)
            sim.run()
            sim.advance(IDLE_AFTER)
            way = Way(node, self.ways, turns)
            self.ways.append(way)
            server: Any = SimpleNamespace(
                catalog=catalog, entities=sim.entities, clock=sim.clock, stores=SimpleNamespace(brokers=[])
            )
            Answers(way).start(server)
        self.control = ControlPlane(
            first, self.sims[0].entities, self.sims[0].clock, AskedPeers(self.ways[0], 0, lambda: len(NODES))
        )

    async def do(self, work: Any) -> Any:
        """While the stores do what they are asked for."""
        task = asyncio.ensure_future(work)
        while not task.done():
            self.run()
            await asyncio.wait({task}, timeout=0.001)
        return task.result()

    def run(self) -> None:
        for sim in self.sims:
            sim.run()

    def send(self, node: int) -> EachReply:
        sim = self.sims[node]
        return sim.send(sim.entities.queue("q"), make_message("m"))

    def found(self, path: str) -> list[int]:
        """The nodes at which it runs."""
        return [node for node in NODES if self.sims[node].entities.name_at(path) is not None]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path / "catalog.db")
    yield nodes
    for catalog in nodes.catalogs:
        catalog.close()


@pytest.mark.parametrize("path", ["q", "t/Subscriptions/s"])
async def test_what_nobody_uses_is_deleted_at_all_nodes(nodes: Nodes, path: str) -> None:
    assert await nodes.do(nodes.control.delete_if_idle(path))
    assert nodes.found(path) == []


@pytest.mark.parametrize("moment", [IDLE, CLOSE, DELETE])
@pytest.mark.parametrize("node", NODES)
async def test_no_message_that_a_node_took_is_deleted_for_want_of_use(nodes: Nodes, moment: str, node: int) -> None:
    replies: list[EachReply] = []

    def use(what: str) -> None:
        if what == moment and nodes.sims[node].entities.find("q") is not None:
            replies.append(nodes.send(node))

    nodes.ways[0].after = use
    is_deleted = await nodes.do(nodes.control.delete_if_idle("q"))
    taken = sum([len(reply.good) for reply in replies])
    assert is_deleted is (taken == 0)
    if is_deleted:
        assert nodes.found("q") == []
    else:
        sim = nodes.sims[node]
        assert nodes.found("q") == NODES
        assert sim.receiver(sim.entities.queue("q").main, 1).ids() == ["m"]


async def test_a_node_that_waits_for_the_deletion_refuses_uses_and_says_to_try_again(nodes: Nodes) -> None:
    errors: list[MessagingError] = []
    nodes.ways[0].after = lambda what: errors.extend(nodes.send(1).errors.values()) if what == CLOSE else None
    assert await nodes.do(nodes.control.delete_if_idle("q"))
    assert [type(error) for error in errors] == [ServerBusy]


async def test_what_is_in_use_at_one_node_is_open_at_all_of_them_afterwards(nodes: Nodes) -> None:
    nodes.ways[0].after = lambda what: nodes.send(0) if what == CLOSE else None
    assert not await nodes.do(nodes.control.delete_if_idle("q"))
    assert [len(nodes.send(node).good) for node in NODES] == [1, 1, 1]


async def test_what_is_known_to_be_in_use_is_closed_nowhere(nodes: Nodes) -> None:
    nodes.send(2)
    assert not await nodes.do(nodes.control.delete_if_idle("q"))
    assert nodes.ways[0].asked == ["available", IDLE]


async def test_what_cannot_be_deleted_is_open_again(nodes: Nodes) -> None:
    def lose(what: str) -> None:
        if what == CLOSE:
            nodes.sims[0].lose_store(nodes.sims[0].entities.queue("q").main.fragments[0].broker.index)

    nodes.ways[0].after = lose
    with pytest.raises(MessagingError):
        await nodes.do(nodes.control.delete_if_idle("q"))
    assert len(nodes.send(1).good) == 1


async def test_a_node_takes_uses_again_when_who_asked_has_ended(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers_module, "CLOSED_S", 0.0)
    async with nodes.ways[0].turn("q", 0.0):
        assert await nodes.ways[1].answering[CLOSE]({"path": "q"})
        for _ in range(10):
            await asyncio.sleep(0)
        assert nodes.sims[1].entities.is_leaving("q")
    await nodes.do(until(lambda: not nodes.sims[1].entities.is_leaving("q")))
    assert len(nodes.send(1).good) == 1


async def test_a_deletion_that_comes_too_late_is_refused(nodes: Nodes) -> None:
    deleted = {"path": "q", "is_closed": True}
    assert await nodes.ways[1].answering[CLOSE]({"path": "q"})
    await nodes.ways[1].answering[FOLLOW]({"path": "q"})
    with pytest.raises(OperationInProgress):
        await nodes.ways[1].answering[DELETE](deleted)
    assert nodes.found("q") == NODES


async def test_a_deletion_that_a_node_of_an_earlier_release_asks_for_is_done(nodes: Nodes) -> None:
    await nodes.do(nodes.ways[1].answering[DELETE]({"path": "q"}))
    assert nodes.found("q") == [0, 2]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0)
