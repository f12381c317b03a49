"""The register of nodes, in a real database: turns end, and a name is one process's."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.store.postgres_places import opened, run_sql
from twinbus.clock import boot_time
from twinbus.cluster.lines.line import Topics
from twinbus.errors import ArgumentError, InternalError, OperationInProgress, StoreTaken
from twinbus.management.catalog_postgres import first_place
from twinbus.management.catalog_shared import SharedPostgresCatalog
from twinbus.server.machines import register as register_of_nodes
from twinbus.server.machines.assembly import Assembly
from twinbus.server.machines.lookout import LeaseSeen, Lookout, Sight
from twinbus.server.machines.register import ALL_NODES, Register, Seen
from twinbus.store.postgres import lease
from twinbus.store.postgres.lease import LEASE_S
from twinbus.store.postgres.place import CatalogPlace, Owner, PostgresPlace

NOW = 1_700_000_000_000
PATIENCE_S = 60.0

Join = Callable[[str], Register]


@pytest.fixture
def join(postgres_dsn: str, fresh_namespace: str) -> Iterator[Join]:
    place, made = CatalogPlace(postgres_dsn, fresh_namespace), list[Register]()

    def joined(name: str) -> Register:
        register = Register(place, Owner.this_process(), name, 1)
        SharedPostgresCatalog(place, register.owner, ALL_NODES, 1, NOW).close()
        register.prepare(NOW)
        register.join("a test")
        made.append(register)
        return register

    yield joined
    for register in made:
        register.leave()


def assembly(register: Register) -> Assembly:
    return Assembly(Topics(), dict, list, register.number, register)


def ask(register: Register, statement: str, *values: str) -> None:
    with psycopg.connect(register.place.dsn, autocommit=True) as connection:
        connection.execute(f'SET search_path = "{register.place.schema}"'.encode())
        connection.execute(statement.encode(), values)


def take_for_dead(register: Register) -> None:
    ask(
        register, "UPDATE nodes SET until = clock_timestamp() - interval '1s' WHERE incarnation = %s", register.owner.id
    )


async def test_a_turn_whose_end_the_database_did_not_hear_ends_with_the_next_beat(join: Join) -> None:
    one, other = join("one"), join("other")
    one.beat()
    end_backends = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = %s"
    async with assembly(one).turn("orders", 0.0):
        ask(one, end_backends, f"twinbus {one.owner.id} register")
    with pytest.raises(OperationInProgress):
        async with assembly(other).turn("orders", 0.0):
            pass
    one.beat()
    async with assembly(other).turn("orders", 0.0):
        pass


async def test_a_node_that_starts_alone_again_ends_the_turns_of_its_former_process(join: Join) -> None:
    former = join("one")
    assert former.try_turn("orders", "ticket") is not None
    take_for_dead(former)
    async with assembly(join("one")).turn("orders", 0.0):
        pass


async def test_a_node_that_joins_finds_the_names_that_others_are_changing(join: Join) -> None:
    one, gone = join("one"), join("gone")
    assert gone.try_turn("of one that died", "ticket") is not None
    take_for_dead(gone)
    async with assembly(one).turn("orders", 0.0):
        assert join("other").names_in_turn() == ["orders"]
    assert join("later").names_in_turn() == []


async def test_a_turn_within_one_that_a_node_has_lost_allows_no_change(join: Join) -> None:
    """Another node has had the first of them since, and the second one only keeps others waiting."""
    one, other = join("one"), join("other")
    database = SharedPostgresCatalog(one.place, one.owner, ALL_NODES, 1, NOW)
    database.allow = one.allow_change
    try:
        async with assembly(one).turn("orders", 0.0):
            take_for_dead(one)
            other.beat()
            async with assembly(other).turn("orders", 0.0):
                pass
            assert one.beat().nodes
            async with assembly(one).turn("$creation", 0.0):
                with pytest.raises(InternalError, match="took this one for dead"), database.transaction():
                    pytest.fail("it may not be changed")
        async with assembly(one).turn("orders", 0.0):
            with database.transaction():
                pass
    finally:
        database.close()


def test_a_node_whose_name_another_process_has_taken_learns_it_and_beats_no_more(join: Join) -> None:
    former = join("one")
    take_for_dead(former)
    assert join("one").number == former.number
    heard: list[str] = []
    is_replaced = threading.Event()
    former.start(boot_time, lambda _: heard.append("seen"), heard.append, is_replaced.set)
    assert is_replaced.wait(PATIENCE_S)
    assert heard == []


def test_nodes_have_the_catalog_again_when_a_process_that_is_none_has_ended_and_look_at_what_it_changed(
    join: Join,
) -> None:
    node = join("one")
    before = node.beat().version
    ask(node, "UPDATE lease SET owner = 'spare', address = 'a spare', until = clock_timestamp() + interval '1h'")
    with pytest.raises(StoreTaken, match="owned by a spare"):
        node.beat()
    ask(node, "UPDATE lease SET until = clock_timestamp() - interval '1s'")
    assert node.beat().version > before
    with psycopg.connect(node.place.dsn, autocommit=True) as connection:
        owners = connection.execute(f'SELECT owner FROM "{node.place.schema}".lease'.encode()).fetchall()
    assert owners == [(ALL_NODES.id,)]


def test_what_is_switched_off_is_off_for_every_node_and_for_one_that_comes_when_all_have_gone(join: Join) -> None:
    one, other = join("one"), join("other")
    one.switch(3, is_up=False)
    one.switch(3, is_up=False)
    one.switch(5, is_up=False)
    assert other.beat().downs == {3, 5}
    for each in (one, other):
        take_for_dead(each)
    later = join("later")
    assert later.beat().downs == {3, 5}
    later.switch(3, is_up=True)
    assert later.beat().downs == {5}


def test_a_register_of_an_earlier_release_gets_what_it_lacks(join: Join) -> None:
    one = join("one")
    one.pin(2, "one")
    ask(one, "DROP TABLE downs")
    seen = join("other").beat()
    assert seen.downs == set()
    assert seen.pins == {2: "one"}


def test_a_node_that_is_told_of_a_change_reads_the_register_at_once(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_of_nodes, "RENEW_EVERY_S", 3_600.0)
    node, seen = join("one"), Queue[Seen]()
    node.switch(3, is_up=False)
    node.start(boot_time, seen.put, pytest.fail, pytest.fail)
    node.beat_soon()
    assert seen.get(timeout=PATIENCE_S).downs == {3}


def test_a_node_that_does_not_beat_is_seen_to_be_gone_when_its_time_is_over_and_not_with_the_next_beat(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (register_of_nodes, lease):
        monkeypatch.setattr(module, "RENEW_EVERY_S", 3_600.0)
    node, other, seen = join("one"), join("other"), Queue[Seen]()
    ask(node, "UPDATE nodes SET until = clock_timestamp() + interval '1 s' WHERE incarnation = %s", other.owner.id)
    node.start(boot_time, seen.put, pytest.fail, pytest.fail)
    node.beat_soon()
    while "other" in (there := names(seen.get(timeout=PATIENCE_S))):
        assert there == ["one", "other"]
    assert there == ["one"]


def test_a_node_whose_loop_stands_still_lives_no_longer_for_a_beat_that_comes_meanwhile(join: Join) -> None:
    node = join("one")
    (whole,) = node.beat().nodes
    (shorter,) = node.beat(silent_s=1.5).nodes
    assert 0.0 < shorter.left_s <= LEASE_S - 1.5
    assert shorter.left_s < whole.left_s


def names(seen: Seen) -> list[str]:
    return sorted(node.name for node in seen.nodes if node.is_live)


def test_a_lease_that_is_not_renewed_is_seen_to_be_over_when_it_ends_and_not_a_second_later(
    postgres_dsn: str, fresh_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 3_600.0)
    place, owner, seen = PostgresPlace(postgres_dsn, fresh_namespace, 1, 2), Owner.this_process(), Queue[Sight]()
    store = opened(place, owner)
    run_sql(place, "UPDATE lease SET until = clock_timestamp() + interval '1 s'")
    lookout = Lookout(0, [place], Owner.this_process(), seen.put)
    lookout.start()
    try:
        while (leases := seen.get(timeout=PATIENCE_S).leases or {})[1].is_live:
            assert leases[1].owner == owner.id
        assert leases[1].owner == owner.id
    finally:
        lookout.close()
        store.close()


def test_a_node_that_is_given_another_number_of_databases_is_refused(join: Join) -> None:
    one = join("one")
    other = Register(one.place, Owner.this_process(), "other", 2)
    try:
        with pytest.raises(ArgumentError, match="Node 'one' names databases with --store: 1; this one names 2"):
            other.join("a test")
        take_for_dead(one)
        other.join("a test")
    finally:
        other.leave()


def test_a_catalog_that_is_in_another_of_the_databases_is_not_created_again(
    postgres_dsn: str, fresh_namespace: str, tmp_path: Path
) -> None:
    owner = Owner.this_process()
    second = f"second_{fresh_namespace}"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {second}".encode())
        try:
            dsns = [postgres_dsn, make_conninfo(postgres_dsn, dbname=second)]
            place = first_place(dsns, fresh_namespace, owner)
            SharedPostgresCatalog(place, owner, ALL_NODES, 1, NOW).close()
            assert first_place(dsns, fresh_namespace, owner) == place
            with pytest.raises(ArgumentError, match="in the order of the first start"):
                first_place(dsns[::-1], fresh_namespace, owner)
            nowhere = f"postgresql://?host={tmp_path}&user=bus&dbname=bus"
            assert first_place([dsns[1], nowhere], fresh_namespace, owner).dsn == dsns[1]
        finally:
            connection.execute(f"DROP DATABASE {second} WITH (FORCE)".encode())


def test_a_database_without_any_store_that_was_there_is_one_that_a_node_does_not_reach(
    postgres_dsn: str, fresh_namespace: str
) -> None:
    def sight(*, is_created: bool) -> Sight:
        place = PostgresPlace(postgres_dsn, fresh_namespace, 1, 2, "an identity", is_created)
        seen: Queue[Sight] = Queue()
        lookout = Lookout(0, [place], Owner.this_process(), seen.put)
        lookout.start()
        try:
            return seen.get(timeout=PATIENCE_S)
        finally:
            lookout.close()

    new, elsewhere = sight(is_created=False), sight(is_created=True)
    assert new.leases == {1: LeaseSeen()}
    assert elsewhere.leases is None
    assert "in the order of the first start" in elsewhere.fault


def test_a_store_whose_schema_is_gone_is_nobodys_to_take_and_the_others_in_its_database_are(
    postgres_dsn: str, fresh_namespace: str
) -> None:
    places = [PostgresPlace(postgres_dsn, fresh_namespace, number, 2) for number in range(2)]
    owner = Owner.this_process()
    stores = [opened(each, owner) for each in places]
    lookout = Lookout(0, places, Owner.this_process(), Queue[Sight]().put)
    assert [each.owner for each in (lookout.look().leases or {}).values()] == [owner.id, owner.id]
    run_sql(places[0], f'DROP SCHEMA "{places[0].schema}" CASCADE')
    assert lookout.look().leases is None
    assert {number: each.owner for number, each in (lookout.look().leases or {}).items()} == {1: owner.id}
    for store in stores:
        store.close()
