"""What a catalog has to stand because it is in PostgreSQL."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql

from tests.management.conftest import NOON, SteppingClock
from tests.management.memory_runtime import MemoryEntity, MemoryRuntime
from twinbus.errors import EntityAlreadyExists, InternalError
from twinbus.management.access_control import AccessControl
from twinbus.management.catalog import Catalog
from twinbus.management.catalog_postgres import PostgresCatalog
from twinbus.management.catalog_shared import SharedPostgresCatalog
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import (
    AuthorizationRule,
    QueueDescription,
    Right,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    WhichKey,
)
from twinbus.store.postgres.place import CatalogPlace, Owner


def test_a_database_that_hangs_does_not_keep_a_catalog_from_closing(postgres_dsn: str, fresh_namespace: str) -> None:
    place = CatalogPlace(postgres_dsn, fresh_namespace)
    catalog = PostgresCatalog(place, Owner.this_process(), 1, 0)
    with psycopg.connect(postgres_dsn) as other:
        # The catalog waits for this row when it gives its lease back.
        other.execute(sql.SQL("SELECT 1 FROM {}.lease FOR UPDATE").format(sql.Identifier(place.schema)))
        closing = threading.Thread(target=catalog.close, daemon=True)
        closing.start()
        closing.join(10)
        assert not closing.is_alive()


@pytest.fixture
def both(postgres_dsn: str, fresh_namespace: str) -> Iterator[tuple[Catalog, Catalog]]:
    """The catalog of a namespace, as two of its nodes have read it."""
    place, nodes = CatalogPlace(postgres_dsn, fresh_namespace), Owner("nodes", "all of them")
    made = [Catalog(SharedPostgresCatalog(place, Owner.this_process(), nodes, 1, NOON)) for _ in range(2)]
    yield made[0], made[1]
    for catalog in made:
        catalog.close()


async def test_a_node_creates_nothing_over_what_another_one_has_created_without_its_knowledge(
    both: tuple[Catalog, Catalog],
) -> None:
    """It would take the messages in it along."""
    one, other = both
    entry = one.add(one.new_id(), QueueDescription("orders"), NOON)
    control = ControlPlane(other, MemoryRuntime(), SteppingClock())
    with pytest.raises(InternalError, match="through another node"):
        await control.create_queue(QueueDescription("Orders"))
    other.reread("orders")
    assert other.find("orders") == entry
    with pytest.raises(EntityAlreadyExists):
        await control.create_queue(QueueDescription("Orders"))


async def test_a_node_changes_and_deletes_nothing_that_it_does_not_know_as_it_is(both: tuple[Catalog, Catalog]) -> None:
    one, other = both
    for name in ("changed", "renewed", "known"):
        one.add(one.new_id(), QueueDescription(name), NOON)
    one.add(one.new_id(), TopicDescription("news"), NOON)
    runtime = MemoryRuntime()
    for path in (known := ("changed", "renewed", "known", "news")):
        other.reread(path)
        entry = other.get(path)
        runtime.entities[path] = MemoryEntity(entry.id, entry.description)
    one.update(QueueDescription("changed", max_delivery_count=3), NOON + 1)
    one.remove("renewed")
    one.add(one.new_id(), QueueDescription("renewed"), NOON)
    one.add(one.new_id(), SubscriptionDescription("news", "all"), NOON)
    control = ControlPlane(other, runtime, SteppingClock())
    await control.update(QueueDescription("known", max_delivery_count=5))
    for path in ("changed", "renewed"):
        with pytest.raises(InternalError, match="through another node"):
            await control.update(QueueDescription(path, max_delivery_count=5))
        with pytest.raises(InternalError, match="through another node"):
            await control.delete(path)
    with pytest.raises(InternalError, match="through another node"):
        await control.delete("news")
    assert one.changed_elsewhere().paths == ["known"]
    for path in known:
        other.reread(path)
    await control.delete("news")
    assert one.changed_elsewhere().paths == ["known", "news", "news/Subscriptions/all"]


async def test_a_node_changes_no_rule_that_it_does_not_know_as_it_is(both: tuple[Catalog, Catalog]) -> None:
    """It would answer a change of a rule that is gone, and replace one that it was told is new."""
    one, other = both
    topic, subscription = TopicDescription("news"), SubscriptionDescription("news", "all")
    path, rules = "news/Subscriptions/all", [RuleDescription(name) for name in ("changed", "known", "removed")]
    one.add(one.new_id(), topic, NOON)
    entry = one.add(one.new_id(), subscription, NOON, rules)
    other.reread("news")
    runtime = MemoryRuntime()
    runtime.entities["news"] = MemoryEntity(other.get("news").id, topic)
    runtime.entities["news|all"] = MemoryEntity(entry.id, subscription, {rule.name: rule for rule in rules})
    one.set_rule(path, RuleDescription("changed", SqlFilter("a = 1")))
    one.set_rule(path, RuleDescription("new", SqlFilter("a = 1")))
    one.remove_rule(path, "removed")
    control = ControlPlane(other, runtime, SteppingClock())
    for change in (
        control.create_rule("news", "all", RuleDescription("New")),
        control.create_rule("news", "all", RuleDescription("removed")),
        control.update_rule("news", "all", RuleDescription("Changed")),
        control.update_rule("news", "all", RuleDescription("removed")),
        control.delete_rule("news", "all", "changed"),
        control.delete_rule("news", "all", "removed"),
    ):
        with pytest.raises(InternalError, match="through another node"):
            await change
    await control.update_rule("news", "all", RuleDescription("known", SqlFilter("a = 2")))
    one.reread("news")
    assert [(rule.name, rule.filter) for rule in one.get(path).rules] == [
        ("changed", SqlFilter("a = 1")),
        ("known", SqlFilter("a = 2")),
        ("new", SqlFilter("a = 1")),
    ]
    other.reread("news")
    await control.delete_rule("news", "all", "changed")


async def test_a_new_key_of_an_access_rule_leaves_what_another_node_has_changed_without_its_knowledge(
    both: tuple[Catalog, Catalog],
) -> None:
    one, other = both
    one.set_namespace_rule(rule := AuthorizationRule("reader", "first", "leaked", frozenset({Right.LISTEN})))
    other.reread_access_rules()
    one.set_namespace_rule(replace(rule, secondary_key="second"))
    control = ControlPlane(other, MemoryRuntime(), SteppingClock())
    renewed = await AccessControl(control, lambda: "new", SteppingClock()).regenerate("", "reader", WhichKey.PRIMARY)
    assert (renewed.primary_key, renewed.secondary_key) == ("new", "second")
