"""A change is answered when it was made for every fragment, also if a node is taken for dead in the middle of it and comes back."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.nodes.ways import Way
from twinbus.errors import FragmentUnavailable
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription
from twinbus.server.nodes.answers import Answers
from twinbus.server.nodes.leash import Answering
from twinbus.server.nodes.membership import AVAILABLE, DELETE, AskedPeers
from twinbus.server.nodes.switchboard import FOLLOW, Words
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import EachReply, Simulation

STORES = 4
NODES = [0, 1, 2]
QUEUE = QueueDescription("q", enable_partitioning=True)
TOPIC = TopicDescription("t", enable_partitioning=True)


class Nodes:
    """Of which each has some stores. What is asked for is asked for at node 0."""

    def __init__(self, file: Path) -> None:
        sim = Simulation(STORES)
        assert isinstance(sim, ClusterSimulation)
        self.sim = sim
        self.catalogs = [Catalog.in_file(file, "shop", sim.now) for _ in NODES]
        self.ways: list[Way] = []
        turns: dict[str, asyncio.Lock] = {}
        for node, catalog in zip(sim.nodes, self.catalogs, strict=True):
            way = Way(node.number, self.ways, turns)
            self.ways.append(way)
            server: Any = SimpleNamespace(
                catalog=catalog, entities=node.entities, clock=sim.clock, stores=SimpleNamespace(brokers=node.brokers)
            )
            Answers(way).start(server)
        peers = AskedPeers(self.ways[0], 0, lambda: len(NODES))
        self.control = ControlPlane(self.catalogs[0], sim.nodes[0].entities, sim.clock, peers)

    async def do(self, work: Any) -> Any:
        """While the stores do what they are asked for."""
        task = asyncio.ensure_future(work)
        while not task.done():
            self.sim.run()
            await asyncio.wait({task}, timeout=0.001)
        self.sim.run()
        return task.result()

    def take_for_dead(self, node: int) -> None:
        """When it has said which of its stores work, and before it is asked for anything else."""
        self.ways[0].after = lambda what: self.ways[0].gone.add(node) if what == AVAILABLE else None

    def come_back(self) -> None:
        self.ways[0].gone.clear()
        self.ways[0].after = lambda what: None

    def found(self, path: str) -> list[int]:
        """The nodes at which it runs."""
        return [node.number for node in self.sim.nodes if node.entities.name_at(path) is not None]

    def send(self, node: int, path: str) -> EachReply:
        """To all of its fragments in turn."""
        entity, reply = self.sim.nodes[node].fronts.find(path), EachReply()
        assert entity is not None
        entity.send_each([make_message(str(number)) for number in range(64)], self.sim.now, reply)
        self.sim.run()
        return reply


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    monkeypatch.setattr(Simulation, "node_count", len(NODES))
    nodes = Nodes(tmp_path / "catalog.db")
    yield nodes
    for catalog in nodes.catalogs:
        catalog.close()


async def test_what_is_changed_at_one_node_is_known_to_all_of_them(nodes: Nodes) -> None:
    await nodes.do(nodes.control.create_queue(QUEUE))
    assert nodes.found("q") == NODES
    assert all(len(nodes.send(node, "q").good) == 64 for node in NODES)
    await nodes.do(nodes.control.delete("q"))
    assert nodes.found("q") == []


async def test_nothing_is_deleted_while_a_node_that_has_a_part_of_it_is_taken_for_dead(nodes: Nodes) -> None:
    """It would take messages, and lose them when it learns of the deletion."""
    await nodes.do(nodes.control.create_queue(QUEUE))
    nodes.take_for_dead(2)
    with pytest.raises(FragmentUnavailable):
        await nodes.do(nodes.control.delete("q"))
    assert all(catalog.find("q") is not None for catalog in nodes.catalogs)
    nodes.come_back()
    assert nodes.found("q") == NODES
    assert all(len(nodes.send(node, "q").good) == 64 for node in NODES)
    await nodes.do(nodes.control.delete("q"))
    assert nodes.found("q") == []


Change = Callable[[ControlPlane], Any]
CHANGES: dict[str, Change] = {
    "queue": lambda control: control.create_queue(QUEUE),
    "subscription": lambda control: control.create_subscription(SubscriptionDescription("t", "new")),
    "update": lambda control: control.update(SubscriptionDescription("t", "s", max_delivery_count=3)),
    "rule": lambda control: control.create_rule("t", "s", RuleDescription("new")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_nothing_is_changed_while_a_node_that_has_a_part_of_it_is_taken_for_dead(
    nodes: Nodes, change: Change
) -> None:
    """It would copy nothing to a new subscription, or to whom a rule says, of what it is sent."""
    await nodes.do(nodes.control.create_topic(TOPIC))
    await nodes.do(nodes.control.create_subscription(SubscriptionDescription("t", "s")))
    nodes.take_for_dead(2)
    with pytest.raises(FragmentUnavailable):
        await nodes.do(change(nodes.control))
    nodes.come_back()
    for path in ("q", "t/Subscriptions/new"):
        assert nodes.found(path) == []
    assert all(node.entities.subscription("t", "s").description.max_delivery_count == 10 for node in nodes.sim.nodes)


async def test_a_node_of_an_earlier_release_is_asked_for_what_it_does_not_say(nodes: Nodes) -> None:
    for what in (FOLLOW, DELETE):
        done = nodes.ways[2].answering[what]

        async def say_nothing(details: Words, done: Answering = done) -> None:
            await done(details)

        nodes.ways[2].answering[what] = say_nothing
    await nodes.do(nodes.control.create_queue(QUEUE))
    await nodes.do(nodes.control.delete("q"))
    assert nodes.found("q") == []


async def test_what_has_no_part_at_a_node_that_is_taken_for_dead_is_changed(nodes: Nodes) -> None:
    entry = await nodes.do(nodes.control.create_queue(QueueDescription("plain")))
    nodes.take_for_dead(next(node for node in NODES[1:] if node != nodes.sim.owners[entry.first_store]))
    await nodes.do(nodes.control.update(QueueDescription("plain", max_delivery_count=3)))
    await nodes.do(nodes.control.delete("plain"))
