"""Connections to PostgreSQL as a store needs them: a connection string in, a checked connection out.

A commit whose wait for the standby was cancelled answers with success and a warning (SQLSTATE 01000): the server has it, the
standby may not. `require_no_warning` turns that into a failure.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import Diagnostic, error_from_result

from twinbus.errors import StoreDamaged, StoreUnavailable
from twinbus.store.postgres.binary_rows import Integers, IntegersDumper
from twinbus.store.postgres.place import server_of
from twinbus.store.postgres.watch import PATIENCE, WATCH, WatchedConnection

SERVER_VERSION_MIN = 150_000
WARNING = "01000"
BIGINT: Final = Struct("!q")
DEFAULTS = {
    "connect_timeout": "5",
    "tcp_user_timeout": "5000",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    # Of several hosts the one that can be written to, whichever that is after a fail-over.
    "target_session_attrs": "read-write",
}
SESSION = """
SET idle_in_transaction_session_timeout = '10s';
SET synchronous_commit = {durability};
SET client_min_messages = warning;
SET lock_timeout = 0;
SET statement_timeout = 0;
SET idle_session_timeout = 0;
SET default_transaction_isolation = 'read committed';
SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout';
"""
"""Whatever the database has as a default: a store may be idle for days, and a checkpoint take minutes. Servers before version 17 know
no timeout for a transaction."""
ATTEMPT = re.compile(r"^- host: '(.*?)', port: '(.*?)'(?:, hostaddr: '.*?')?: (?:.*failed: )?(.*)$", re.MULTILINE)
"""A line of what psycopg says if several hosts were tried."""
WEAKER = ("off", "local", "remote_write")


class Connection:
    """One session. Used by one thread at a time. `patience`: how many seconds it waits for an answer (`watch`)."""

    def __init__(self, dsn: str, application: str, patience: int = PATIENCE) -> None:
        """Raises StoreUnavailable, or StoreDamaged if trying again does not help."""
        self._server = server_of(dsn)
        self._warning = ""
        self._prepared: dict[bytes, bytes] = {}  # what the server calls them
        self._rollback_count = 0
        self.raw = _connect(dsn, application)
        WATCH.add(self.raw, application, patience)
        try:
            self.raw.add_notice_handler(self._notice)
            self._require_server()
            (durability,) = self.one("SELECT current_setting('synchronous_commit')")
            wanted = "on" if durability in WEAKER else durability
            self.raw.execute(psycopg.sql.SQL(SESSION).format(durability=psycopg.sql.Literal(wanted)))
        except psycopg.Error as error:
            self.close()
            raise in_our_words(error, self._server) from error
        except BaseException:
            self.close()
            raise
        self.raw.adapters.register_dumper(Integers, IntegersDumper)
        self.cursor = self.raw.cursor(binary=True)

    def _require_server(self) -> None:
        if self.raw.info.server_version < SERVER_VERSION_MIN:
            version = self.raw.info.server_version // 10_000
            raise StoreDamaged(f"{self._server} is PostgreSQL {version}. Use PostgreSQL 15 or later.")

    def one(self, query: str, *parameters: object) -> tuple[Any, ...]:
        found = self.raw.execute(query.encode(), parameters or None).fetchone()
        if found is None:
            raise self.lost_row()
        return found

    def lost_row(self) -> StoreDamaged:
        """A table that always has one row has none."""
        return StoreDamaged(f"{self._server}: a row that every schema has is missing. Restore the database.")

    def change(self, name: bytes, statement: bytes, *values: int | bytes) -> int:
        """How many rows a statement changed that is run again and again: by libpq itself, which takes a third of what a cursor does.

        It is prepared under this name the first time; its integers are of the type bigint.
        """
        prepared = self._prepared.get(name)
        if prepared is None:
            prepared = b"%s_%d" % (name, self._rollback_count)
            self._succeeded(self.raw.call(self.raw.pgconn.prepare, prepared, statement))
            self._prepared[name] = prepared
        binary = [BIGINT.pack(value) if isinstance(value, int) else value for value in values]
        formats = [pq.Format.BINARY] * len(binary)
        result = self._succeeded(self.raw.call(self.raw.pgconn.exec_prepared, prepared, binary, formats))
        return result.command_tuples or 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Rolled back if this is left with an error. psycopg has the server forget every prepared statement then, those of `change`
        too if there is one of its own."""
        try:
            with self.raw.transaction():
                yield
        except BaseException:
            self._prepared.clear()
            self._rollback_count += 1
            raise

    def _succeeded(self, result: pq.abc.PGresult) -> pq.abc.PGresult:
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise error_from_result(result)
        return result

    def require_no_warning(self) -> None:
        """After a commit. Raises StoreUnavailable if the server may be the only one that has it."""
        if self._warning:
            warning, self._warning = self._warning, ""
            raise StoreUnavailable(f"{self._server} warned about a commit: {warning}. It may not be replicated.")

    def _notice(self, diagnostic: Diagnostic) -> None:
        if diagnostic.sqlstate == WARNING or diagnostic.severity_nonlocalized == "WARNING":
            self._warning = diagnostic.message_primary or "no reason given"

    def close(self) -> None:
        self.raw.close()


def _connect(dsn: str, application: str) -> WatchedConnection:
    given = conninfo_to_dict(dsn)
    wanted = {name: value for name, value in DEFAULTS.items() if name not in given}
    try:
        return WatchedConnection.connect(make_conninfo(dsn, **wanted, application_name=application), autocommit=True)
    except psycopg.Error as error:
        raise in_our_words(error, server_of(dsn)) from error


def _first_line(text: str) -> str:
    """Without what follows it: a question to whoever runs the server."""
    return " ".join(text.partition("\n")[0].split()).removeprefix("connection failed: ")


def in_our_words(error: psycopg.Error, server: str) -> StoreUnavailable:
    attempts = [f"{host}:{port}: {reason}" for host, port, reason in ATTEMPT.findall(str(error))]
    text = "; ".join(attempts) or _first_line(error.diag.message_primary or str(error))
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return StoreDamaged(f"{server}: {text}. Grant the role CREATE on the database, or create the schemas for it.")
    if attempts and "read-only" in text:
        return StoreUnavailable(f"{server} has no primary: {text}. Promote a standby, or name the primary.")
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) or "read-only" in text:
        return StoreUnavailable(f"{server} is read-only: {text}. Name the primary, or all servers of the cluster.")
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return StoreDamaged(f"{server}: {text}. Restore the database.")
    # Why a connection was refused is known by its words alone.
    if any(words in text for words in ("password", "authentication", "pg_hba.conf", 'role "')):
        return StoreDamaged(f"{server}: {text}. Check user, password and pg_hba.conf.")
    if 'database "' in text and "does not exist" in text:
        return StoreDamaged(f"{server}: {text}. Create the database first.")
    return StoreUnavailable(f"{server} failed: {text}. Check that it is up and can be reached.")
