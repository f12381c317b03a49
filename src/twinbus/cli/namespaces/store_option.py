"""`--store`: the PostgreSQL databases that a command line or the environment names, without a secret that others can read."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from twinbus.cli.namespaces.configuration import STORE_VARIABLE
from twinbus.errors import ArgumentError

EXAMPLE = "such as 'postgresql://pg{0-3}/bus'"
StoreOption = Annotated[
    list[str] | None,
    typer.Option(
        "--store",
        metavar="POSTGRESQL",
        envvar=STORE_VARIABLE,
        help=f"Keep the messaging stores in this PostgreSQL, {EXAMPLE}.",
    ),
]
KeptInOption = Annotated[
    list[str] | None,
    typer.Option(
        "--store",
        metavar="POSTGRESQL",
        envvar=STORE_VARIABLE,
        help=f"The PostgreSQL that the stores are in, {EXAMPLE}; the data folder if omitted.",
    ),
]
PREFIXES = ("postgresql://", "postgres://")


def is_postgresql(text: str) -> bool:
    return text.startswith(PREFIXES)


def read_dsns(stores: Sequence[str], arguments: Sequence[str] | None = None) -> tuple[str, ...]:
    """Raises ArgumentError, also for a password that everybody on the machine could read in the list of processes.

    `arguments` are those of this process.
    """
    if not stores:
        return ()
    from twinbus.server.data.store_addresses import expand

    dsns = expand(tuple(stores))
    try:
        from twinbus.store.postgres.place import has_secret
    except ImportError:
        raise ArgumentError("Stores in PostgreSQL need psycopg: pip install 'twinbus[postgres]'.") from None
    with_secret = [dsn for dsn in dsns if has_secret(dsn)]
    if with_secret and any(store in argument for store in stores for argument in arguments or sys.argv):
        raise ArgumentError(
            "The connection string contains a password, and everyone on this machine can read the arguments of a process. "
            f"Give the string by {STORE_VARIABLE}, or the password by PGPASSWORD, passfile or service."
        )
    return dsns
