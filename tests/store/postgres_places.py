"""Stores in PostgreSQL for tests: opened by one owner or another, and leases that end when a test says so."""

import psycopg
from psycopg import sql

from twinbus.store.layers.checkpoint_thread import StartTask, start_thread
from twinbus.store.postgres.place import Owner, PostgresPlace
from twinbus.store.postgres.store import PostgresStore
from twinbus.store.store_limits import StoreLimits


def place(dsn: str, namespace: str) -> PostgresPlace:
    return PostgresPlace(dsn, namespace, 0, 1)


def opened(
    where: PostgresPlace,
    owner: Owner | None = None,
    limits: StoreLimits | None = None,
    start_task: StartTask = start_thread,
) -> PostgresStore:
    return PostgresStore(where, owner or Owner.this_process(), limits, start_task)


def run_sql(where: PostgresPlace, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(where.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(where.schema)))
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def end_lease(where: PostgresPlace) -> None:
    """As if its owner had not renewed it for a while."""
    run_sql(where, "UPDATE lease SET until = clock_timestamp() - interval '1 second'")
