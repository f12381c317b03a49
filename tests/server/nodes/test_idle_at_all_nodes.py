"""An entity that nobody uses is deleted at all nodes or at none, and what a node took of it is not lost."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.nodes.ways import Way
from twinbus.broker.entity.entities import Entities
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, InternalError, MessagingError, OperationInProgress, ServerBusy
from twinbus.management import own_process
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane
from twinbus.management.own_process import restore
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.server.nodes import answers as answers_module
from twinbus.server.nodes.answers import Answers
from twinbus.server.nodes.membership import CLOSE, DELETE, IDLE, AskedPeers
from twinbus.server.nodes.switchboard import FOLLOW
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import EachReply, Simulation

IDLE_AFTER: Millis = 300_000
NODES = [0, 1, 2]


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
        self._file = file
        self._turns: dict[str, asyncio.Lock] = {}
        self.ways: list[Way] = []
        for node, sim in zip(NODES, self.sims, strict=True):
            self.ways.append(Way(node, self.ways, self._turns))
            self._start(node)
            self.send(node, f"old{node}")
            sim.advance(IDLE_AFTER)
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

    def _start(self, node: int) -> None:
        sim, catalog = self.sims[node], self.catalogs[node]
        restore(catalog, sim.entities, sim.now, self.ways[node].changing_at_start)
        sim.run()
        server: Any = SimpleNamespace(
            catalog=catalog, entities=sim.entities, clock=sim.clock, stores=SimpleNamespace(brokers=[])
        )
        Answers(self.ways[node]).start(server)

    def restart(self, node: int) -> None:
        """Its process ends, and another one reads the catalog."""
        sim = self.sims[node]
        self.catalogs[node].close()
        self.catalogs[node] = Catalog.in_file(self._file, "shop", sim.now)
        sim.entities = Entities(sim.brokers)
        sim.restart()
        changing = [name for name, turn in self._turns.items() if turn.locked()]
        self.ways[node].changing_at_start = changing
        self._start(node)

    def send(self, node: int, message_id: str = "m") -> EachReply:
        sim = self.sims[node]
        return sim.send(sim.entities.queue("q"), make_message(message_id))

    def messages(self, node: int) -> list[str]:
        sim = self.sims[node]
        return sim.receiver(sim.entities.queue("q").main, 9).ids()

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


@pytest.mark.parametrize("moment", [IDLE, CLOSE, FOLLOW])
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
        assert nodes.found("q") == NODES
        assert nodes.messages(node) == [f"old{node}", "m"]


@pytest.mark.parametrize("moment", [IDLE, CLOSE, FOLLOW])
@pytest.mark.parametrize("node", NODES[1:])
async def test_what_is_deleted_for_want_of_use_while_a_node_is_restarted_is_gone_or_stays_with_all_that_was_in_it(
    nodes: Nodes, moment: str, node: int
) -> None:
    replies: list[EachReply] = []

    def restart(what: str) -> None:
        if what == moment:
            nodes.restart(node)
            if nodes.found("q").count(node):
                replies.append(nodes.send(node))

    nodes.ways[0].after = restart
    with suppress(MessagingError):
        await nodes.do(nodes.control.delete_if_idle("q"))
    taken = sum([len(reply.good) for reply in replies])
    assert nodes.found("q") in ([], NODES)
    if not nodes.found("q"):
        assert not taken
    else:
        for each in NODES:
            assert nodes.messages(each) == [f"old{each}", *["m"] * (taken if each == node else 0)]


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
    store = nodes.sims[0].entities.queue("q").main.fragments[0].broker.index
    nodes.ways[0].after = lambda what: nodes.sims[0].lose_store(store) if what == CLOSE else None
    with pytest.raises(MessagingError):
        await nodes.do(nodes.control.delete_if_idle("q"))
    nodes.sims[0].return_store(store)
    assert [len(nodes.send(node).good) for node in NODES] == [1, 1, 1]
    assert nodes.messages(0) == ["old0", "m"]


async def test_what_the_catalog_cannot_forget_stays_at_all_nodes_with_all_that_was_in_it(nodes: Nodes) -> None:
    refuse = "CREATE TEMP TRIGGER refused BEFORE DELETE ON entities BEGIN SELECT RAISE(FAIL, 'the disk is full'); END"
    nodes.catalogs[0]._database.rows(refuse)
    with pytest.raises(InternalError, match="disk is full"):
        await nodes.do(nodes.control.delete_if_idle("q"))
    assert [len(nodes.send(node).good) for node in NODES] == [1, 1, 1]
    assert [nodes.messages(node) for node in NODES] == [[f"old{node}", "m"] for node in NODES]


async def test_a_node_that_starts_while_something_is_changed_serves_it_when_that_is_over(nodes: Nodes) -> None:
    """Whoever changes it may not know of the node, and so not tell it."""
    async with nodes.ways[0].turn("q", 0.0):
        nodes.restart(1)
        assert [type(error) for error in nodes.send(1).errors.values()] == [ServerBusy]
    await nodes.do(until(lambda: not nodes.sims[1].entities.is_leaving("q")))
    assert len(nodes.send(1).good) == 1


@pytest.mark.parametrize("node", NODES)
async def test_what_a_store_cannot_delete_for_want_of_use_is_closed_until_it_can(
    nodes: Nodes, node: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog does not have it any more: what it took would be lost."""
    monkeypatch.setattr(own_process, "AGAIN_S", 0.0)
    monkeypatch.setattr(answers_module, "BEGUN_S", 0.0)
    sim = nodes.sims[node]
    port = sim.ports[sim.entities.queue("q").main.fragments[0].broker.index]

    def fail(what: str) -> None:
        if what == CLOSE:
            port.is_down = True

    nodes.ways[0].after = fail
    with suppress(FragmentUnavailable):
        await nodes.do(nodes.control.delete_if_idle("q"))
    assert nodes.catalogs[0].find("q") is None
    assert nodes.found("q") == [node]
    nodes.ways[0].after = lambda what: None
    sim.return_store(port_index := sim.ports.index(port))
    assert sim.brokers[port_index].is_available
    await nodes.do(until(lambda: not nodes.found("q")))


async def test_a_deletion_that_fails_at_one_node_leaves_the_entity_at_all_of_them(nodes: Nodes) -> None:
    store = nodes.sims[2].entities.topic("t").main_fragments[0].broker.index
    nodes.sims[2].lose_store(store)
    for change in (nodes.control.delete("q"), nodes.control.delete("t"), nodes.control.delete_subscription("t", "s")):
        with pytest.raises(FragmentUnavailable):
            await nodes.do(change)
    nodes.sims[2].return_store(store)
    for path in ("q", "t", "t/Subscriptions/s"):
        assert nodes.found(path) == NODES
    assert [len(nodes.send(node).good) for node in NODES] == [1, 1, 1]


async def test_a_node_that_has_deleted_its_part_for_somebody_who_ended_has_the_entity_again(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers_module, "BEGUN_S", 0.0)
    async with nodes.ways[0].turn("q", 0.0):
        await nodes.do(nodes.ways[1].answering[DELETE]({"path": "q"}))
        assert nodes.found("q") == [0, 2]
    await nodes.do(until(lambda: nodes.found("q") == NODES))
    nodes.run()
    assert len(nodes.send(1).good) == 1


async def test_a_node_takes_uses_again_when_who_asked_has_ended(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers_module, "BEGUN_S", 0.0)
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
