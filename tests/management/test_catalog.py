import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.management.conftest import NOON
from twinbus.errors import EntityAlreadyExists, EntityNotFound, InternalError
from twinbus.management.catalog import Catalog
from twinbus.management.catalog_checks import MARK_SUFFIX
from twinbus.management.records import read_entity, write_entity
from twinbus.model.descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    QueueDescription,
    Right,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)

ACCESS = AuthorizationRule("reader", "first", "second", frozenset({Right.LISTEN}), NOON, NOON)
RULES = (
    RuleDescription("$Default", created_at=NOON),
    RuleDescription("none", FalseFilter()),
    RuleDescription("sql", SqlFilter("a = @x", (("@x", 2**40), ("@when", datetime(2020, 7, 5, 11, 12, 13))))),
    RuleDescription(
        "correlation",
        CorrelationFilter(label="l", properties=(("s", "1"), ("i", 1), ("f", 1.5), ("b", True), ("d", timedelta(1)))),
        SqlAction("SET a = @p", (("@p", "ü"),)),
    ),
)


def make_catalog_of_before(database: sqlite3.Connection) -> None:
    """One without checksums."""
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        database.execute(f"DROP TRIGGER {name}")
    for table in ("namespace", "entities", "rules", "access_rules"):
        database.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
    for column in ("row_sums", "version", "schema_sum"):
        database.execute(f"ALTER TABLE namespace DROP COLUMN {column}")
    database.execute("PRAGMA user_version = 0")


def reopened(catalog: Catalog, tmp_path: Path) -> Catalog:
    catalog.close()
    return Catalog.in_file(tmp_path / "catalog.sqlite", "another name", NOON + 1)


def test_everything_in_the_catalog_survives_a_restart(catalog: Catalog, tmp_path: Path) -> None:
    queue = QueueDescription(
        "Orders/In",
        authorization_rules=(ACCESS,),
        status=EntityStatus.SEND_DISABLED,
        forward_to="t",
        forward_to_scheme="https",
    )
    catalog.add(catalog.new_id(), queue, NOON)
    catalog.add(catalog.new_id(), TopicDescription("t", user_metadata="über"), NOON)
    catalog.add(catalog.new_id(), SubscriptionDescription("t", "s", requires_session=True), NOON, RULES)
    catalog.set_namespace_rule(ACCESS)
    before = [catalog.get(path) for path in ("orders/in", "T", "t/subscriptions/S")]

    again = reopened(catalog, tmp_path)
    assert [again.get(path) for path in ("orders/in", "T", "t/subscriptions/S")] == before
    assert again.namespace_rules() == [ACCESS]
    assert (again.namespace.name, again.namespace.created_at) == ("contoso", NOON)
    again.close()


def test_an_id_is_never_given_out_again_even_if_it_was_not_used(catalog: Catalog, tmp_path: Path) -> None:
    unused = catalog.new_id()
    entry = catalog.add(catalog.new_id(), QueueDescription("q"), NOON)
    catalog.remove("q")
    again = reopened(catalog, tmp_path)
    assert again.new_id() > entry.id > unused
    again.close()


def test_names_are_found_in_any_case_and_keep_the_first_spelling(catalog: Catalog) -> None:
    catalog.add(catalog.new_id(), QueueDescription("Orders"), NOON)
    assert catalog.get("ORDERS").description.name == "Orders"
    with pytest.raises(EntityAlreadyExists):
        catalog.add(catalog.new_id(), TopicDescription("orders"), NOON)


def test_entries_are_listed_by_name(catalog: Catalog) -> None:
    for name in ("b", "A", "c"):
        catalog.add(catalog.new_id(), QueueDescription(name), NOON)
    catalog.add(catalog.new_id(), TopicDescription("aa"), NOON)
    assert [entry.description.name for entry in catalog.entries(QueueDescription)] == ["A", "b", "c"]


def test_a_topic_takes_its_subscriptions_and_their_rules_with_it(catalog: Catalog, tmp_path: Path) -> None:
    catalog.add(catalog.new_id(), TopicDescription("t"), NOON)
    catalog.add(catalog.new_id(), SubscriptionDescription("t", "s"), NOON, RULES)
    catalog.remove("T")
    assert catalog.subscriptions("t") == []
    again = reopened(catalog, tmp_path)
    assert again.find("t/Subscriptions/s") is None
    again.add(again.new_id(), TopicDescription("t"), NOON)
    assert not list(again.add(again.new_id(), SubscriptionDescription("t", "s"), NOON).rules)
    again.close()


def test_rules_keep_the_order_in_which_they_were_made(catalog: Catalog, tmp_path: Path) -> None:
    catalog.add(catalog.new_id(), TopicDescription("t"), NOON)
    catalog.add(catalog.new_id(), SubscriptionDescription("t", "s"), NOON, RULES)
    changed = replace(RULES[1], filter=SqlFilter("1=1"))
    catalog.set_rule("t/subscriptions/s", changed)
    catalog.remove_rule("t/subscriptions/s", RULES[2].name)
    catalog.set_rule("t/subscriptions/s", RuleDescription("a last one"))
    assert list(catalog.get("t/subscriptions/s").rules) == [
        RULES[0],
        changed,
        *RULES[3:],
        RuleDescription("a last one"),
    ]
    again = reopened(catalog, tmp_path)
    names = [rule.name for rule in again.get("t/subscriptions/s").rules]
    assert names == ["$Default", "none", "correlation", "a last one"]
    assert list(again.get("t/subscriptions/s").rules)[1] == changed
    again.close()


def test_access_rules_count_for_their_entity_and_what_is_below_it(catalog: Catalog) -> None:
    other = replace(ACCESS, primary_key="of the namespace")
    catalog.add(catalog.new_id(), QueueDescription("a/b", authorization_rules=(ACCESS,)), NOON)
    catalog.add(catalog.new_id(), QueueDescription("c"), NOON)
    assert list(catalog.rules_named("reader", "A/B/$management")) == [ACCESS]
    assert list(catalog.rules_named("reader", "a/b/c")) == []
    assert list(catalog.rules_named("reader", "c")) == []
    assert list(catalog.rules_named("reader", "a")) == []
    assert list(catalog.rules_named("writer", "a/b")) == []
    catalog.add(catalog.new_id(), TopicDescription("t", authorization_rules=(ACCESS,)), NOON)
    for below in ("t", "T/Subscriptions", "t/subscriptions/s", "t/subscriptions/s/rules", "t/subscriptions/s/rules/r"):
        assert list(catalog.rules_named("reader", below)) == [ACCESS]
    assert list(catalog.rules_named("reader", "t/other")) == []
    catalog.set_namespace_rule(other)
    assert list(catalog.rules_named("reader", "a/b")) == [other, ACCESS]
    assert list(catalog.rules_named("reader", "")) == [other]
    catalog.remove_namespace_rule("reader")
    assert list(catalog.rules_named("reader", "")) == []


def test_what_is_not_there_is_not_found(catalog: Catalog) -> None:
    for change in (lambda: catalog.remove("q"), lambda: catalog.update(QueueDescription("q"), NOON)):
        with pytest.raises(EntityNotFound, match="'q'"):
            change()


def test_a_failed_write_changes_nothing_and_the_next_one_works(catalog: Catalog) -> None:
    catalog.add(7, QueueDescription("q"), NOON)
    with pytest.raises(InternalError):
        catalog.add(7, QueueDescription("other"), NOON)  # the id is taken
    assert catalog.find("other") is None
    catalog.add(8, QueueDescription("other"), NOON)


def test_a_file_that_is_no_database_is_reported_and_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "catalog.sqlite"
    file.write_bytes(b"something else entirely" * 100)
    with pytest.raises(InternalError, match="cannot be opened"):
        Catalog.in_file(file, "contoso", NOON)
    assert file.read_bytes().startswith(b"something else")


def test_keys_are_for_the_owner_alone_also_where_the_files_were_open_to_others(tmp_path: Path) -> None:
    file = tmp_path / "catalog.sqlite"
    file.touch(0o644)
    catalog = Catalog.in_file(file, "contoso", NOON)
    assert [path.stat().st_mode & 0o077 for path in tmp_path.iterdir()] == [
        0,
        0,
        0,
        0,
    ]  # its log, its index and its mark too
    catalog.close()


def test_a_catalog_in_whose_place_a_folder_is_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="cannot be opened"):
        Catalog.in_file(tmp_path, "contoso", NOON)


def test_the_first_store_of_an_entity_is_kept_and_unknown_in_catalogs_of_before(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    catalog = Catalog.in_file(path, "contoso", NOON)
    catalog.add(1, QueueDescription("before"), NOON)
    catalog.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        make_catalog_of_before(database)
    (tmp_path / f"{path.name}{MARK_SUFFIX}").unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("ALTER TABLE entities DROP COLUMN first_store")
    for _ in range(2):
        catalog = Catalog.in_file(path, "contoso", NOON)
        if catalog.find("after") is None:
            catalog.add(2, QueueDescription("after", enable_partitioning=True), NOON, first_store=3)
            catalog.update(QueueDescription("after", enable_partitioning=True, max_delivery_count=2), NOON)
        assert [catalog.get(name).first_store for name in ("before", "after")] == [None, 3]
        catalog.close()


def test_an_entity_that_was_written_before_targets_had_a_scheme_shows_sb() -> None:
    record = json.loads(write_entity(QueueDescription("q", forward_to="t")))
    del record["forward_to_scheme"], record["forward_dead_letters_to_scheme"]
    assert read_entity(QueueDescription, json.dumps(record)).forward_to_scheme == "sb"
