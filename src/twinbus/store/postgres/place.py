"""Where a messaging store is in PostgreSQL, and who wants to own it."""

import os
import secrets
import socket
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict

from twinbus.errors import ArgumentError

SCHEMA_PREFIX = "twinbus_"
SECRETS = ("password", "sslpassword")
APPLICATION_LENGTH_MAX = 63
"""The server cuts off what is longer."""


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """One store of a namespace. The connection string may hold a secret, and is never shown.

    `identity` is what the catalog knows the store by; `is_created`, that it has been in use, so it must be there.
    """

    dsn: str = field(repr=False)
    namespace: str
    number: int
    store_count: int
    identity: str = ""
    is_created: bool = False

    def __post_init__(self) -> None:
        check_dsn(self.dsn)

    @property
    def schema(self) -> str:
        return f"{SCHEMA_PREFIX}{self.namespace}_{self.number:02}"

    def __str__(self) -> str:
        return f"{server_of(self.dsn)}, schema {self.schema}"


@dataclass(frozen=True, slots=True)
class CatalogPlace:
    """Where the catalog of a namespace is: in the first of its databases."""

    dsn: str = field(repr=False)
    namespace: str
    number: int = -1

    def __post_init__(self) -> None:
        check_dsn(self.dsn)

    @property
    def schema(self) -> str:
        return f"{SCHEMA_PREFIX}{self.namespace}"

    def __str__(self) -> str:
        return f"{server_of(self.dsn)}, schema {self.schema}"


LeasedPlace: TypeAlias = PostgresPlace | CatalogPlace


def check_dsn(dsn: str) -> None:
    """Raises ArgumentError if it is not a connection string."""
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # The text of the library quotes the string.
        raise ArgumentError(
            "The connection string of a store cannot be read. Write postgresql://user@host:5432/database, "
            "or key=value pairs as libpq has them."
        ) from None


def has_secret(dsn: str) -> bool:
    """Raises ArgumentError if it is not a connection string."""
    check_dsn(dsn)
    known = conninfo_to_dict(dsn)
    return any(name in known for name in SECRETS)


def server_of(dsn: str) -> str:
    """Hosts and database, without user and secret."""
    known = conninfo_to_dict(dsn)
    hosts = (
        known.get("host") or known.get("hostaddr") or os.environ.get("PGHOST") or known.get("service") or "localhost"
    )
    ports = str(known.get("port") or "").split(",")
    # One port is for all hosts.
    by_host = zip_longest(str(hosts).split(","), ports, fillvalue=ports[-1])
    servers = ",".join(f"{host}:{port}" if port else host for host, port in by_host)
    return f"postgresql://{servers}/{known.get('dbname') or os.environ.get('PGDATABASE') or ''}"


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that owns stores. The id is generated, so that nobody else has it, even after a restart."""

    id: str
    address: str

    @classmethod
    def this_process(cls) -> "Owner":
        return cls(secrets.token_hex(8), f"{socket.gethostname()}, process {os.getpid()}")

    def application(self, schema: str) -> str:
        """By which a successor finds the connections of this owner to this schema. The end of a long name tells its stores
        apart."""
        prefix = f"twinbus {self.id} "
        return prefix + schema[len(prefix) - APPLICATION_LENGTH_MAX :]
