"""Schemas: created once, by whoever comes first."""

from collections.abc import Callable

from psycopg import sql

from twinbus.store.postgres.connection import Connection
from twinbus.store.postgres.statements import SQL


def create_schema(connection: Connection, schema: str, fill: Callable[[], None]) -> None:
    """If it does not exist: `fill` creates what is in it, in the same transaction."""
    if schema_exists(connection, schema):
        return
    with connection.transaction():
        # Two that start at the same moment create it one after the other.
        connection.one(SQL["lock_creation"].decode(), schema)
        if schema_exists(connection, schema):
            return
        name = sql.Identifier(schema)
        connection.raw.execute(sql.SQL("CREATE SCHEMA {0}; SET LOCAL search_path TO {0}").format(name))
        fill()


def schema_exists(connection: Connection, schema: str) -> bool:
    return bool(connection.one(SQL["schema_exists"].decode(), schema)[0])


def set_search_path(connection: Connection, schema: str) -> None:
    connection.raw.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
