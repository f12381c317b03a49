"""What another process has changed in the catalog is found again, all of it, and undoes nothing that was changed here meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from twinbus.errors import OperationInProgress
from twinbus.management.access_control import ACCESS
from twinbus.management.catalog import Catalog
from twinbus.management.follower import Follower
from twinbus.management.own_process import restore, restore_entity
from twinbus.model.descriptions import (
    AuthorizationRule,
    QueueDescription,
    Right,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Simulation

NOW = 1_000


class Names:
    """Turns, and the names that they were taken of."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.busy: set[str] = set()

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        if name in self.busy:
            raise OperationInProgress("Somebody else has it.")
        self.taken.append(name)
        yield


async def follow_all(follower: Follower, sim: Simulation, names: Names) -> bool:
    """While the stores of the simulation do what they are asked for."""
    following = asyncio.ensure_future(follower.follow_all(names.turn))
    while not following.done():
        sim.run()
        await asyncio.wait({following}, timeout=0.001)
    return following.result()


def test_what_is_new_changed_or_gone_is_told_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"
    writer = Catalog.in_file(file, "shop", NOW)
    for name in ("kept", "changed", "gone"):
        writer.add(writer.new_id(), QueueDescription(name), NOW)
    writer.add(writer.new_id(), TopicDescription("news"), NOW)
    writer.add(writer.new_id(), SubscriptionDescription("news", "all"), NOW, (RuleDescription("one"),))
    reader = Catalog.in_file(file, "shop", NOW)
    assert reader.changed_elsewhere() == ([], False)
    writer.update(QueueDescription("changed", max_delivery_count=3), NOW + 1)
    writer.remove("gone")
    writer.add(writer.new_id(), QueueDescription("new"), NOW)
    writer.set_rule("news/Subscriptions/all", RuleDescription("two"))
    writer.set_namespace_rule(AuthorizationRule("reader", "key", "", frozenset({Right.LISTEN})))
    assert reader.changed_elsewhere() == (["changed", "gone", "new", "news/Subscriptions/all"], True)
    writer.close()
    reader.close()


async def test_everything_that_was_missed_is_followed_in_the_turn_of_its_name(tmp_path: Path) -> None:
    file, sim, names = tmp_path / "catalog.db", Simulation(), Names()
    writer = Catalog.in_file(file, "shop", sim.now)
    for name in ("Changed", "gone"):
        writer.add(writer.new_id(), QueueDescription(name), sim.now)
    writer.add(writer.new_id(), TopicDescription("news"), sim.now)
    reader = Catalog.in_file(file, "shop", sim.now)
    restore(reader, sim.entities, sim.now)
    sim.run()
    writer.update(QueueDescription("Changed", max_delivery_count=3), sim.now)
    writer.remove("gone")
    writer.add(writer.new_id(), SubscriptionDescription("news", "all"), sim.now, (RuleDescription("one"),))
    writer.set_namespace_rule(AuthorizationRule("reader", "key", "", frozenset({Right.LISTEN})))
    assert await follow_all(Follower(reader, sim.entities, sim.clock), sim, names)
    assert names.taken == ["changed", "gone", "news", ACCESS]
    assert sim.entities.queue("changed").description.max_delivery_count == 3
    assert sim.entities.find("gone") is None
    assert list(sim.entities.subscription("news", "all").rules) == ["one"]
    assert [rule.name for rule in reader.namespace_rules()] == ["reader"]
    assert reader.changed_elsewhere() == ([], False)
    writer.close()
    reader.close()


async def test_a_queue_that_was_created_while_the_catalog_was_read_keeps_its_messages(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = Simulation()
    catalog.add(1, QueueDescription("old"), sim.now)
    restore(catalog, sim.entities, sim.now)
    read_before = catalog._read_entries()
    restore_entity(catalog.add(2, QueueDescription("new"), sim.now), sim.entities, sim.now)
    sim.run()
    sim.send(sim.entities.queue("new"), make_message("m"))
    monkeypatch.setattr(catalog, "_read_entries", lambda: read_before)
    assert await follow_all(Follower(catalog, sim.entities, sim.clock), sim, Names())
    assert catalog.find("new") is not None
    assert sim.receiver(sim.entities.queue("new").main, 1).ids() == ["m"]


async def test_what_somebody_is_changing_is_followed_later_and_everything_else_now(tmp_path: Path) -> None:
    """He tells this process before his change is answered."""
    file, sim, names = tmp_path / "catalog.db", Simulation(), Names()
    writer = Catalog.in_file(file, "shop", sim.now)
    reader = Catalog.in_file(file, "shop", sim.now)
    for name in ("changing", "new"):
        writer.add(writer.new_id(), QueueDescription(name), sim.now)
    writer.set_namespace_rule(AuthorizationRule("reader", "key", "", frozenset({Right.LISTEN})))
    follower, names.busy = Follower(reader, sim.entities, sim.clock), {"changing", ACCESS}
    assert not await follow_all(follower, sim, names)
    assert (sim.entities.find("changing"), reader.namespace_rules()) == (None, [])
    assert sim.entities.find("new") is not None
    names.busy = set()
    assert await follow_all(follower, sim, names)
    assert sim.entities.find("changing") is not None
    assert [rule.name for rule in reader.namespace_rules()] == ["reader"]
    writer.close()
    reader.close()


async def test_a_queue_that_could_not_be_deleted_while_its_store_was_lost_is_deleted_when_it_is_back(
    tmp_path: Path,
) -> None:
    """It would take messages that nobody finds after the next start."""
    file, sim = tmp_path / "catalog.db", Simulation()
    writer = Catalog.in_file(file, "shop", sim.now)
    writer.add(writer.new_id(), QueueDescription("gone"), sim.now)
    reader = Catalog.in_file(file, "shop", sim.now)
    restore(reader, sim.entities, sim.now)
    sim.run()
    writer.remove("gone")
    follower, store = (
        Follower(reader, sim.entities, sim.clock),
        sim.entities.queue("gone").main.fragments[0].broker.index,
    )
    sim.lose_store(store)
    for _ in range(2):
        assert not await follow_all(follower, sim, Names())
        assert sim.entities.is_leaving("gone")
    sim.return_store(store)
    sim.run()
    assert await follow_all(follower, sim, Names())
    assert sim.entities.find("gone") is None
    writer.close()
    reader.close()
