"""The register of nodes of a namespace, in the catalog's database: who is a node, who lives, whose turn it is to change an entity.

    nodes    a row for each: its number, name, address, and until when it is taken to live; renewed with every beat. Others beat early,
             to see it, if that time is over before
    fences   a row for each node that may change the catalog. Whoever sees that a node is not alive any more removes its row; a change
             share-locks the row, so a node that was taken for dead changes nothing afterwards
    turns    names of entities that are being changed, by the fence of the node that does
    pins     stores that somebody gave to a node by name
    downs    stores that somebody switched off: no node owns them until they are switched on
    cluster  the authority for lines, and a version that every change of the catalog raises: who missed one reads the catalog again

A node that finds its fence gone, because it stood still or was cut off, gets a new one and reads the catalog. A turn is of the fence it was
given under: what was begun under the old one fails.
"""

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import psycopg

from twinbus.clock import Millis, boot_time
from twinbus.errors import ArgumentError, InternalError, StoreUnavailable
from twinbus.server.machines.identity import Authority, new_authority
from twinbus.store.postgres.connection import Connection, in_our_words
from twinbus.store.postgres.lease import LEASE_S, take_over, until_an_end
from twinbus.store.postgres.place import CatalogPlace, Owner, server_of
from twinbus.store.postgres.renewal_rounds import RENEW_EVERY_S
from twinbus.store.postgres.schema import set_search_path
from twinbus.store.postgres.statements import SQL, schema_statement
from twinbus.store.postgres.watch import PATIENCE_OF_LEASES

NODES_MAX: Final = 64
ALL_NODES: Final = Owner("nodes", "nodes of this namespace")
"""As which they hold the lease of the catalog together, so that no process without a node's name serves the namespace beside them."""
SERVING, DRAINING = "serving", "draining"
GONE = "gone"
"""Only ever reported: it ended in the middle of serving, or is not heard of."""
FORMER_WAIT_S = 1.5 * LEASE_S
SILENT_MAX_S = 2.0
"""A node whose loop has stood still for this long does not beat."""

CREATE = """
CREATE TABLE IF NOT EXISTS cluster (one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), authority_key TEXT NOT NULL,
    authority TEXT NOT NULL, version BIGINT NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS nodes (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, incarnation TEXT NOT NULL,
    address TEXT NOT NULL, process TEXT NOT NULL, state TEXT NOT NULL, unreached TEXT NOT NULL DEFAULT '',
    connections INTEGER NOT NULL DEFAULT 0, databases INTEGER NOT NULL, since TIMESTAMPTZ NOT NULL, until TIMESTAMPTZ NOT NULL);
CREATE TABLE IF NOT EXISTS fences (fence TEXT PRIMARY KEY, incarnation TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS turns (name TEXT COLLATE "C" PRIMARY KEY, fence TEXT NOT NULL, ticket TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pins (store INTEGER PRIMARY KEY, node TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS downs (store INTEGER PRIMARY KEY)
"""
# The youngest of them: a register of an earlier release has only the others.
HAS_TABLES = "SELECT to_regclass('downs') IS NOT NULL"
PUT_AUTHORITY = "INSERT INTO cluster (authority_key, authority) VALUES (%s, %s) ON CONFLICT (one) DO NOTHING"
AUTHORITY = "SELECT authority_key, authority FROM cluster"
LOCK_NODES = "LOCK TABLE nodes IN SHARE ROW EXCLUSIVE MODE"
KNOWN = "SELECT number, name, process, until > clock_timestamp(), databases FROM nodes ORDER BY until"
DROP_NODE = "DELETE FROM nodes WHERE number = %s"
PUT_NODE = """INSERT INTO nodes (number, name, incarnation, address, process, state, databases, since, until)
VALUES (%s, %s, %s, %s, %s, %s, %s, clock_timestamp(), clock_timestamp() + make_interval(secs => %s))"""
PUT_FENCE = "INSERT INTO fences (fence, incarnation) VALUES (%s, %s)"
BEAT = """UPDATE nodes SET until = clock_timestamp() + make_interval(secs => %s), state = %s, unreached = %s, connections = %s, address = %s
WHERE incarnation = %s"""
SAY_STATE = "UPDATE nodes SET state = %s WHERE incarnation = %s"
# A fence that a change of its node has locked is removed with a later beat.
REMOVE_FENCES = """DELETE FROM fences WHERE fence IN (SELECT fence FROM fences WHERE NOT EXISTS (SELECT 1 FROM nodes
WHERE nodes.incarnation = fences.incarnation AND nodes.until > clock_timestamp()) FOR UPDATE SKIP LOCKED)"""
HAS_FENCE = "SELECT EXISTS (SELECT 1 FROM fences WHERE fence = %s)"
SEEN = """SELECT number, name, address, process, state, unreached, connections,
extract(epoch FROM until - clock_timestamp())::float8, extract(epoch FROM clock_timestamp() - since)::float8
FROM nodes ORDER BY number"""
VERSION = "SELECT version FROM cluster"
PINS = "SELECT store, node FROM pins"
DOWNS = "SELECT store FROM downs"
REQUIRE_FENCE = "SELECT 1 FROM fences, lease WHERE fence = ? AND owner = ? FOR SHARE OF fences"
RAISE_VERSION = "UPDATE cluster SET version = version + 1"
TAKE_TURN = """INSERT INTO turns (name, fence, ticket) VALUES (%s, %s, %s) ON CONFLICT (name) DO UPDATE
SET fence = excluded.fence, ticket = excluded.ticket WHERE NOT EXISTS (SELECT 1 FROM fences WHERE fences.fence = turns.fence) RETURNING 1"""
TURNS = "SELECT name FROM turns WHERE EXISTS (SELECT 1 FROM fences WHERE fences.fence = turns.fence)"
END_TURN = "DELETE FROM turns WHERE name = %s AND ticket = %s"
PUT_PIN = "INSERT INTO pins (store, node) VALUES (%s, %s) ON CONFLICT (store) DO UPDATE SET node = excluded.node"
DROP_PIN = "DELETE FROM pins WHERE store = %s"
PUT_DOWN = "INSERT INTO downs (store) VALUES (%s) ON CONFLICT (store) DO NOTHING"
DROP_DOWN = "DELETE FROM downs WHERE store = %s"

log = logging.getLogger(__name__)

_turn_fence: ContextVar[str | None] = ContextVar("turn_fence", default=None)
"""Of the turn that the current task has: a node that was taken for dead meanwhile has another one by now."""


class NodeReplaced(StoreUnavailable):
    """Another process has the name of this node, or its number."""


class NodeRow(NamedTuple):
    number: int
    name: str
    address: str
    process: str
    state: str
    unreached: tuple[int, ...]
    connections: int
    left_s: float  # for how long it is taken to live if it does not beat; less than 0 since that time is over
    age_s: float

    @property
    def is_live(self) -> bool:
        return self.left_s > 0.0


class Seen(NamedTuple):
    """The register at one moment."""

    nodes: list[NodeRow]
    version: int
    pins: dict[int, str]
    downs: frozenset[int]
    at: float  # boot time before it was asked for


class Facts(NamedTuple):
    """What a node says of itself with each beat."""

    state: str = SERVING
    unreached: tuple[int, ...] = ()
    connections: int = 0


class Register:
    """Blocks, but for `facts` and `fence`. `owner`: as whom this process owns stores; its id is that of this start of the node."""

    def __init__(self, place: CatalogPlace, owner: Owner, name: str, database_count: int) -> None:
        """`database_count`: over how many the stores are spread."""
        self.place = place
        self.owner = owner
        self.name = name
        self.database_count = database_count
        self.facts = Facts()
        self.address = ""
        self.number = -1
        self.fence = secrets.token_hex(8)
        self.times_fenced = 0
        self._asking = threading.Lock()
        self._turns_to_end: deque[tuple[str, str]] = deque()  # by name and ticket
        self._connected: Connection | None = None
        self._beating: Connection | None = None
        self._is_over = threading.Event()
        self._soon = threading.Event()
        self._thread: threading.Thread | None = None

    # Coming and going

    def prepare(self, now: Millis) -> Authority:
        """The tables, and the authority of the namespace. Raises StoreUnavailable."""
        with self._connection() as connection:
            if not connection.one(HAS_TABLES)[0]:
                with connection.raw.transaction():
                    connection.one(SQL["lock_creation"].decode(), self.place.schema)
                    for statement in CREATE.split(";"):
                        connection.raw.execute(statement.encode())
            if connection.raw.execute(AUTHORITY).fetchone() is None:
                connection.raw.execute(PUT_AUTHORITY, new_authority(self.place.namespace, now))
            return Authority(*connection.one(AUTHORITY))

    def join(self, process: str) -> int:
        """Become a node. Returns its number, the same as before if the name was known. Raises ArgumentError while a node of this
        name lives elsewhere, or one that was given another number of databases."""
        deadline = boot_time() + FORMER_WAIT_S
        while True:
            holder = self._try_to_join(process)
            if holder is None:
                return self.number
            if boot_time() > deadline:
                raise ArgumentError(
                    f"A node '{self.name}' of this namespace runs already: {holder}. Give each node a name of its own with --node."
                )
            # Most often it is this node's own former process, which was killed a moment ago.
            self._is_over.wait(0.25)

    def _try_to_join(self, process: str) -> str | None:
        """None: joined; otherwise who has the name."""
        with self._connection() as connection, connection.raw.transaction():
            connection.raw.execute(LOCK_NODES)
            known = connection.raw.execute(KNOWN).fetchall()
            number = None
            for row_number, name, other, is_live, databases in known:
                if name == self.name:
                    if is_live:
                        return str(other)
                    number = row_number
                elif is_live and databases != self.database_count:
                    # By its number a store would be in one database for this node, and in another one for that.
                    raise ArgumentError(
                        f"Node '{name}' names databases with --store: {databases}; this one names {self.database_count}. "
                        "Give all nodes the same, in the same order."
                    )
            if number is None:
                number = _free_number(known)
            connection.raw.execute(DROP_NODE, (number,))
            row = (number, self.name, self.owner.id, self.address, process, SERVING, self.database_count, LEASE_S)
            connection.raw.execute(PUT_NODE, row)
            connection.raw.execute(PUT_FENCE, (self.fence, self.owner.id))
            # Nobody else may be there to end what the process before this one had begun.
            connection.raw.execute(REMOVE_FENCES)
        self.number = number
        return None

    def start(
        self,
        alive_at: Callable[[], float],
        seen: Callable[[Seen], None],
        lost: Callable[[str], None],
        replaced: Callable[[], None],
    ) -> None:
        """Beat from now on, on a thread, but not while whoever serves stands still: `alive_at` says when it was last heard of, by boot
        time. The others are called on that thread; after `replaced` there are no beats."""
        self._thread = threading.Thread(
            target=self._run, args=(alive_at, seen, lost, replaced), name="register of nodes", daemon=True
        )
        self._thread.start()

    def leave(self) -> None:
        """Nobody need wait for the end of this node. Takes no longer than a beat."""
        self._is_over.set()
        self._soon.set()
        if self._thread is not None:
            self._thread.join(LEASE_S)
        with suppress(StoreUnavailable), self._connection() as connection:
            # It may have left faster than it beats: without this it would count as one that is gone.
            connection.raw.execute(SAY_STATE, (DRAINING, self.owner.id))
            connection.raw.execute(schema_statement("leave_register", self.place.schema), (self.owner.id,))
            connection.raw.execute(REMOVE_FENCES)
        self.close()

    def close(self) -> None:
        self._is_over.set()
        self._soon.set()
        for connection in (self._connected, self._beating):
            if connection is not None:
                connection.close()
        self._connected = self._beating = None

    # Beats

    def _run(
        self,
        alive_at: Callable[[], float],
        seen: Callable[[Seen], None],
        lost: Callable[[str], None],
        replaced: Callable[[], None],
    ) -> None:
        pause_s = RENEW_EVERY_S
        while not self._is_over.is_set():
            self._soon.wait(pause_s)
            self._soon.clear()
            pause_s = RENEW_EVERY_S
            silent_s = boot_time() - alive_at()
            if self._is_over.is_set() or silent_s >= SILENT_MAX_S:
                continue
            try:
                found = self.beat(silent_s)
            except NodeReplaced:
                replaced()
                return
            except (psycopg.Error, StoreUnavailable) as error:
                if self._beating is not None:
                    self._beating.close()
                    self._beating = None
                lost(" ".join(str(error).split()))
            else:
                pause_s = until_an_end(node.left_s for node in found.nodes)
                seen(found)

    def beat_soon(self) -> None:
        """Something has changed."""
        self._soon.set()

    def beat(self, silent_s: float = 0.0) -> Seen:
        """`silent_s`: for how long whoever serves has not been heard of; as those of its leases, its time to live counts from then.

        Raises psycopg.Error, StoreUnavailable, NodeReplaced, or StoreTaken while a process that is no node has the namespace.
        """
        if self._beating is None:
            self._beating = Connection(self.place.dsn, f"twinbus {self.owner.id} nodes", PATIENCE_OF_LEASES)
            self._beating.raw.execute("SET statement_timeout = '3s'")
            set_search_path(self._beating, self.place.schema)
        before, raw, facts = boot_time(), self._beating.raw, self.facts
        unreached = ",".join(map(str, facts.unreached))
        values = (LEASE_S - silent_s, facts.state, unreached, facts.connections, self.address, self.owner.id)
        if raw.execute(BEAT, values).rowcount != 1:
            raise NodeReplaced("this node is not in the register any more: another one has its name or its number")
        if raw.execute(schema_statement("renew_lease", self.place.schema), (LEASE_S, ALL_NODES.id)).rowcount != 1:
            # A process without a node's name took the namespace while no node was heard of, and its changes raise no version.
            take_over(self._beating, self.place, ALL_NODES)
            raw.execute(RAISE_VERSION)
        raw.execute(REMOVE_FENCES)
        while self._turns_to_end:
            raw.execute(END_TURN, self._turns_to_end[0])
            self._turns_to_end.popleft()
        if not self._beating.one(HAS_FENCE, self.fence)[0]:
            fence = secrets.token_hex(8)
            raw.execute(PUT_FENCE, (fence, self.owner.id))
            self.fence = fence
            self.times_fenced += 1
            log.warning("node_was_taken_for_dead", extra={"fields": {"node": self.name}})
        (version,) = self._beating.one(VERSION)
        pins: dict[int, str] = dict(raw.execute(PINS).fetchall())
        downs = frozenset(store for (store,) in raw.execute(DOWNS).fetchall())
        return Seen([_row(row) for row in raw.execute(SEEN).fetchall()], version, pins, downs, before)

    # Changes

    def try_turn(self, name: str, ticket: str) -> str | None:
        """The fence under which this ticket has the turn of this name; None while somebody else has it. Within another turn it is that of
        the other one: a change needs all of its turns."""
        fence = _turn_fence.get() or self.fence
        with self._connection() as connection:
            found = connection.raw.execute(TAKE_TURN, (name, fence, ticket)).fetchone()
        return None if found is None else fence

    def names_in_turn(self) -> list[str]:
        with self._connection() as connection:
            return [name for (name,) in connection.raw.execute(TURNS).fetchall()]

    def catalog_version(self) -> int:
        """That of the last change of the catalog."""
        with self._connection() as connection:
            return int(connection.one(VERSION)[0])

    def end_turn(self, name: str, ticket: str) -> None:
        """Whether it was given or not. If the database is not reached, a later beat ends it: it would last as long as this node."""
        try:
            with self._connection() as connection:
                connection.raw.execute(END_TURN, (name, ticket))
        except StoreUnavailable:
            self._turns_to_end.append((name, ticket))

    def pin(self, store: int, node: str | None) -> None:
        with self._connection() as connection:
            if node is None:
                connection.raw.execute(DROP_PIN, (store,))
            else:
                connection.raw.execute(PUT_PIN, (store, node))

    def switch(self, store: int, *, is_up: bool) -> None:
        with self._connection() as connection:
            connection.raw.execute(DROP_DOWN if is_up else PUT_DOWN, (store,))

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """One thread at a time. Raises StoreUnavailable."""
        with self._asking:
            try:
                if self._connected is None or self._connected.raw.broken:
                    self._connected = Connection(
                        self.place.dsn, f"twinbus {self.owner.id} register", PATIENCE_OF_LEASES
                    )
                    set_search_path(self._connected, self.place.schema)
                yield self._connected
            except psycopg.Error as error:
                if self._connected is not None:
                    self._connected.close()
                    self._connected = None
                raise in_our_words(error, server_of(self.place.dsn)) from error

    @contextmanager
    def under(self, fence: str) -> Iterator[None]:
        """What is changed inside, also on threads that are begun here, is changed under this fence."""
        token = _turn_fence.set(fence)
        try:
            yield
        finally:
            _turn_fence.reset(token)

    def allow_change(self, execute: Callable[[str, tuple[object, ...]], Any]) -> None:
        """To be called in the transaction of a change to the catalog. Raises InternalError if this node was taken for dead."""
        fence = _turn_fence.get() or self.fence
        if not execute(REQUIRE_FENCE, (fence, ALL_NODES.id)):
            raise InternalError("The other nodes took this one for dead while it made this change. Try again.")
        execute(RAISE_VERSION, ())


def _free_number(known: list[tuple[Any, ...]]) -> int:
    """The lowest that nobody has, or that of the node which has been gone for longest."""
    taken = {row[0] for row in known}
    free = next((number for number in range(NODES_MAX) if number not in taken), None)
    if free is not None:
        return free
    for number, _, _, is_live, _ in known:
        if not is_live:
            return int(number)
    raise ArgumentError(f"A namespace has {NODES_MAX} nodes at most, and this one has them.")


def _row(row: tuple[Any, ...]) -> NodeRow:
    number, name, address, process, state, unreached, connections, left_s, age_s = row
    databases = tuple(int(each) for each in unreached.split(",") if each)
    return NodeRow(number, name, address, process, state, databases, connections, left_s, age_s)
