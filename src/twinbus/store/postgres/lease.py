"""Leases on stores in PostgreSQL: renewed every second for all stores of a process, by a thread for each database (`renewal_rounds`).

A lease lasts LEASE_S from when whoever serves was last heard of, and not from its renewal: a namespace that is frozen is silent, and
what its store process renews meanwhile would keep others waiting for nobody. The database's clock decides when a lease ends. Its owner
trusts it for a second less, by a clock that neither jumps nor stands still while the machine sleeps: so it stops handing over before
anybody else begins, as long as the two clocks differ by less than a fifth over five seconds.

A renewal waits for the standby as a commit does. A server that has been succeeded by its standby and does not know it renews
nothing: otherwise its owner would go on handing over beside the one at the new server.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import psycopg
from psycopg import sql

from twinbus.clock import boot_time
from twinbus.errors import StoreTaken, StoreUnavailable
from twinbus.store.postgres.connection import Connection, in_our_words
from twinbus.store.postgres.place import LeasedPlace, Owner, server_of
from twinbus.store.postgres.renewal_rounds import RENEW_EVERY_S, RenewalRounds, is_silent
from twinbus.store.postgres.schema import schema_exists
from twinbus.store.postgres.statements import SQL, schema_statement
from twinbus.store.postgres.watch import PATIENCE_OF_LEASES

LEASE_S = 5.0
TRUSTED_S = 4.0
ENDS_TOGETHER_S = 0.05
"""Leases that one owner renews one after the other end within this time: who waits for them looks once for all."""
END_S = 2.0
TAKEOVER_TIMEOUT = "10s"
TAKEN = -1.0

log = logging.getLogger(__name__)


def until_an_end(left_s: Iterable[float]) -> float:
    """How long to wait before leases, each of which lasts so long unless it is renewed, are looked at again: until they should have been
    renewed, or until one of them has ended."""
    return min([RENEW_EVERY_S, *[each + ENDS_TOGETHER_S for each in left_s if each > 0.0]])


def take_over(connection: Connection, place: LeasedPlace, owner: Owner) -> int:
    """Own what the schema holds, if its lease has ended or is ours. Returns the epoch, which nobody had before.

    Raises StoreTaken. What the owner before has under way is ended or waited for, so all it was ever told is there.
    """
    with connection.transaction():
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


def leave(connection: Connection, place: LeasedPlace, owner: Owner) -> None:
    """Give it back, of a store that is closed. A renewal that is under way on another connection prolongs nothing any more."""
    connection.raw.execute(schema_statement("leave_lease", place.schema), (owner.id,))


class LeaseState(NamedTuple):
    """Of one schema: who owns it, as people call it; nobody if the lease has ended or there is no schema yet."""

    place: LeasedPlace
    owner: str


def lease_states(dsn: str, places: Sequence[LeasedPlace], owner: Owner) -> list[LeaseState]:
    """Of places in one database. Raises StoreUnavailable."""
    connection = Connection(dsn, f"twinbus {owner.id} waits", PATIENCE_OF_LEASES)
    states: list[LeaseState] = []
    try:
        for place in places:
            if schema_exists(connection, place.schema):
                found = connection.raw.execute(schema_statement("lease", place.schema)).fetchone()
                if found is None:
                    raise connection.lost_row()
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
    """Renews leases for as long as somebody serves, those in each database on a thread of their own.

    `alive_at` says when whoever serves was last heard of, by boot time. `trusted_until(number, boot time)` is called with every renewal,
    with 0.0 when a lease is given back and with TAKEN when another process has it; `replicated(number, whether)` when a renewal finds
    that commits wait for a standby, or do so no more. All of them from any thread.
    """

    def __init__(
        self,
        trusted_until: Callable[[int, float], None],
        alive_at: Callable[[], float],
        replicated: Callable[[int, bool], None] = lambda _, __: None,
    ) -> None:
        self._trusted_until = trusted_until
        self._alive_at = alive_at
        self._replicated = replicated
        self._changing = threading.Lock()
        self._databases: dict[str, _DatabaseLeases] = {}

    def start(self, place: LeasedPlace, owner: Owner, since: float) -> None:
        self._leases_in(place.dsn).start(place, owner, since)

    def stop(self, place: LeasedPlace) -> None:
        self._leases_in(place.dsn).stop(place)

    def give_back_too(self, place: LeasedPlace, owner: Owner, statement: str = "give_lease_back") -> None:
        """A lease that somebody else renews, for whom `give_back` is called as well."""
        self._leases_in(place.dsn).give_back_too(place, owner, statement)

    def give_back(self) -> None:
        """All leases, at once and for good: nobody is there any more who could serve. Takes no longer than END_S."""
        self._end(gives_back=True)

    def close(self) -> None:
        """Renew nothing more. Takes no longer than END_S."""
        self._end(gives_back=False)

    def _end(self, *, gives_back: bool) -> None:
        with self._changing:
            databases = list(self._databases.values())
        deadline = boot_time() + END_S
        for leases in databases:
            leases.end(gives_back=gives_back)
        for leases in databases:
            leases.join(max(deadline - boot_time(), 0.0))

    def _leases_in(self, dsn: str) -> "_DatabaseLeases":
        with self._changing:
            if dsn not in self._databases:
                self._databases[dsn] = _DatabaseLeases(dsn, self._trusted_until, self._alive_at, self._replicated)
            return self._databases[dsn]


class _Held(NamedTuple):
    owner: Owner
    counts_from: float  # boot time: when whoever serves was heard of before its last renewal, or before it was taken


class _DatabaseLeases:
    """The leases in one database, with a thread and a connection. If the database hangs, these end by themselves and no others."""

    def __init__(
        self,
        dsn: str,
        trusted_until: Callable[[int, float], None],
        alive_at: Callable[[], float],
        replicated: Callable[[int, bool], None],
    ) -> None:
        self._dsn = dsn
        self._trusted_until = trusted_until
        self._alive_at = alive_at
        self._replicated = replicated
        self._told_replicated: dict[LeasedPlace, bool] = {}
        self._changing = threading.Lock()
        self._held: dict[LeasedPlace, _Held] = {}
        self._others: dict[LeasedPlace, tuple[Owner, str]] = {}
        self._connected: Connection | None = None
        self._gives_back = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"leases of {server_of(dsn)}", daemon=True)
        self._thread.start()

    def start(self, place: LeasedPlace, owner: Owner, since: float) -> None:
        with self._changing:
            self._held[place] = _Held(owner, since)
            self._told_replicated.pop(place, None)
            self._trusted_until(place.number, since + TRUSTED_S)

    def stop(self, place: LeasedPlace) -> None:
        with self._changing:
            self._held.pop(place, None)
            self._trusted_until(place.number, 0.0)

    def give_back_too(self, place: LeasedPlace, owner: Owner, statement: str) -> None:
        with self._changing:
            self._others[place] = owner, statement

    def end(self, *, gives_back: bool) -> None:
        self._gives_back = gives_back
        self._is_over.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        rounds, pause_s = RenewalRounds(), RENEW_EVERY_S
        while not self._is_over.wait(pause_s):
            rounds.begin(boot_time())
            with self._changing:
                held = dict(self._held)
            self._renew(held, rounds)
            pause_s = rounds.pause_s(boot_time())
        if self._gives_back:
            self._give_back()
        self._disconnect()

    def _renew(self, held: "dict[LeasedPlace, _Held]", rounds: RenewalRounds) -> None:
        """If the database cannot be reached the leases end by themselves."""
        try:
            for place, (owner, counts_from) in held.items():
                if not rounds.prolongs(counts_from, self._alive_at(), boot_time()):
                    continue
                try:
                    self._renew_one(place, owner)
                except psycopg.ProgrammingError as error:
                    # Its schema is gone, or not ours any more: that of no other store is.
                    log.warning("lease_not_renewed", extra={"fields": {"store": place.number, "reason": str(error)}})
        except (psycopg.Error, StoreUnavailable) as error:
            log.warning("leases_not_renewed", extra={"fields": {"stores": len(held), "reason": str(error)}})
            self._disconnect()

    def _renew_one(self, place: LeasedPlace, owner: Owner) -> None:
        statement = schema_statement("renew_lease", place.schema)
        connection = self._connection(owner)
        alive_at = self._alive_at()
        # The database counts from when it does this, which is later than now: so it ends later than is trusted here.
        lasts_s = LEASE_S - (boot_time() - alive_at)
        renewed = connection.raw.execute(statement, (lasts_s, owner.id), prepare=True)
        connection.require_no_warning()
        found = renewed.fetchone()
        with self._changing:
            if place not in self._held:
                return
            if found is None:
                self._trusted_until(place.number, TAKEN)
            elif not is_silent(self._alive_at(), boot_time()):  # otherwise this process stood still meanwhile
                self._held[place] = _Held(owner, alive_at)
                self._trusted_until(place.number, alive_at + TRUSTED_S)
                self._tell_replicated(place, *found)

    def _tell_replicated(self, place: LeasedPlace, is_replicated: bool) -> None:
        """An operator may change it at any time: to be able to commit while the standby is down."""
        if self._told_replicated.get(place) is not is_replicated:
            self._told_replicated[place] = is_replicated
            self._replicated(place.number, is_replicated)

    def _give_back(self) -> None:
        with self._changing:
            held = dict(self._held)
            others = dict(self._others)
        for place, (owner, _) in held.items():
            with suppress(psycopg.Error, StoreUnavailable):
                give_back(self._connection(owner), place, owner)
        for place, (owner, statement) in others.items():
            with suppress(psycopg.Error, StoreUnavailable):
                self._connection(owner).raw.execute(schema_statement(statement, place.schema), (owner.id,))

    def _connection(self, owner: Owner) -> Connection:
        if self._connected is None:
            self._connected = Connection(self._dsn, f"twinbus {owner.id} leases", PATIENCE_OF_LEASES)
            self._connected.raw.execute("SET statement_timeout = '3s'")
        return self._connected

    def _disconnect(self) -> None:
        connection, self._connected = self._connected, None
        if connection is not None:
            connection.close()
