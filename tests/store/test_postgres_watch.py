"""A server that is frozen in the middle of a statement keeps nobody waiting for good."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from tests.contract.rows import everything, holding, numbers, row
from tests.postgres_server import PostgresServer
from tests.store.held_tasks import HeldTasks
from tests.store.postgres_places import end_lease, opened, place
from tests.store.test_postgres import add
from twinbus.errors import StoreUnavailable
from twinbus.store.postgres.connection import Connection
from twinbus.store.postgres.watch import PATIENCE, WATCH, ConnectionWatch, WatchedConnection


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if time flew: a tick every 20 ms beside the usual ones."""
    is_over = threading.Event()

    def tick() -> None:
        while not is_over.wait(0.02):
            WATCH.tick()

    thread = threading.Thread(target=tick)
    thread.start()
    yield
    is_over.set()
    thread.join()


def test_a_commit_to_a_frozen_server_fails_and_the_store_opens_when_it_answers(
    own_server: PostgresServer, fresh_namespace: str, hurried: None
) -> None:
    where = place(own_server.dsn(), fresh_namespace)
    store = opened(where)
    holding(store, row(1))
    own_server.freeze()
    try:
        with pytest.raises(StoreUnavailable):
            add(store, 2)
        store.close()
    finally:
        own_server.thaw()
    end_lease(where)
    successor = opened(where)
    assert numbers(everything(successor))[0] == 1
    successor.close()


def test_a_store_can_be_closed_while_its_checkpoint_waits_for_a_frozen_server(
    own_server: PostgresServer, fresh_namespace: str, hurried: None
) -> None:
    where = place(own_server.dsn(), fresh_namespace)
    store = opened(where)
    holding(store, row(1))
    own_server.freeze()
    try:
        store.rest()
    except StoreUnavailable:
        pass
    finally:
        store.close()
        own_server.thaw()
    end_lease(where)
    opened(where).close()


def test_a_backend_that_is_frozen_alone_is_left_behind(
    own_server: PostgresServer, fresh_namespace: str, hurried: None
) -> None:
    where = place(own_server.dsn(), fresh_namespace)
    store = opened(where, start_task=HeldTasks())
    holding(store, row(1))
    backend = store._medium._open().raw.info.backend_pid  # type: ignore[attr-defined]
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable):
            add(store, 2)
    finally:
        os.kill(backend, signal.SIGCONT)
    store.close()


def test_a_watch_ticks_by_itself_once_there_is_a_connection(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, ticked = ConnectionWatch(tick_s=0.01), threading.Event()

    def tick() -> None:
        watch._tick_s = 3600  # once is enough
        ticked.set()

    monkeypatch.setattr(watch, "tick", tick)
    connection = Connection(postgres_dsn, "watched")
    watch.add(connection.raw, "watched", PATIENCE)
    assert ticked.wait(10)
    connection.close()


def test_a_slow_statement_within_its_patience_is_left_alone(postgres_dsn: str) -> None:
    watch = ConnectionWatch(tick_s=3600)
    connection = Connection(postgres_dsn, "slow")
    watch.add(connection.raw, "slow", PATIENCE)
    asking = threading.Thread(target=lambda: connection.one("SELECT pg_sleep(0.5)"))
    asking.start()
    while connection.raw.wait_count % 2 == 0:
        pass
    for _ in range(PATIENCE - 2):  # the usual watch ticks too
        watch.tick()
    asking.join()
    for _ in range(2 * PATIENCE):
        watch.tick()  # it waits for nothing
    assert connection.one("SELECT 1") == (1,)
    connection.close()


def test_whoever_is_silent_for_too_long_is_cut_with_others_of_its_name(postgres_dsn: str) -> None:
    watch = ConnectionWatch(tick_s=3600)
    silent, partner, other = (Connection(postgres_dsn, name) for name in ("a", "a", "b"))
    for connection, name in ((silent, "a"), (partner, "a"), (other, "b")):
        watch.add(connection.raw, name, PATIENCE)
    failed: list[Exception] = []

    def ask() -> None:
        try:
            silent.one("SELECT pg_sleep(60)")
        except Exception as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while silent.raw.wait_count % 2 == 0:
        pass
    for _ in range(PATIENCE + 1):
        watch.tick()
    asking.join(10)
    assert failed
    assert other.one("SELECT 1") == (1,)
    with pytest.raises(Exception, match="connection"):
        partner.one("SELECT 1")
    for connection in (silent, partner, other):
        connection.close()


def test_a_closed_connection_is_not_cut(postgres_dsn: str) -> None:
    connection = Connection(postgres_dsn, "closed")
    assert isinstance(connection.raw, WatchedConnection)
    connection.close()
    connection.raw.cut()
