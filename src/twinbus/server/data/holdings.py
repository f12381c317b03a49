"""What a namespace holds while it is served, wherever that is: its data folder, the catalog, the rule with all rights, and which messaging
stores there are.

| served by | catalog and key | stores |
|---|---|---|
| one process | in the folder | folders |
| one of several processes | in the folder, which their supervisor holds | those folders that are its own |
| one process, or a spare that took over | in the first database, under a lease | schemas of databases |
| nodes on several machines | in the first database, with turns for changes | those schemas that are its own at the moment |
"""

import asyncio
import logging
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from twinbus.clock import Clock, boot_time
from twinbus.errors import ArgumentError
from twinbus.management.access_control import ROOT_RULE_NAME
from twinbus.management.catalog import Catalog
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.server.data.copy_marks import read_mark, require_whole
from twinbus.server.data.data_folder import KEY_BYTES, OTHER_KEY, DataFolder
from twinbus.server.patience import said_while_it_lasts
from twinbus.server.server_settings import ServerSettings
from twinbus.server.stores.places import StoresToKeep

if TYPE_CHECKING:
    from twinbus.management.catalog_postgres import PostgresCatalog
    from twinbus.server.machines.node import MachineNode
    from twinbus.server.nodes.membership import Membership
    from twinbus.store.postgres.place import Owner, PostgresPlace

log = logging.getLogger(__name__)

CATALOG_NAME = "catalog.db"
WAITING_FOR_FOLDER = "waiting_for_data_folder"
WAITING_FOR_DATABASE = "waiting_for_catalog"


class Holdings:
    """Holds the data folder from the first moment, and the rest from `open`. `closing` is given what gives each of them back.

    Raises MessagingError if something is held by somebody else.
    """

    catalog: Catalog
    root_rule: AuthorizationRule

    def __init__(
        self,
        settings: ServerSettings,
        clock: Clock,
        closing: Callable[[Callable[[], None]], None],
        owner: "Owner | None" = None,
        membership: "Membership | MachineNode | None" = None,
        machine: "MachineNode | None" = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._closing = closing
        self._owner = owner
        self._membership = membership
        self._machine = machine
        with said_while_it_lasts(WAITING_FOR_FOLDER, folder=str(settings.data_folder)):
            self._folder = DataFolder(settings.data_folder, None if membership is None else membership.lock)
        closing(self._folder.close)
        self._unmarked: set[int] = set()  # stores that the catalog does not know to be in use yet
        self._marking: set[asyncio.Task[None]] = set()
        self._mark_created: Callable[[int], None] = lambda _: None

    async def open(self) -> StoresToKeep:
        """From now on there are a catalog and a rule with all rights. Returns where the messaging stores are."""
        if self._machine is not None:
            stores = await self._join(self._machine)
        elif self._settings.store_dsns:
            stores = await self._open_databases()
        else:
            with said_while_it_lasts(WAITING_FOR_FOLDER, folder=str(self._settings.data_folder)):
                stores = self._open_folder()
        self._closing(self.catalog.close)
        return stores

    def _open_folder(self) -> StoresToKeep:
        settings, folder = self._settings, self._folder
        require_whole(read_mark(folder.copy_mark(), str(folder.copy_mark_file)), str(folder.copy_mark_file))
        if self._membership is not None:
            self.catalog = self._catalog_in(folder)
            self.follow_root_rule()
            return StoresToKeep(folder.store_paths(settings.store_count), own=self._membership.stores)
        root_rule = folder.root_rule(settings.shared_access_key)
        self.catalog = self._catalog_in(folder)
        self.root_rule = keep_root_rule(self.catalog, root_rule)
        return StoresToKeep(folder.store_paths(settings.store_count))

    def _catalog_in(self, folder: DataFolder) -> Catalog:
        file, name = folder.path / CATALOG_NAME, self._settings.name
        return Catalog.in_file(file, name, self._clock.now(), was_in_use=folder.was_in_use)

    async def _open_databases(self) -> StoresToKeep:
        settings = self._settings
        with said_while_it_lasts(WAITING_FOR_DATABASE, database=self._first_database):
            database = await asyncio.to_thread(self._hold_databases)
        self._closing(database.close)
        self._require_whole(database)
        self.catalog = Catalog(database)
        self.root_rule = root_rule_in(self.catalog, settings.shared_access_key)
        self.catalog.set_namespace_rule(self.root_rule)
        return StoresToKeep(self._places_in(database), self._owner, database.place)

    async def _join(self, machine: "MachineNode") -> StoresToKeep:
        settings = self._settings
        with said_while_it_lasts(WAITING_FOR_DATABASE, database=self._first_database):
            database = await asyncio.to_thread(machine.open_catalog)
        self._closing(database.close)
        self._closing(machine.close)
        self._require_whole(database)
        self.catalog = await asyncio.to_thread(Catalog, database)
        self.root_rule = root_rule_in(self.catalog, settings.shared_access_key)
        if self.root_rule not in self.catalog.namespace_rules():
            async with machine.first_turn(ROOT_RULE_NAME):
                await asyncio.to_thread(self.catalog.reread_access_rules)
                self.root_rule = root_rule_in(self.catalog, settings.shared_access_key)
                await asyncio.to_thread(self.catalog.set_namespace_rule, self.root_rule)
        places = self._places_in(database)
        machine.join(places)
        return StoresToKeep(places, self._owner, database.place, is_node=True)

    def _hold_databases(self) -> "PostgresCatalog":
        """Raises StoreTaken while another process serves the namespace."""
        from twinbus.management.catalog_postgres import PostgresCatalog, first_place
        from twinbus.store.postgres.lease import LeaseKeeper

        settings = self._settings
        assert self._owner is not None
        keeper = LeaseKeeper(lambda _, __: None, boot_time)
        self._closing(keeper.close)
        place = first_place(settings.store_dsns, settings.name, self._owner)
        return PostgresCatalog(place, self._owner, settings.store_count, self._clock.now(), keeper)

    @property
    def _first_database(self) -> str:
        from twinbus.store.postgres.place import server_of

        return server_of(self._settings.store_dsns[0])

    def _require_whole(self, database: "PostgresCatalog") -> None:
        require_whole(read_mark(database.copy_mark(), str(database.place)), f"table copy in {database.place}")

    def _places_in(self, database: "PostgresCatalog") -> "list[PostgresPlace]":
        places = database.places(self._settings.store_dsns)
        self._mark_created = database.mark_created
        self._unmarked = {place.number for place in places if not place.is_created}
        return places

    def store_opened(self, index: int) -> None:
        """The catalog remembers that there is something to lose in it."""
        if index in self._unmarked:
            self._unmarked.discard(index)
            task = asyncio.get_running_loop().create_task(asyncio.to_thread(self._mark_created, index))
            self._marking.add(task)
            task.add_done_callback(self._marked)

    def _marked(self, task: "asyncio.Task[None]") -> None:
        self._marking.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            # The next start marks it: until then a store that is gone would be taken for a new one.
            log.warning("store_not_marked", extra={"fields": {"reason": str(fault)}})

    def follow_root_rule(self) -> None:
        """Another process may have given it a new key."""
        self.root_rule = {rule.name: rule for rule in self.catalog.namespace_rules()}[ROOT_RULE_NAME]

    @contextmanager
    def root_key_change(self, on_new_key: Callable[[], None], key: str) -> Iterator[None]:
        """A `RootKeyChange`; called in a thread of its own."""
        is_new = key != self.root_rule.primary_key
        if is_new and not self._settings.store_dsns:  # there the catalog is the only place
            self._folder.keep_root_key(key)
        yield
        if is_new:
            self.root_rule = replace(self.root_rule, primary_key=key)
            on_new_key()


def keep_root_rule(catalog: Catalog, root_rule: AuthorizationRule) -> AuthorizationRule:
    """The folder has the primary key; the catalog may have a secondary one that was generated since."""
    known = {rule.name: rule for rule in catalog.namespace_rules()}.get(root_rule.name)
    if known is not None:
        root_rule = replace(known, primary_key=root_rule.primary_key)
    catalog.set_namespace_rule(root_rule)
    return root_rule


def root_rule_in(catalog: Catalog, wanted_key: str | None) -> AuthorizationRule:
    """The rule with all rights, kept in the catalog. A wanted key counts only if there is none yet."""
    known = {rule.name: rule for rule in catalog.namespace_rules()}.get(ROOT_RULE_NAME)
    if known is None:
        return AuthorizationRule(ROOT_RULE_NAME, wanted_key or new_key(), "", frozenset(Right))
    if wanted_key not in (None, known.primary_key):
        raise ArgumentError(OTHER_KEY)
    return known


def new_key() -> str:
    return b64encode(secrets.token_bytes(KEY_BYTES)).decode()
