"""Leases on stores in PostgreSQL: renewed every second for all stores of a process, by a thread of its own.

The database's clock decides when a lease ends. Its owner trusts a renewal for a second less, counted from before it was sent, by a
clock that neither jumps nor stands still while the machine sleeps: so it stops handing over before anybody else begins, as long
as the two clocks differ by less than a fifth over five seconds.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import psycopg
from psycopg import sql

from twinbus.clock import boot_time
from twinbus.errors import StoreTaken, StoreUnavailable
from twinbus.store.postgres.connection import Connection, in_our_words
from twinbus.store.postgres.place import LeasedPlace, Owner, server_of
from twinbus.store.postgres.schema import schema_exists
from twinbus.store.postgres.statements import SQL, schema_statement

LEASE_S = 5.0
TRUSTED_S = 4.0
RENEW_EVERY_S = 1.0
GIVE_BACK_S = 2.0
TAKEOVER_TIMEOUT = "10s"
TAKEN = -1.0

log = logging.getLogger(__name__)


def take_over(connection: Connection, place: LeasedPlace, owner: Owner) -> int:
    """Own what the schema holds, if its lease has ended or is ours. Returns the epoch, which nobody had before.

    Raises StoreTaken. What the owner before has under way is ended or waited for, so all it was ever told is there.
    """
    with connection.raw.transaction():
        connection.raw.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(TAKEOVER_TIMEOUT)))
        former, address, is_live = connection.one(SQL["lock_lease"].decode())
        if is_live and former != owner.id:
            raise StoreTaken(f"{place} is owned by {address}. It can be served from here when that process has ended.")
        if former:
            connection.raw.execute(SQL["end_backends"], (Owner(former, address).application(place.schema),))
        (epoch,) = connection.one(SQL["raise_epoch"].decode())
        connection.raw.execute(SQL["take_lease"], (owner.id, owner.address, LEASE_S))
    connection.require_no_warning()
    return int(epoch)


def give_back(connection: Connection, place: LeasedPlace, owner: Owner) -> None:
    connection.raw.execute(schema_statement("give_lease_back", place.schema), (owner.id,))


class LeaseState(NamedTuple):
    """Of one schema: who owns it, as people call it; nobody if the lease has ended or there is no schema yet."""

    place: LeasedPlace
    owner: str


def lease_states(dsn: str, places: Sequence[LeasedPlace], owner: Owner) -> list[LeaseState]:
    """Of places in one database. Raises StoreUnavailable."""
    connection = Connection(dsn, f"twinbus {owner.id} waits")
    states: list[LeaseState] = []
    try:
        for place in places:
            if schema_exists(connection, place.schema):
                found = connection.raw.execute(schema_statement("lease", place.schema)).fetchone()
                assert found is not None
                former, address, is_live = found
                states.append(LeaseState(place, address if is_live and former != owner.id else ""))
            else:
                states.append(LeaseState(place, ""))
    except psycopg.Error as error:
        raise in_our_words(error, server_of(dsn)) from error
    finally:
        connection.close()
    return states


class LeaseRenewal(Protocol):
    """What keeps the leases of a process alive."""

    def start(self, place: LeasedPlace, owner: Owner, since: float) -> None:
        """The lease was taken; the statement that did it was sent after `since`."""
        ...

    def stop(self, place: LeasedPlace) -> None: ...


class _NoRenewal:
    """For a store that is opened for a moment, or by a test."""

    def start(self, place: LeasedPlace, owner: Owner, since: float) -> None: ...

    def stop(self, place: LeasedPlace) -> None: ...


NO_RENEWAL: LeaseRenewal = _NoRenewal()


class LeaseKeeper:
    """Renews leases while `may_serve` says so, with one connection for each database.

    `trusted_until(number, boot time)` is called with every renewal, with 0.0 when a lease is given back and with TAKEN when
    another process has it; from any thread.
    """

    def __init__(self, trusted_until: Callable[[int, float], None], may_serve: Callable[[], bool]) -> None:
        self._trusted_until = trusted_until
        self._may_serve = may_serve
        self._changing = threading.Lock()
        self._held: dict[LeasedPlace, Owner] = {}
        self._others: dict[LeasedPlace, Owner] = {}
        self._connections: dict[str, Connection] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._thread.start()

    def start(self, place: LeasedPlace, owner: Owner, since: float) -> None:
        with self._changing:
            self._held[place] = owner
        self._trusted_until(place.number, since + TRUSTED_S)

    def stop(self, place: LeasedPlace) -> None:
        with self._changing:
            self._held.pop(place, None)
        self._trusted_until(place.number, 0.0)

    def give_back_too(self, place: LeasedPlace, owner: Owner) -> None:
        """A lease that somebody else renews, for whom `give_back` is called as well."""
        self._others[place] = owner

    def give_back(self) -> None:
        """All leases, at once and for good: nobody is there any more who could serve. Takes no longer than GIVE_BACK_S."""
        self._is_over.set()
        with self._changing:
            held = {**self._held, **self._others}
        helper = threading.Thread(target=self._give_back, args=(held,), daemon=True)
        helper.start()
        helper.join(GIVE_BACK_S)

    def _give_back(self, held: dict[LeasedPlace, Owner]) -> None:
        self._thread.join(GIVE_BACK_S)
        for place, owner in held.items():
            with suppress(psycopg.Error, StoreUnavailable):
                give_back(self._connection(place.dsn, owner), place, owner)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        for connection in self._connections.values():
            connection.close()

    def _run(self) -> None:
        while not self._is_over.wait(RENEW_EVERY_S):
            if self._may_serve():
                with self._changing:
                    held = dict(self._held)
                for dsn in {place.dsn for place in held}:
                    self._renew(dsn, {place: owner for place, owner in held.items() if place.dsn == dsn})

    def _renew(self, dsn: str, held: dict[LeasedPlace, Owner]) -> None:
        """Of one database. If it cannot be reached the leases end by themselves."""
        try:
            for place, owner in held.items():
                before = boot_time()
                statement = schema_statement("renew_lease", place.schema)
                renewed = self._connection(dsn, owner).raw.execute(statement, (LEASE_S, owner.id), prepare=True)
                with self._changing:
                    is_held = place in self._held
                if is_held:
                    self._trusted_until(place.number, before + TRUSTED_S if renewed.rowcount == 1 else TAKEN)
        except (psycopg.Error, StoreUnavailable) as error:
            log.warning("leases_not_renewed", extra={"fields": {"stores": len(held), "reason": str(error)}})
            connection = self._connections.pop(dsn, None)
            if connection is not None:
                connection.close()

    def _connection(self, dsn: str, owner: Owner) -> Connection:
        if dsn not in self._connections:
            self._connections[dsn] = connection = Connection(dsn, f"twinbus {owner.id} leases")
            # A renewal that is lost costs a second, and waiting for a standby may take longer.
            connection.raw.execute("SET synchronous_commit = local; SET statement_timeout = '3s'")
        return self._connections[dsn]
