"""Where the messaging stores of a namespace are, as what its store process is told: folders, or schemas of databases.

psycopg is imported only where a store is in PostgreSQL: it is an extra.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from twinbus.server.data.data_folder import open_store as open_folder
from twinbus.store.durable import DurableStore
from twinbus.store.store_limits import StoreLimits

if TYPE_CHECKING:
    from twinbus.store.postgres.lease import LeaseRenewal
    from twinbus.store.postgres.place import CatalogPlace, Owner, PostgresPlace

StorePlace: TypeAlias = "Path | PostgresPlace"


class StoresToKeep(NamedTuple):
    """Those of a namespace that a process owns. `owner` is for those in PostgreSQL: it stays the same when the store process is
    restarted."""

    places: "Sequence[StorePlace]"
    """Of all stores of the namespace."""
    owner: "Owner | None" = None
    catalog: "CatalogPlace | None" = None
    """The namespace keeps that lease itself; if it is killed, the store process gives it back."""

    own: "Sequence[int] | None" = None
    """The numbers of those to keep; None: all."""
    is_node: bool = False
    """The catalog is owned by all nodes of a namespace together; if this one is killed, the store process says that it is gone."""

    @property
    def numbers(self) -> "Sequence[int]":
        return range(len(self.places)) if self.own is None else self.own

    @property
    def have_leases(self) -> bool:
        return self.owner is not None


def location_of(place: "StorePlace") -> str:
    """What it shares with other stores: if that hangs, they all do."""
    if isinstance(place, Path):
        return str(place.parent)
    from twinbus.store.postgres.place import server_of

    return server_of(place.dsn)


def opener(
    place: "StorePlace", owner: "Owner | None", limits: StoreLimits, renewal: "LeaseRenewal | None"
) -> Callable[[], DurableStore]:
    if isinstance(place, Path):
        return partial(open_folder, place, limits)
    from twinbus.store.postgres.store import PostgresStore

    assert owner is not None
    assert renewal is not None
    known = place

    def open_schema() -> DurableStore:
        nonlocal known
        store = PostgresStore(known, owner, limits, renewal=renewal)
        known = replace(known, is_created=True)  # the catalog says so too by now, but was read before
        return store

    return open_schema
