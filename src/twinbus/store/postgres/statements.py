"""The statements of `sql/` with the names of tables and schemas filled in."""

from functools import cache

from psycopg import sql

from twinbus.store.statements import load_statements

JOURNAL_COUNT = 3
"""One takes commits, one is checkpointed, one is empty or being emptied."""

SQL = {name: statement.encode() for name, statement in load_statements("postgres").items()}


def journal_statement(name: str, segment: int) -> bytes:
    """Of the journal that this segment is in."""
    return _filled(name, "journal", f"journal_{segment % JOURNAL_COUNT}")


def schema_statement(name: str, schema: str) -> bytes:
    return _filled(name, "schema", schema)


@cache
def _filled(name: str, what: str, identifier: str) -> bytes:
    # Our own text, read from the package. As bytes: a commit would take longer to put it together than to send it.
    statement: sql.SQL = sql.SQL(load_statements("postgres")[name])
    return statement.format(**{what: sql.Identifier(identifier)}).as_bytes(None)
