"""Who owns which store, as the leases of one database say: looked up every second and when one of them ends, on a thread of its own.

If the database hangs, its thread waits and the others go on. A database that cannot be looked at is one that this node does not reach,
and so is one in which none of the stores is that have been there: this node was given another one. A single store that was there and is
gone is nobody's to take: it would be taken for a new one.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import psycopg
from psycopg import sql

from twinbus.clock import boot_time
from twinbus.errors import StoreUnavailable
from twinbus.store.postgres.connection import Connection
from twinbus.store.postgres.lease import until_an_end
from twinbus.store.postgres.place import Owner, PostgresPlace, server_of
from twinbus.store.postgres.schema import schema_exists
from twinbus.store.postgres.watch import PATIENCE_OF_LEASES

LEASE = sql.SQL(
    "SELECT {number}::int, owner, address, CASE WHEN until > clock_timestamp() "
    "THEN extract(epoch FROM until - clock_timestamp())::float8 ELSE 0 END, (SELECT epoch FROM {schema}.epoch) FROM {schema}.lease"
)


class LeaseSeen(NamedTuple):
    """Of a store; without a schema yet it is nobody's. `left_s`: for how long it lasts if nobody renews it."""

    owner: str = ""
    address: str = ""
    left_s: float = 0.0
    epoch: int = 0

    @property
    def is_live(self) -> bool:
        return self.left_s > 0.0


class Sight(NamedTuple):
    """Of one database; `leases` is None if it was not reached."""

    database: int
    leases: Mapping[int, LeaseSeen] | None
    at: float  # boot time before it was asked for
    fault: str = ""


class Lookout:
    def __init__(
        self, database: int, places: Sequence[PostgresPlace], owner: Owner, seen: Callable[[Sight], None]
    ) -> None:
        """`seen` is called on the thread."""
        self._database = database
        self._places = places
        self._owner = owner
        self._seen = seen
        self._connection: Connection | None = None
        self._is_over = threading.Event()
        self._soon = threading.Event()
        self._created: set[int] = set()
        self._known = {place.number for place in places if place.is_created}
        self._seen_here: set[int] = set()
        self._thread = threading.Thread(target=self._run, name=f"lookout {database}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look_soon(self) -> None:
        """Something has changed."""
        self._soon.set()

    def close(self) -> None:
        self._is_over.set()
        self._soon.set()

    def _run(self) -> None:
        while not self._is_over.is_set():
            sight = self.look()
            self._seen(sight)
            self._soon.wait(until_an_end(lease.left_s for lease in (sight.leases or {}).values()))
            self._soon.clear()
        self._disconnect()

    def look(self) -> Sight:
        before = boot_time()
        try:
            if self._connection is None:
                dsn = self._places[0].dsn
                self._connection = Connection(dsn, f"twinbus {self._owner.id} lookout", PATIENCE_OF_LEASES)
                self._connection.raw.execute("SET statement_timeout = '3s'")
            return Sight(self._database, self._leases(self._connection), before)
        except (psycopg.Error, StoreUnavailable) as error:
            self._disconnect()
            self._created.clear()  # one of them may be gone
            return Sight(self._database, None, before, " ".join(str(error).split()))

    def _leases(self, connection: Connection) -> dict[int, LeaseSeen]:
        for place in self._places:
            if place.number not in self._created and schema_exists(connection, place.schema):
                self._created.add(place.number)
        if self._known and not self._known & self._created:
            # Whoever took them from nodes that have them would find none.
            raise StoreUnavailable(
                f"None of the messaging stores that were in use is in {server_of(self._places[0].dsn)}. "
                "Name the servers with --store in the order of the first start."
            )
        self._seen_here |= self._created
        found = {place.number: LeaseSeen() for place in self._places if place.number not in self._seen_here}
        parts = [
            LEASE.format(number=sql.Literal(place.number), schema=sql.Identifier(place.schema))
            for place in self._places
            if place.number in self._created
        ]
        if parts:
            for number, *facts in connection.raw.execute(sql.SQL(" UNION ALL ").join(parts)).fetchall():
                found[number] = LeaseSeen(*facts)
        return found

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
