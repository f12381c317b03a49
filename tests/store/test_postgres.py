"""What only a store in PostgreSQL has to stand: other owners, fail-over, a server that refuses."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.contract.rows import EVERY_STATE, HERE, UNLIMITED, everything, holding, numbers, row
from tests.postgres_server import PostgresServer
from tests.store.held_tasks import HeldTasks
from tests.store.postgres_places import end_lease, opened, place, run_sql
from twinbus.clock import boot_time
from twinbus.errors import ArgumentError, StoreDamaged, StoreGone, StoreInUse, StoreUnavailable
from twinbus.server.stores.places import opener
from twinbus.store.changes import Enqueued, FragmentCreated, Removed
from twinbus.store.damage import CheckedPage, RowsDamaged
from twinbus.store.durable import DurableStore
from twinbus.store.postgres import connection as postgres_connection
from twinbus.store.postgres.connection import Connection, in_our_words
from twinbus.store.postgres.journal import PART_BYTES
from twinbus.store.postgres.lease import (
    ENDS_TOGETHER_S,
    LEASE_S,
    NO_RENEWAL,
    TAKEN,
    TRUSTED_S,
    LeaseKeeper,
    lease_states,
    until_an_end,
)
from twinbus.store.postgres.place import Owner, PostgresPlace, has_secret, server_of
from twinbus.store.postgres.renewal_rounds import RENEW_EVERY_S
from twinbus.store.postgres.statements import JOURNAL_COUNT
from twinbus.store.postgres.store import PostgresStore
from twinbus.store.postgres.tables import PostgresTables
from twinbus.store.postgres.watch import WATCH
from twinbus.store.store_limits import StoreLimits

EIGHT_ENTRIES = StoreLimits(segment_entries_max=8)


@pytest.fixture
def here(postgres_dsn: str, fresh_namespace: str) -> PostgresPlace:
    return place(postgres_dsn, fresh_namespace)


def add(store: DurableStore, *sequence_numbers: int) -> None:
    store.commit([Enqueued(HERE, [row(number) for number in sequence_numbers])])


def test_what_was_committed_is_there_for_the_next_owner(here: PostgresPlace) -> None:
    holding(opened(here), row(1), row(2, b""))
    end_lease(here)
    successor = opened(here)
    assert everything(successor) == [row(1), row(2, b"")]
    successor.close()


def test_a_server_of_a_version_that_is_too_old_is_refused(here: PostgresPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(here.dsn) as connection:
        version = connection.info.server_version
    monkeypatch.setattr(postgres_connection, "SERVER_VERSION_MIN", version + 1)
    with pytest.raises(StoreDamaged, match="Use PostgreSQL 15 or later"):
        opened(here)
    monkeypatch.setattr(postgres_connection, "SERVER_VERSION_MIN", version)
    opened(here).close()


def test_a_store_that_is_closed_leaves_no_connection(here: PostgresPlace) -> None:
    store = opened(here)
    tables = store._opened_tables
    assert isinstance(tables, PostgresTables)
    connections = [tables._reader.raw, tables._writer.raw]
    assert [connection.closed for connection in connections] == [False, False]
    store.close()
    assert [connection.closed for connection in connections] == [True, True]


def test_a_store_has_one_owner_while_its_lease_lasts(here: PostgresPlace) -> None:
    store = opened(here)
    with pytest.raises(StoreInUse, match="is owned by"):
        opened(here)
    store.close()
    opened(here).close()


def test_a_store_that_is_opened_again_leaves_the_others_of_its_owner_alone(
    postgres_dsn: str, fresh_namespace: str
) -> None:
    """Also where the name of the namespace is as long as may be: the server cuts the names of connections off."""
    name, owner = fresh_namespace.ljust(50, "n"), Owner.this_process()
    first, second = (opened(PostgresPlace(postgres_dsn, name, number, 2), owner) for number in range(2))
    first.commit([FragmentCreated(HERE)])
    opened(PostgresPlace(postgres_dsn, name, 1, 2), owner).close()  # as after a failure that it has not noticed yet
    add(first, 1)
    first.close()
    second.close()


def test_an_owner_that_was_succeeded_commits_nothing(here: PostgresPlace) -> None:
    before = opened(here)
    holding(before, row(1))
    end_lease(here)
    successor = opened(here)
    with pytest.raises(StoreUnavailable):
        add(before, 2)
    add(successor, 2)
    successor.close()
    assert numbers(everything(opened(here))) == [1, 2]


def test_an_owner_whose_connections_survive_is_fenced_all_the_same(here: PostgresPlace) -> None:
    """As when it reaches the database by a way that the successor cannot cut."""
    before = opened(here)
    holding(before, row(1))
    run_sql(here, "UPDATE lease SET owner = '', until = '-infinity'")
    successor = opened(here)
    with pytest.raises(StoreInUse, match="taken the store over"):
        add(before, 2)
    before.close()
    assert numbers(everything(successor)) == [1]
    successor.close()


def test_an_owner_that_was_succeeded_checkpoints_nothing(here: PostgresPlace) -> None:
    before = opened(here)
    holding(before, row(1))
    run_sql(here, "UPDATE lease SET owner = '', until = '-infinity'")
    successor = opened(here)
    with pytest.raises(StoreUnavailable):
        before.checkpoint()
    before.close()
    successor.checkpoint()
    assert numbers(everything(successor)) == [1]
    successor.close()


def test_a_checkpoint_that_was_waiting_when_its_owner_was_succeeded_is_not_made(here: PostgresPlace) -> None:
    tasks = HeldTasks()
    before = opened(here, start_task=tasks)
    holding(before, row(1))
    assert before.rest()
    run_sql(here, "UPDATE lease SET owner = '', until = '-infinity'")
    successor = opened(here)
    with pytest.raises(StoreInUse, match="segment 1: another process has taken the store over"):
        before.wait_for_checkpoint()
    before.close()
    assert numbers(everything(successor)) == [1], "once, though it may have written its own checkpoint by now"
    successor.close()


def test_a_successor_ends_the_checkpoint_of_a_dead_owner(here: PostgresPlace) -> None:
    """Its transaction holds the lock of the epoch."""
    dead = Owner.this_process()
    opened(here, dead).close()
    run_sql(here, f"UPDATE lease SET owner = '{dead.id}', until = '-infinity'")
    with psycopg.connect(here.dsn, application_name=dead.application(here.schema)) as stuck:
        stuck.execute(f"SELECT 1 FROM {here.schema}.epoch FOR SHARE".encode())
        opened(here).close()
        with pytest.raises(psycopg.OperationalError):
            stuck.execute("SELECT 1")


def test_a_commit_in_several_parts_is_one_commit(here: PostgresPlace) -> None:
    contents = [b"a" * (PART_BYTES - 40), b"b" * 100, b"c" * (2 * PART_BYTES), b"", b"d"]
    rows = [row(number, content) for number, content in enumerate(contents, 1)]
    store = opened(here)
    holding(store, *rows)
    assert everything(store) == rows
    end_lease(here)
    successor = opened(here)
    assert everything(successor) == rows
    successor.checkpoint()
    assert everything(successor) == rows
    successor.close()


def test_journals_are_used_in_turns_and_emptied(here: PostgresPlace) -> None:
    store = opened(here, limits=EIGHT_ENTRIES)
    holding(store)
    for number in range(1, 100):
        add(store, number)
        store.commit([Removed(HERE, [number])])
    store.checkpoint()
    left = [run_sql(here, f"SELECT count(*) FROM journal_{turn}")[0][0] for turn in range(3)]
    assert left == [0, 0, 0]
    assert run_sql(here, "SELECT count(*) FROM segments") == [(1,)]
    assert run_sql(here, "SELECT count(*) FROM contents") == [(0,)]
    store.close()


def test_who_reads_a_journal_delays_only_its_emptying(here: PostgresPlace) -> None:
    """As a backup does: it locks all tables at its beginning, and each journal is used several times before it ends."""
    store = opened(here)
    holding(store, row(1))
    with psycopg.connect(here.dsn) as backup:
        for turn in range(JOURNAL_COUNT):
            backup.execute(f"LOCK TABLE {here.schema}.journal_{turn} IN ACCESS SHARE MODE".encode())
        for number in range(2, 3 * JOURNAL_COUNT):
            add(store, number)
            store.checkpoint()
        add(store, number + 1)
        end_lease(here)
        successor = opened(here)
        assert numbers(everything(successor)) == list(range(1, number + 2))
        successor.checkpoint()
    add(successor, number + 2)
    successor.checkpoint()
    assert run_sql(here, "SELECT count(*) FROM segments") == [(1,)]
    assert [run_sql(here, f"SELECT count(*) FROM journal_{turn}") for turn in range(JOURNAL_COUNT)] == [[(0,)]] * 3
    assert numbers(everything(successor)) == list(range(1, number + 3))
    successor.close()
    store.close()


def test_a_store_is_given_back_although_a_list_of_its_sessions_lost_its_connection(here: PostgresPlace) -> None:
    """As with a server that was restarted, or an operator who ends transactions that are idle."""
    store = opened(here)
    holding(store, *(row(number, session_id=f"session {number}") for number in range(1, 5_000)))
    store.checkpoint()
    assert not store.prepare_session_list(HERE)
    ended = run_sql(
        here, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE state = 'idle in transaction'"
    )
    assert ended == [(True,)]
    store.close()
    successor = opened(here, Owner("another", "elsewhere"))
    assert len(successor.sessions(HERE)) == 4_999
    successor.close()


def test_a_transaction_that_is_rolled_back_costs_no_statement_that_is_run_again_and_again(here: PostgresPlace) -> None:
    connection = Connection(here.dsn, "repeated")
    connection.raw.execute("CREATE TEMPORARY TABLE counted (number BIGINT)")
    for number in range(3):
        for _ in range(2):
            assert connection.change(b"count", b"INSERT INTO counted VALUES ($1::bigint)", number) == 1
        connection.cursor.execute(b"SELECT %s", (number,), prepare=True)
        with pytest.raises(psycopg.errors.DivisionByZero), connection.transaction():
            connection.raw.execute("SELECT 1 / 0")
    assert connection.one("SELECT count(*) FROM counted") == (6,)
    connection.close()


def test_a_store_whose_server_is_gone_fails_and_returns_with_it(
    fresh_namespace: str, own_server: PostgresServer
) -> None:
    where = place(own_server.dsn(), fresh_namespace)
    store = opened(where)
    holding(store, row(1))
    own_server.kill()
    with pytest.raises(StoreUnavailable):
        add(store, 2)
    with pytest.raises(StoreUnavailable):
        opened(where)
    store.close()
    own_server.start()
    end_lease(where)
    successor = opened(where)
    assert numbers(everything(successor)) == [1]
    successor.close()


@pytest.fixture(scope="module")
def standby(own_server: PostgresServer) -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.follow(own_server, "standby")
    yield server
    server.remove()


@pytest.fixture
def synchronous(own_server: PostgresServer, standby: PostgresServer) -> Iterator[PostgresServer]:
    own_server.configure(synchronous_standby_names="standby")
    yield own_server
    own_server.configure(synchronous_standby_names="")


def test_a_cancelled_wait_for_the_standby_is_a_failure(
    fresh_namespace: str, synchronous: PostgresServer, standby: PostgresServer
) -> None:
    """The server answers with success and a warning, and the standby does not have it."""
    where = place(synchronous.dsn(), fresh_namespace)
    store = opened(where)
    holding(store, row(1))
    standby.freeze()
    try:
        cancel = threading.Thread(target=_cancel_waiting, args=(synchronous,))
        cancel.start()
        with pytest.raises(StoreUnavailable, match="may not be replicated"):
            add(store, 2)
        cancel.join()
    finally:
        standby.thaw()
    store.close()


def _cancel_waiting(server: PostgresServer) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = server.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        if found:
            return
        time.sleep(0.02)


def test_a_standby_is_refused_because_it_is_read_only(
    fresh_namespace: str, own_server: PostgresServer, standby: PostgresServer
) -> None:
    with pytest.raises(StoreUnavailable, match=r"read-only.*Name the primary"):
        opened(place(standby.dsn(), fresh_namespace))
    opened(place(standby.dsn(own_server), fresh_namespace)).close()


REFUSED = """connection failed: connection to server at "10.0.0.2", port 5433 failed: session is read-only
Multiple connection attempts failed. All failures were:
- host: 'one', port: '5432', hostaddr: '10.0.0.1': connection failed: connection to server at "10.0.0.1", port 5432 failed: Connection refused
\tIs the server running on that host and accepting TCP/IP connections?
- host: '10.0.0.2', port: '5433', hostaddr: '10.0.0.2': {}"""


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (
            'connection failed: connection to server at "10.0.0.2", port 5433 failed: session is read-only',
            (
                "bus has no primary: one:5432: Connection refused; 10.0.0.2:5433: session is read-only. "
                "Promote a standby, or name the primary."
            ),
        ),
        (
            "connection timeout expired",
            (
                "bus failed: one:5432: Connection refused; 10.0.0.2:5433: connection timeout expired. "
                "Check that it is up and can be reached."
            ),
        ),
    ],
    ids=["standby", "silent"],
)
def test_of_several_servers_that_refuse_each_says_why_on_one_line(second: str, said: str) -> None:
    assert str(in_our_words(psycopg.OperationalError(REFUSED.format(second)), "bus")) == said


@pytest.mark.parametrize(
    ("dsn", "server"),
    [
        ("postgresql://me:secret@a/bus", "postgresql://a/bus"),
        ("postgresql://a:1,b:2/bus", "postgresql://a:1,b:2/bus"),
        ("host=a,b port=1 dbname=bus", "postgresql://a:1,b:1/bus"),
    ],
)
def test_a_server_is_named_by_its_hosts_each_with_its_port(dsn: str, server: str) -> None:
    assert server_of(dsn) == server


@pytest.mark.parametrize(
    ("dsn", "environment", "server"),
    [
        ("host=a hostaddr=10.0.0.1 dbname=bus", {}, "postgresql://a/bus"),
        ("hostaddr=10.0.0.1 dbname=bus", {"PGHOST": "b"}, "postgresql://10.0.0.1/bus"),
        ("dbname=bus", {"PGHOST": "b", "PGDATABASE": "c"}, "postgresql://b/bus"),
        ("service=here dbname=bus", {"PGHOST": "b"}, "postgresql://b/bus"),
        ("service=here dbname=bus", {}, "postgresql://here/bus"),
        ("", {"PGDATABASE": "c"}, "postgresql://localhost/c"),
        ("", {}, "postgresql://localhost/"),
    ],
)
def test_a_server_that_a_connection_string_does_not_name_is_where_libpq_looks_for_it(
    monkeypatch: pytest.MonkeyPatch, dsn: str, environment: dict[str, str], server: str
) -> None:
    for name in ("PGHOST", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert server_of(dsn) == server


def test_what_was_acknowledged_survives_a_failover(fresh_namespace: str) -> None:
    first, second = PostgresServer(syncs=True), PostgresServer(syncs=True)
    try:
        first.create()
        second.follow(first, "second")
        first.configure(synchronous_standby_names="second")
        where = place(first.dsn(second), fresh_namespace)
        store = opened(where)
        holding(store)
        for number in range(1, 51):
            add(store, number)
        first.kill()
        second.promote()
        with pytest.raises(StoreUnavailable):
            add(store, 51)
        end_lease(PostgresPlace(second.dsn(), fresh_namespace, 0, 1))
        successor = opened(where)
        found = numbers(everything(successor))
        assert found[:50] == list(range(1, 51))
        successor.close()
    finally:
        first.remove()
        second.remove()


def test_the_schema_of_a_newer_release_is_refused(here: PostgresPlace) -> None:
    opened(here).close()
    run_sql(here, "UPDATE store SET version = version + 1")
    with pytest.raises(StoreDamaged, match="newer release"):
        opened(here)


ROWS_THAT_EVERY_SCHEMA_HAS = ("store", "epoch", "lease", "position", "segments")


@pytest.mark.parametrize(
    "statement",
    [
        *(f"DELETE FROM {table}" for table in ROWS_THAT_EVERY_SCHEMA_HAS),
        *(f"DROP TABLE {table} CASCADE" for table in (*ROWS_THAT_EVERY_SCHEMA_HAS, "messages")),
    ],
)
def test_a_schema_that_lacks_a_part_is_damage_that_only_the_database_can_restore(
    here: PostgresPlace, statement: str
) -> None:
    """Somebody deleted it, or a dump came back in part."""
    holding(opened(here), row(1)).close()
    run_sql(here, statement)
    for _ in ("first", "again"):
        with (
            pytest.raises(StoreDamaged, match=r"(does not exist|missing). Restore the (database|store)"),
            closing(opened(here)) as store,
        ):
            store.summaries()


def test_sessions_are_not_ended_or_isolated_by_what_the_database_has_as_a_default(postgres_dsn: str) -> None:
    wanted = {
        "idle_session_timeout": "0",
        "idle_in_transaction_session_timeout": "10s",
        "statement_timeout": "0",
        "lock_timeout": "0",
        "default_transaction_isolation": "read committed",
    }
    connection = Connection(postgres_dsn, "version")
    if connection.raw.info.server_version >= 170_000:
        wanted["transaction_timeout"] = "0"
    connection.close()
    given = {name: "serializable" if name.endswith("isolation") else "10min" for name in wanted}
    options = " ".join(f"-c {name}={value}" for name, value in given.items())
    connection = Connection(make_conninfo(postgres_dsn, options=options), "defaults")
    assert {name: connection.one(f"SHOW {name}")[0] for name in wanted} == wanted
    connection.close()


def test_an_older_server_is_refused(here: PostgresPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_connection, "SERVER_VERSION_MIN", 990_000)
    with pytest.raises(StoreDamaged, match="Use PostgreSQL 15 or later"):
        opened(here)


@pytest.mark.parametrize(
    ("default", "wanted"),
    [("off", "on"), ("local", "on"), ("remote_write", "on"), ("on", "on"), ("remote_apply", "remote_apply")],
)
def test_a_commit_is_as_durable_as_the_database_says_and_never_less_than_on_the_disk_of_the_standby(
    postgres_dsn: str, default: str, wanted: str
) -> None:
    connection = Connection(make_conninfo(postgres_dsn, options=f"-c synchronous_commit={default}"), "durable")
    assert connection.one("SHOW synchronous_commit") == (wanted,)
    connection.close()


@pytest.mark.parametrize(("name", "value"), [("SESSION", "SELECT 1 / 0"), ("SERVER_VERSION_MIN", 990_000)])
def test_a_connection_that_cannot_be_used_is_closed_and_says_why(
    here: PostgresPlace, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(postgres_connection, name, value)
    with pytest.raises(StoreUnavailable, match=r"failed: division by zero|Use PostgreSQL 15 or later") as refused:
        Connection(here.dsn, f"wrong {name}")
    (connection,) = [each for each in WATCH._watched if each.name == f"wrong {name}"]
    assert connection.closed
    assert server_of(here.dsn) in str(refused.value)


def test_missing_rights_are_named(postgres_dsn: str, fresh_namespace: str) -> None:
    admin = place(postgres_dsn, fresh_namespace)
    with psycopg.connect(admin.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {fresh_namespace} LOGIN".encode())
    with pytest.raises(StoreDamaged, match="Grant the role CREATE"):
        opened(place(psycopg.conninfo.make_conninfo(postgres_dsn, user=fresh_namespace), fresh_namespace))


@pytest.mark.parametrize("dsn", ["postgresql://user:hunter2@[", "host=x hunter2", "postgresql://h/?hunter2=1"])
def test_a_wrong_connection_string_is_refused_without_showing_it(dsn: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        PostgresPlace(dsn, "shop", 0, 1)
    assert "hunter2" not in str(refused.value)


def test_a_server_that_refuses_is_named_once_and_asks_nothing() -> None:
    text = 'connection failed: connection to server at "::1", port 1 failed: Connection refused\n\tIs the server running there?'
    said = 'bus failed: connection to server at "::1", port 1 failed: Connection refused. Check that it is up and can be reached.'
    assert str(in_our_words(psycopg.OperationalError(text), "bus")) == said


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ('password authentication failed for user "bus"', "Check user, password and pg_hba.conf"),
        ('no pg_hba.conf entry for host "10.0.0.1"', "Check user, password and pg_hba.conf"),
        ('database "bus" does not exist', "Create the database first"),
    ],
)
def test_a_refusal_that_lasts_says_what_to_do_about_it(text: str, advice: str) -> None:
    refusal = postgres_connection.in_our_words(psycopg.OperationalError(text), "db.example.com")
    assert isinstance(refusal, StoreDamaged)
    assert str(refusal) == f"db.example.com: {text}. {advice}."


def test_a_secret_is_not_part_of_what_is_shown() -> None:
    secret = PostgresPlace("postgresql://user:hunter2@db.example/bus?sslpassword=hunter2", "shop", 3, 16)
    assert "hunter2" not in f"{secret} {secret!r}"
    assert str(secret) == "postgresql://db.example/bus, schema twinbus_shop_03"


def test_another_store_than_the_one_that_has_been_in_use_is_refused(here: PostgresPlace) -> None:
    ours = replace(here, identity="ours")
    opened(ours).close()
    opened(here).close()  # by a release that kept no identities
    with pytest.raises(StoreGone, match="holds another store than the one that has been in use"):
        opened(replace(here, identity="another"))
    opened(ours).close()


def test_another_number_of_stores_is_refused(here: PostgresPlace) -> None:
    opened(here).close()
    with pytest.raises(ArgumentError, match="--stores 1"):
        opened(PostgresPlace(here.dsn, here.namespace, 0, 2))


def test_a_renewed_lease_outlasts_its_time_and_ends_with_its_keeper(here: PostgresPlace) -> None:
    told: list[float] = []
    keeper = LeaseKeeper(lambda _, until: told.append(until), boot_time)
    store = PostgresStore(here, Owner.this_process(), renewal=keeper)
    end_lease(here)
    deadline = time.monotonic() + 20
    while len(told) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(StoreInUse):
        opened(here)
    assert told[1] > boot_time()
    keeper.give_back()
    successor = opened(here)
    with pytest.raises(StoreUnavailable):
        add(store, 1)
    store.close()
    successor.close()


def test_a_renewal_that_was_under_way_does_not_prolong_a_lease_that_was_given_back(here: PostgresPlace) -> None:
    owner = Owner.this_process()
    PostgresStore(here, owner).close()
    run_sql(here, f"UPDATE lease SET until = clock_timestamp() + interval '5 s' WHERE owner = '{owner.id}'")
    opened(here).close()


def test_a_lease_that_was_given_back_is_trusted_no_longer_and_not_renewed(
    postgres_dsn: str, fresh_namespace: str
) -> None:
    places = [PostgresPlace(postgres_dsn, fresh_namespace, number, 2) for number in range(2)]
    told: list[tuple[int, float]] = []
    keeper = LeaseKeeper(lambda number, until: told.append((number, until)), boot_time)
    closed, left = (PostgresStore(each, Owner.this_process(), renewal=keeper) for each in places)
    closed.close()
    assert told[-1] == (0, 0.0)
    told.clear()
    deadline = time.monotonic() + 20
    while len(told) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert {number for number, _ in told} == {1}
    keeper.close()
    left.close()


def test_a_lease_that_somebody_else_renews_is_given_back_with_all_others(here: PostgresPlace) -> None:
    owner = Owner.this_process()
    store = PostgresStore(here, owner)
    keeper = LeaseKeeper(lambda *_: None, boot_time)
    keeper.give_back_too(here, owner)
    keeper.give_back()
    successor = opened(here)
    successor.close()
    store.close()


def test_a_spare_sees_who_owns_a_store_and_that_nobody_does_when_the_lease_has_ended(here: PostgresPlace) -> None:
    owner, spare = Owner("owner", "host 1"), Owner("spare", "host 2")
    missing = PostgresPlace(here.dsn, f"{here.namespace}_missing", 0, 1)

    def seen_by(who: Owner) -> list[str]:
        return [state.owner for state in lease_states(here.dsn, [here, missing], who)]

    assert seen_by(spare) == ["", ""]
    store = PostgresStore(here, owner)
    assert seen_by(spare) == ["host 1", ""]
    assert seen_by(owner) == ["", ""], "it may take what is its own"
    end_lease(here)
    assert seen_by(spare) == ["", ""]
    store.close()


@pytest.mark.parametrize(
    ("dsn", "is_secret"),
    [
        ("postgresql://user:word@host/bus", True),
        ("host=h sslpassword=word", True),
        ("postgresql://user@host/bus?sslmode=require", False),
    ],
)
def test_a_connection_string_with_a_password_is_a_secret(dsn: str, is_secret: bool) -> None:
    assert has_secret(dsn) is is_secret


def test_nobody_trusts_a_lease_that_was_taken_by_another(here: PostgresPlace) -> None:
    told: list[float] = []
    keeper = LeaseKeeper(lambda _, until: told.append(until), boot_time)
    store = PostgresStore(here, Owner.this_process(), renewal=keeper)
    run_sql(here, "UPDATE lease SET owner = 'another'")
    deadline = time.monotonic() + 20
    while told[-1] != TAKEN and time.monotonic() < deadline:
        time.sleep(0.05)
    assert told[-1] == TAKEN
    store.close()
    keeper.close()


def test_a_new_lease_is_trusted_from_when_it_was_asked_for(here: PostgresPlace) -> None:
    told: list[float] = []
    keeper = LeaseKeeper(lambda _, until: told.append(until), lambda: 0.0)
    before = boot_time()
    store = PostgresStore(here, Owner.this_process(), renewal=keeper)
    assert before <= told[0] - TRUSTED_S <= boot_time()
    store.close()
    keeper.close()


def test_a_keeper_whose_namespace_is_silent_renews_nothing(here: PostgresPlace) -> None:
    """A namespace that is frozen does not serve, so another one may."""
    told: list[float] = []
    asked = threading.Event()

    def never() -> float:
        asked.set()
        return 0.0

    keeper = LeaseKeeper(lambda _, until: told.append(until), never)
    store = PostgresStore(here, Owner.this_process(), renewal=keeper)
    assert asked.wait(20)
    assert len(told) == 1
    store.close()
    keeper.close()


def test_a_store_that_this_process_had_open_is_not_created_again_when_its_schema_is_gone(here: PostgresPlace) -> None:
    """Its catalog, which says so from then on, was read before."""
    open_store = opener(here, Owner.this_process(), StoreLimits(), NO_RENEWAL)
    open_store().close()
    open_store().close()
    run_sql(here, f'DROP SCHEMA "{here.schema}" CASCADE')
    with pytest.raises(StoreGone, match="is missing"):
        open_store()


def test_a_store_whose_schema_is_gone_keeps_no_other_lease_in_its_database_from_being_renewed(
    postgres_dsn: str, fresh_namespace: str
) -> None:
    places = [PostgresPlace(postgres_dsn, fresh_namespace, number, 2) for number in range(2)]
    told: list[tuple[int, float]] = []
    keeper = LeaseKeeper(lambda number, until: told.append((number, until)), boot_time)
    gone, left = (PostgresStore(each, Owner.this_process(), renewal=keeper) for each in places)
    run_sql(places[0], f'DROP SCHEMA "{places[0].schema}" CASCADE')
    told.clear()
    deadline = time.monotonic() + 20
    while len(told) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert {number for number, _ in told} == {1}
    keeper.close()
    for store in (gone, left):
        store.close()


def ends_between(where: PostgresPlace) -> tuple[float, float]:
    """Boot times before and after the end of the lease."""
    before = boot_time()
    ((left_s,),) = run_sql(where, "SELECT extract(epoch FROM until - clock_timestamp())::float8 FROM lease")
    assert isinstance(left_s, float)
    return before + left_s, boot_time() + left_s


def test_a_lease_lasts_from_when_the_namespace_was_last_heard_of_and_not_from_its_renewal(here: PostgresPlace) -> None:
    told: list[float] = []
    owner = Owner.this_process()
    store = PostgresStore(here, owner)
    alive_at = boot_time()
    keeper = LeaseKeeper(lambda _, until: told.append(until), lambda: alive_at)
    keeper.start(here, owner, alive_at - 10)
    deadline = time.monotonic() + 20
    while len(told) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    earliest, latest = ends_between(here)
    assert told[1] == alive_at + TRUSTED_S
    assert latest >= alive_at + LEASE_S
    # A whole lease from the renewal, which comes after a second, would end at six.
    assert earliest < alive_at + LEASE_S + 1
    keeper.close()
    store.close()


def test_a_lease_that_was_taken_while_the_namespace_was_silent_is_not_made_shorter(here: PostgresPlace) -> None:
    told: list[float] = []
    asked = threading.Semaphore(0)
    now = boot_time()

    def alive_at() -> float:
        asked.release()
        return now - 1

    keeper = LeaseKeeper(lambda _, until: told.append(until), alive_at)
    store = PostgresStore(here, Owner.this_process(), renewal=keeper)
    for _ in range(3):
        assert asked.acquire(timeout=20)
    assert told == [pytest.approx(now + TRUSTED_S, abs=2)]
    assert told[0] >= now + TRUSTED_S
    assert ends_between(here)[1] >= now + LEASE_S
    keeper.close()
    store.close()


def test_a_database_that_hangs_costs_no_lease_in_another(here: PostgresPlace) -> None:
    """Leases elsewhere are renewed all the same, and given back."""
    told: dict[int, int] = {}
    keeper = LeaseKeeper(lambda number, _: told.update({number: told.get(number, 0) + 1}), boot_time)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)
        dsn = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/bus?connect_timeout=60"
        keeper.start(PostgresPlace(dsn, here.namespace, 1, 2), Owner.this_process(), boot_time())
        asking, _ = silent.accept()
        with asking:
            store = PostgresStore(here, Owner.this_process(), renewal=keeper)
            deadline = time.monotonic() + 10
            while told[0] < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert told[0] >= 2
            keeper.give_back()
    opened(here).close()
    store.close()


def test_a_check_of_rows_is_left_to_the_database(here: PostgresPlace) -> None:
    """It has checksums of its own pages: nothing is read here, nothing is left to be checked, and nothing is set aside."""
    store = opened(here)
    holding(store, row(1))
    store.checkpoint()
    assert store.check(0) == CheckedPage(0, None)
    assert store.damage() == []
    tables = store._opened_tables
    assert isinstance(tables, PostgresTables)
    with pytest.raises(StoreDamaged, match=r"a row is damaged\. Restore the database"):
        tables.set_aside(RowsDamaged("a row is damaged", []))
    store.close()


def test_a_renewal_that_its_keeper_gave_up_is_not_done_later(here: PostgresPlace) -> None:
    """By then another process may have asked for the lease."""
    owner = Owner.this_process()
    keeper = LeaseKeeper(lambda *_: None, boot_time)
    store = PostgresStore(here, owner, renewal=keeper)
    waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"

    def is_asked_for(connection: "psycopg.Connection[tuple[int]]", *, wanted: bool) -> bool:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if bool(connection.execute(waiting, (f"twinbus {owner.id} leases",)).fetchall()) is wanted:
                return True
            time.sleep(0.02)
        return False

    with psycopg.connect(here.dsn) as holder, psycopg.connect(here.dsn, autocommit=True) as watcher:
        holder.execute(sql.SQL("LOCK TABLE {}").format(sql.Identifier(here.schema, "lease")))
        assert is_asked_for(watcher, wanted=True)
        keeper.close()
        assert is_asked_for(watcher, wanted=False), "it would be done as soon as it can be"
    store.close()


def race(where: PostgresPlace) -> None:
    """One owner commits as fast as it can while another takes over: what was acknowledged, the successor has."""
    before = opened(where)
    before.commit([FragmentCreated(HERE)])
    acknowledged: list[int] = []
    started = threading.Event()

    def commit() -> None:
        number = 0
        try:
            while number < 2_000:
                number += 1
                add(before, number)
                acknowledged.append(number)
                started.set()
        except StoreUnavailable:
            started.set()

    thread = threading.Thread(target=commit)
    thread.start()
    assert started.wait(30)
    # Its connections stay: only the epoch stands between the two.
    run_sql(where, "UPDATE lease SET owner = '', until = '-infinity'")
    successor = opened(where, start_task=HeldTasks())
    seen = set(numbers(successor.scan(HERE, 0, 10_000, UNLIMITED, EVERY_STATE)))
    thread.join()
    assert set(acknowledged) <= seen
    before.close()
    successor.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(8))
def test_a_successor_sees_every_acknowledged_commit(number: int, here: PostgresPlace) -> None:
    race(here)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_thousand_successors_see_every_acknowledged_commit(here: PostgresPlace) -> None:
    for number in range(1_000):
        where = PostgresPlace(here.dsn, f"{here.namespace}r{number}", 0, 1)
        race(where)
        run_sql(where, f'DROP SCHEMA "{where.schema}" CASCADE')


@pytest.mark.parametrize(
    ("left_s", "expected"),
    [
        ([], RENEW_EVERY_S),
        ([4.9, 4.2], RENEW_EVERY_S),
        ([4.9, 0.3], 0.3 + ENDS_TOGETHER_S),
        ([4.9, 0.0], RENEW_EVERY_S),
    ],
    ids=["nobody has any", "all are renewed", "one is about to end", "one has ended long ago"],
)
def test_leases_are_looked_at_every_second_and_when_one_of_them_ends(left_s: list[float], expected: float) -> None:
    assert until_an_end(left_s) == expected
